"""What the pages of runs print: geometry and words, no queries."""
