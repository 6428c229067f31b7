"""From votes to the rows of a dataset, and the proof that nothing leaks. Pure: no database."""
