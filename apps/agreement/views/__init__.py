"""The pages of agreement, a file per page."""
