"""Pages of the people: signing in, one's own account, a project's people and its audit log."""
