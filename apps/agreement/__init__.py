"""Agreement statistics over a project's votes, and what they mean."""
