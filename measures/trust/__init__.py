"""May one optimise against this reward model? Each module answers lines of `lines.LINES`."""
