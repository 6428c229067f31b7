"""Small PPO runs with one planted fault each, and healthy ones: what a diagnosis is judged by."""
