"""Which models a configuration may name: a hub's, or a folder that whoever runs the worker lists.

`MODEL_FOLDERS` lists folders, separated by commas; `VAR_DIR/models` where it is not set. The web
side refuses what its own list does not hold without looking at the disk; the worker, whose disk it
is, decides. Neither tells whether a path exists.
"""

import os
import re
from pathlib import Path

VARIABLE = "MODEL_FOLDERS"
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
NOT_ALLOWED = (
    "is neither the id of a model on a hub nor a folder below one that MODEL_FOLDERS lists"
)


def model_folders() -> list[Path]:
    told = [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]
    if not told:
        told = [str(Path(os.environ.get("VAR_DIR") or "var") / "models")]
    return [Path(word).expanduser().absolute() for word in told]


def is_hub_id(name: str) -> bool:
    return _HUB_ID.fullmatch(name) is not None and ".." not in name


def may_be_named(name: str) -> bool:
    """By its spelling alone."""
    if is_hub_id(name):
        return True
    path = Path(os.path.normpath(name))
    return path.is_absolute() and any(_is_below(path, folder) for folder in model_folders())


def allowed_folder(name: str) -> Path | None:
    """The folder on this machine that `name` leads to, links followed; None unless it lies below a
    listed one."""
    path = Path(name).resolve()
    listed = any(_is_below(path, folder.resolve()) for folder in model_folders())
    return path if Path(name).is_absolute() and listed else None


def _is_below(path: Path, folder: Path) -> bool:
    return folder in path.parents
