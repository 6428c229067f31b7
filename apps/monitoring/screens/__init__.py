"""What pages of monitoring print; no queries."""
