"""Answers sampled from a policy, and what the policy thought of each of their tokens."""
