"""What answers say and how they are scored: words, phrases, copies, and what the reward follows."""
