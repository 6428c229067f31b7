"""The two sides of `benchmarks/ppo_step.py`, each in a process and an environment of its own."""
