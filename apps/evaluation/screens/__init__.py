"""What the pages print; no queries here."""
