"""The parts of a PPO run; `workers/recipes/ppo.py` puts them in order."""
