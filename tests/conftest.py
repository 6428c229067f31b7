"""Fixtures of the whole suite. The servers come from `tests.servers`, loaded earlier."""

pytest_plugins = ["tests.people"]
