"""The pages of datasets, a file per area."""
