"""What answers say, and what the reward makes of it."""
