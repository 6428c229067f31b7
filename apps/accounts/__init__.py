"""People, the projects they meet in, roles, API tokens, the audit log."""
