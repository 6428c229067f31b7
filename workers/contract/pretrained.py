"""Where `make models` puts its two models, which the web side names and a worker reads."""

from pathlib import Path

POLICY, ENCODER = "smollm2-135m-instruct", "all-minilm-l6-v2"
MANIFEST = "models.json"  # written last, with the hash of every file


def installed(folder: Path) -> bool:
    """Whether both are there, by their names alone: `workers.models.install` compares contents."""
    configs = [folder / name / "config.json" for name in (POLICY, ENCODER)]
    return all(path.is_file() for path in (folder / MANIFEST, *configs))
