"""What the pages of monitoring send."""
