"""One question about a run in trouble, one file each: `look(context, settings, pace) -> Found`."""
