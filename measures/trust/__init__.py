"""What the lines of an assessment are made of: pairs with scores, findings, people's ranks."""
