"""The two sides of `benchmarks/ppo_step.py`, each run in a process and an environment of its own."""
