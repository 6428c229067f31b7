"""The notebooks in examples/ from top to bottom, and what the client's README trains.

A whole site (`manage.py up`), an empty project for each, an admin's token, and a virtual
environment that has the client and not the server. The exit status is 1 if a cell raised, or a
process is left over.

Run: python -m tests.system.drill_notebooks FOLDER_OF_PROGRAMS
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.system.a_site import ROOT, Site, temporary_folder

SECONDS = 900  # for one notebook
ENDING_SECONDS = 60  # the site's database ends after its last user
EXAMPLES = ROOT / "examples"
README = ROOT / "clients" / "python" / "README.md"
ADDRESS = "http://127.0.0.1:8000"
SCOPES = ("read", "label", "write", "train")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("programs", help="bin/ of an environment with nbclient and the client")
    chosen = arguments.parse_args()
    faults = []
    programs = Path(chosen.programs).absolute()
    with temporary_folder() as folder:
        with Site(folder / "var") as site:
            site.connect()
            for notebook in sorted(EXAMPLES.glob("*.ipynb")):
                shutil.copy(notebook, folder)
                done = folder / f"executed-{notebook.name}"
                words = [
                    str(programs / "jupyter-execute"),
                    notebook.name,
                    f"--output={done}",
                    f"--timeout={SECONDS}",
                    "--kernel_name=python3",
                ]
                faults += ran(notebook.name, words, site, lambda done=done: shown(done))
            block = trained_in(README.read_text())
            words = [str(programs / "python"), "-c", block.replace(ADDRESS, site.url)]
            faults += ran(README.name, words, site)
        deadline = time.monotonic() + ENDING_SECONDS
        while (left := site.left_behind()) and time.monotonic() < deadline:
            time.sleep(0.5)
        faults += [f"left over: {command}" for command in left.values()]
    print("\n".join(["", *(faults or ["every cell ran, and every process has ended"])]))  # noqa: T201
    sys.exit(bool(faults))


def trained_in(readme: str) -> str:
    """The block that trains, on a project called as here."""
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (block,) = (one for one in blocks if "runs.launch" in one)
    assert ADDRESS in block
    return block


def ran(
    name: str, words: list[str], site: Site, show: Callable[[], str] | None = None
) -> list[str]:
    """Runs a command beside the site's folder, printing what came of it; its faults."""
    # The README names its project.
    slug = "arguments" if name == README.name else Path(name).stem.replace("_", "-")
    began = time.monotonic()
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        "HOME": str(site.var.parent),
        # Its name is on a kernel's command line, by which `left_behind` finds it.
        "JUPYTER_RUNTIME_DIR": str(site.var / "kernels"),
        "CONCORD_URL": site.url,
        "CONCORD_TOKEN": token(slug),
        "CONCORD_PROJECT": slug,
    }
    process = subprocess.Popen(
        words,
        cwd=site.var.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS + 60)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # the kernel too
        process.wait()
        raise
    said = re.sub(r"\x1b\[[\d;]*m", "", said)
    if not process.returncode and show is not None:
        said = show()
    print(f"{name:<26}{time.monotonic() - began:>6.0f} s")  # noqa: T201
    print("\n".join(f"  {line}" for line in said[-4000:].splitlines()), flush=True)  # noqa: T201
    return [f"{name}: ended with {process.returncode}"] if process.returncode else []


def token(slug: str) -> str:
    """Of an admin of a new project of this name."""
    from apps.accounts.models import Project
    from apps.accounts.services import token_create
    from apps.labeling.services import labeling_set_up
    from tests.people import person_make

    project = Project.objects.create(slug=slug, name=slug)
    labeling_set_up(project=project)
    ada = person_make(f"Ada-{slug}", project, "admin")
    return token_create(user=ada, name="notebook", scopes=list(SCOPES), days=1)[1]


def shown(notebook: Path) -> str:
    """What the cells printed and answered."""
    texts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        for output in cell.get("outputs", ()):
            text = output.get("text") or output.get("data", {}).get("text/plain") or ""
            texts.append("".join(text).rstrip("\n"))
    return "\n".join(texts)


if __name__ == "__main__":
    main()
