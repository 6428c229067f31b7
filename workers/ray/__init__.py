"""Rollouts and rewards by Ray actors. Nothing here is imported unless a run asks for actors."""
