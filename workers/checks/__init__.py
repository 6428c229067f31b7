"""One question about a run in problem, one file each: `look(context, settings, pace) -> Found`."""
