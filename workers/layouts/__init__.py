"""The shipped configurations of each layout: one source for whoever starts it.

`<layout>.yaml` is what `accelerate launch --config_file` reads; `<layout>.json` is DeepSpeed's own
configuration, which the YAML names and the recipes pass on themselves. So a run that `torchrun`
starts and one that `accelerate launch` starts are the same run.
"""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def accelerate_config(layout: str) -> Path:
    """The file for `accelerate launch --config_file`; relative names in it are relative to the
    folder that holds `workers/`, in which trainers are started."""
    return FOLDER / f"{layout}.yaml"


def deepspeed_config(layout: str) -> Path:
    """DeepSpeed's configuration of the layouts zero2 and zero3."""
    return FOLDER / f"{layout}.json"
