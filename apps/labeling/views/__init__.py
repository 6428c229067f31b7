"""Pages of labeling: the label screen, one's own answers, guidelines, comparisons, settings."""
