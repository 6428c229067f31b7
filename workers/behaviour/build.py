"""The watch of a run, from its settings and inputs."""

from workers.behaviour.copies import Copies
from workers.behaviour.watch import Watch
from workers.config.policy import OptimisedSettings
from workers.context import RunContext
from workers.data.snapshot import read_demonstrations


def make_watch(context: RunContext, settings: OptimisedSettings) -> Watch:
    """Copies are looked for where the run has the input 'demonstrations'."""
    copies = None
    if context.has_input("demonstrations"):
        rows = read_demonstrations(context.input_path("demonstrations"))
        copies = Copies(row.response for row in rows)
    return Watch(refusals=settings.refusal_phrases, phrases=settings.watch_phrases, copies=copies)
