"""Fixtures of the whole suite. The servers come from `tests.servers`, loaded earlier."""

from hypothesis import settings

pytest_plugins = ["tests.people"]

# Loaded machines miss deadlines, a derandomised run fails for everybody or nobody, and a database
# of examples would litter the checkout.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")
