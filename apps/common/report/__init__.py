"""Evidence as pages draw it: histograms, curves, intervals, tables and texts, without queries."""
