"""The capacity model: what is measured, what is assumed, and what follows."""
