"""The forms of agreement, a file per page."""
