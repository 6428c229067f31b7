"""`python3 docker/pin_images.py`: the digests of compose.yml's images, as compose.pinned.yml.

Asks the registries through `skopeo` or `docker buildx imagetools`, whichever is there. Where
one image gets no answer, nothing is written: a digest is never made up. Standard library only.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
IMAGE = re.compile(
    r"^  ([a-z-]+):\n(?:    .*\n|\n)*?    image: (docker\.io/\S+:[\w.-]+)$", re.MULTILINE
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ASKING = {
    "skopeo": ("skopeo", "inspect", "--format", "{{.Digest}}"),
    "docker": ("docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}"),
}


def images(compose: str) -> dict[str, str]:
    """Service -> image with its tag, of those that come from a registry."""
    return dict(IMAGE.findall(compose))


def digest(image: str) -> str:
    """Raises `SystemExit` where no registry answers."""
    tool = next((name for name in ASKING if shutil.which(name)), None)
    if tool is None:
        raise SystemExit("docker or skopeo is needed to ask a registry")
    place = f"docker://{image}" if tool == "skopeo" else image
    told = subprocess.run([*ASKING[tool], place], capture_output=True, text=True, check=False)
    found = DIGEST.search(told.stdout)
    if told.returncode or found is None:
        why = told.stderr.strip().splitlines()[-1:] or ["no digest in the answer"]
        raise SystemExit(f"{image}: {why[0]}. Nothing was written.")
    return found[0]


def main() -> int:
    found = images((HERE / "compose.yml").read_text())
    lines = [
        "# Written by docker/pin_images.py; use it as a second -f after compose.yml.",
        "services:",
    ]
    known: dict[str, str] = {}
    for service, image in found.items():
        known[image] = known.get(image) or digest(image)
        lines += [
            f"  {service}:",
            f"    image: {image.rpartition(':')[0]}@{known[image]}  # {image}",
        ]
    (HERE / "compose.pinned.yml").write_text("\n".join(lines) + "\n")
    print(f"{len(found)} services pinned in docker/compose.pinned.yml")
    return 0


if __name__ == "__main__":
    sys.exit(main())
