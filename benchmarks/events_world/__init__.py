"""The parts of benchmarks/events.py: trainers that report, the storage of before, what is read."""
