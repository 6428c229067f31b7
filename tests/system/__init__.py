"""Drills on a whole running site; started by hand or by `make test-system`, not by pytest."""
