"""What `benchmarks.preference_training` compares: the pairs, the timing, and the two trainings."""
