"""A small world with a hidden reward: its language, its people, and the runs of a seed in it."""
