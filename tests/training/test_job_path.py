"""From launch to outcome through the real broker, a real worker and a real child process."""

from collections.abc import Callable

import pytest

from apps.training.models import Run
from tests.training.stack import Stack, wait_until

pytestmark = pytest.mark.stack


def test_a_launched_run_trains_in_a_child_process_and_finishes(
    stack: Stack, drill: Callable[..., Run]
) -> None:
    run = drill(steps=20, step_seconds=0.02)
    try:
        wait_until(lambda: Run.objects.get(pk=run.pk).state == "finished", seconds=20)
    except AssertionError:
        print(stack.log())
        raise
