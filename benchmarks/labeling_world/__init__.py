"""The parts of benchmarks/labeling_scale.py: a project of any size, and what a statement reads."""
