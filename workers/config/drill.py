"""Settings of `drill`, a run that trains nothing."""

from dataclasses import dataclass

from workers.config.parsing import Section, option

FAULTS = ("none", "exit", "segv", "kill", "hang", "oom", "bug", "data", "garbage", "violation")


@dataclass(frozen=True, kw_only=True)
class DrillSettings:
    """How long the drill takes and how it goes wrong."""

    steps: int = option(
        20, "Steps of the whole run.", unit="steps", minimum=1, section=Section.UPDATE, main=True
    )
    step_seconds: float = option(0.05, "How long a step takes.", unit="s", minimum=0.0, main=True)
    checkpoint_every: int = option(
        5, "Steps between checkpoints.", unit="steps", minimum=1, main=True
    )
    metrics_per_step: int = option(1, "Points per step, one a name.", minimum=1, maximum=1000)
    sample_every: int = option(
        0,
        "Steps between samples; 0 for none.",
        unit="steps",
        minimum=0,
        section=Section.BOOKKEEPING,
        main=True,
    )
    fault: str = option("none", "What goes wrong at `fault_at`.", choices=FAULTS, main=True)
    fault_rank: int = option(0, "The rank on which it goes wrong.", minimum=0)
    fault_at: int = option(1, "The step at which it goes wrong.", unit="steps", minimum=1)
    fault_attempts: int = option(1, "Attempts in which it goes wrong; later ones run through.")
    hold_after: int = option(
        0, "The step after which it waits for `hold_file` to appear; 0 for none.", minimum=0
    )
    hold_file: str | None = option(None, "Waited for in the first `fault_attempts` attempts.")
    exit_code: int = option(7, "Of the fault `exit`.", minimum=0, maximum=255)
    meet: bool = option(
        False, "Ranks meet over torch.distributed (gloo) at every step, as in real training."
    )
    children: int = option(
        0,
        "Processes it starts and leaves behind, as a careless data loader does.",
        minimum=0,
        maximum=16,
    )
    ignore_stop: bool = option(False, "Be deaf to every polite wish.")
    witness: str | None = option(
        None, "A file that all trainers of the run share; it records whether two ever met."
    )
