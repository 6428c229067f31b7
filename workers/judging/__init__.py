"""A model that says which of two answers is better: how it is asked, and how it is attacked."""
