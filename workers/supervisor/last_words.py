"""What is said of an attempt whose trainer could not say it. `docs/jobs.md` explains each kind."""

from workers.contract.events import Failed, Fault

INTERRUPTED = Failed(
    "interrupted",
    Fault.MACHINE,
    "The worker shuts down; the run continues from its checkpoint on the next one.",
    retryable=True,
)
SUPERSEDED = Failed("superseded", Fault.MACHINE, "A later attempt of this run took over.")
LEASE_LOST = Failed(
    "lease_lost",
    Fault.MACHINE,
    "The worker lost its line to Redis for so long that another one might have taken the run.",
    retryable=True,
)
STOPPED_BY_FORCE = Failed(
    "stop_forced",
    Fault.USER,
    "The run was asked to stop, did not save and end in time, and was killed. Its last checkpoint "
    "is kept.",
)
WORKER_LOST = Failed(
    "killed", Fault.MACHINE, "The worker died while it supervised this attempt.", retryable=True
)


def time_limit(seconds: float) -> Failed:
    return Failed(
        "time_limit", Fault.CONFIGURATION, f"The attempt took longer than its {seconds:g} s."
    )
