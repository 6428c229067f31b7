"""The parts of benchmarks/consensus.py: a million votes in a database, and what they cost there."""
