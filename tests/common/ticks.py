"""The one task of the schedule in `ticking`: seconds between two, and until one expires."""

QUEUE, EVERY_S, EXPIRES_S = "ticks", 0.2, 0.4
