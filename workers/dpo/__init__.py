"""Direct preference optimisation: its pairs, its reference, its trainer."""
