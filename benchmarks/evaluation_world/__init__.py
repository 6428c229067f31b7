"""What `benchmarks.evaluation` draws from."""
