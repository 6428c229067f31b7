"""Fixtures of the whole suite. The servers come from `tests.servers`, loaded earlier."""

import pytest
from hypothesis import settings

pytest_plugins = ["tests.people"]

# Loaded machines miss deadlines, a derandomised run fails for everybody or nobody, and a database
# of examples would litter the checkout.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests last: Playwright leaves an event loop running in the main thread."""
    items.sort(key=lambda item: "tests/browser/" in item.path.as_posix())
