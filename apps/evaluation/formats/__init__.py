"""Files of other programs, read as data."""
