"""What a release is made of, and whether holes are known in it.

Run: python -m tests.system.release sbom FOLDER
     python -m tests.system.release audit

`sbom` writes a CycloneDX file of each side and checks that it names every locked package. `audit`
asks the vulnerability service about each. Its program ends with 0 also where it could ask about
nothing; here that is 2, and 1 where a hole is known.
"""

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".venv-release" / "bin"
LOCKS = {
    "web": ROOT / "requirements" / "web.lock",
    "train": ROOT / "requirements" / "train.constraints.txt",
}
UNLOCKED = ("torch",)  # each machine has its own build; the installed version counts
HOLES, NOT_ASKED = 1, 2


Package = tuple[str, str]  # name and version; some have a version for each of several machines


def locked(text: str) -> set[Package]:
    """What a lock file names."""
    return set(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.M))


def packages(side: str) -> set[Package]:
    found = locked(LOCKS[side].read_text())
    if side == "train":
        found |= {(name, importlib.metadata.version(name).partition("+")[0]) for name in UNLOCKED}
    return found


# --- what it is made of ---------------------------------------------------------------------------


def sbom(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for side in LOCKS:
        target = folder / f"{side}.cdx.json"
        words = ["requirements", "-", "--pyproject", str(ROOT / "pyproject.toml"), "-o", target]
        subprocess.run(
            [TOOLS / "cyclonedx-py", *words, "--of", "JSON", "--output-reproducible", "--validate"],
            input=as_requirements(packages(side), LOCKS[side].read_text()),
            text=True,
            check=True,
        )
        if missing := unnamed(packages(side), json.loads(target.read_text())):
            print(f"{target} lacks {', '.join(sorted(missing))}")  # noqa: T201
            return 1
        print(f"{target}: {len(packages(side))} packages")  # noqa: T201
    return 0


def as_requirements(wanted: set[Package], lock: str) -> str:
    """The lock file, and what it leaves to each machine."""
    more = [f"{name}=={version}" for name, version in sorted(wanted - locked(lock))]
    return "\n".join([lock, *more, ""])


def unnamed(wanted: set[Package], bom: dict[str, Any]) -> set[str]:
    """What of `wanted` the bill does not name with its version."""
    named = {(_plain(one["name"]), one.get("version")) for one in bom.get("components", [])}
    return {name for name, version in wanted if (_plain(name), version) not in named}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# --- holes ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Answer:
    """What the service said of the packages of a side."""

    holes: list[str] = field(default_factory=list)
    asked: int = 0
    not_asked: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        if self.holes:
            return HOLES
        return NOT_ASKED if self.not_asked or not self.asked else 0


def audit() -> int:
    statuses = []
    for side in LOCKS:
        answer = answer_of(packages(side), [asked(some) for some in one_version_each(side)])
        print(said(side, answer))  # noqa: T201
        statuses.append(answer.status)
    return HOLES if HOLES in statuses else max(statuses)


def one_version_each(side: str) -> list[dict[str, str]]:
    """The packages, in as few lists as hold each name once: the program takes no name twice."""
    lists: list[dict[str, str]] = []
    for name, version in sorted(packages(side)):
        place = next((one for one in lists if name not in one), None)
        if place is None:
            lists.append(place := {})
        place[name] = version
    return lists


def asked(wanted: dict[str, str]) -> str:
    """The output of pip-audit, which is empty where it could not even begin."""
    with tempfile.TemporaryDirectory(prefix="concord-audit-") as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in wanted.items()))
        words = ["-r", listed, "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        done = subprocess.run(
            [TOOLS / "pip-audit", *words, "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        print(done.stderr.strip()[-500:])  # noqa: T201
    return done.stdout


def answer_of(wanted: set[Package], outputs: list[str]) -> Answer:
    """A package counts as asked about only where the service had an answer for it."""
    answer = Answer()
    known: set[Package] = set()
    for one in [one for output in outputs for one in _told(output)]:
        if "skip_reason" in one:
            continue
        known.add((_plain(one["name"]), one["version"]))
        for hole in one["vulns"]:
            better = ", ".join(hole["fix_versions"]) or "none"
            answer.holes.append(f"{one['name']} {one['version']}: {hole['id']}, fixed in {better}")
    answer.asked = len(known)
    answer.not_asked = sorted(
        name for name, version in wanted if (_plain(name), version) not in known
    )
    return answer


def _told(output: str) -> list[dict[str, Any]]:
    try:
        return list(json.loads(output)["dependencies"])
    except (ValueError, KeyError):
        return []


def said(side: str, answer: Answer) -> str:
    lines = [f"{side}: {hole}" for hole in answer.holes]
    if answer.not_asked:
        few = ", ".join(answer.not_asked[:5]) + (" …" if len(answer.not_asked) > 5 else "")
        lines.append(
            f"{side}: {len(answer.not_asked)} packages could not be asked about ({few}): whether"
            " they have holes is not known"
        )
    if not lines:
        lines.append(f"{side}: no hole is known in {answer.asked} packages")
    return "\n".join(lines)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sbom", target]:
            sys.exit(sbom(Path(target)))
        case ["audit"]:
            sys.exit(audit())
        case _:
            sys.exit(__doc__)
