"""Fixtures of the whole suite. The servers come from `tests.servers`, loaded earlier."""

from collections.abc import Generator

import pytest
from hypothesis import settings

pytest_plugins = ["tests.people"]

# Loaded machines miss deadlines, a derandomised run fails for everybody or nobody, and a database
# of examples would litter the checkout.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")


# Folders whose tests share something that is dear to make: one process runs them all.
TOGETHER = ("tests/workers/recipes",)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Browser tests last: Playwright leaves an event loop running in the main thread. The dear
    folders begin right before them, so that with two processes one trains while one clicks.

    Where tests run in several processes, a file's tests stay together, and browser and stack tests,
    which wait for other processes on a busy machine, may try a second time; a summary names them.
    """
    for item in items:  # before pytest-xdist reads the groups
        path = item.path.as_posix()
        folder = next((name for name in TOGETHER if f"{name}/" in path), None)
        item.add_marker(pytest.mark.xdist_group(folder or item.nodeid.partition("::")[0]))
        if item.get_closest_marker("browser") or item.get_closest_marker("stack"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    yield
    items.sort(key=_late)  # after pytest-django, which puts tests without a database last


def _late(item: pytest.Item) -> int:
    path = item.path.as_posix()
    return 2 if "tests/browser/" in path else any(f"{name}/" in path for name in TOGETHER)
