"""The parts of benchmarks/labeling.py: the server, the annotators who play, what is measured."""
