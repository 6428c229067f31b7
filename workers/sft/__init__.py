"""Supervised fine-tuning: its rows, its trainer, and how well its model imitates."""
