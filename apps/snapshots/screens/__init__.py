"""What pages about datasets print; no queries."""
