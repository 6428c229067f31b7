"""The parts of a GRPO run; `workers/recipes/grpo.py` puts them in order."""
