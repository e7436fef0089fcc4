"""What holds for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.helpers import machine, order, skipping
from tests.helpers.skipping import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

# On a busy machine any example may take long; what takes long by itself shows in the durations. CI tries the same
# examples for the same code: what others would find by chance is not the fault of what was changed last.
settings.register_profile("orch", deadline=None, derandomize=skipping.in_ci())
settings.load_profile("orch")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if seed := os.environ.get("ORCH_TESTS_ORDER"):
        items[:] = order.shuffled(items, seed)
    if turn := os.environ.get("ORCH_TESTS_VARIANTS"):
        left = {one for one in items if one.get_closest_marker("variants") and not order.due(one.nodeid, turn)}
        config.hook.pytest_deselected(items=list(left))
        items[:] = [one for one in items if one not in left]
    items[:] = order.spread(items, lambda item: item.get_closest_marker("testbed") is not None)


@pytest.fixture
def strays() -> Iterator[None]:
    """The right to kill an agent and to sweep: a sweep ends what dead agents left, whichever test they were of."""
    with machine.held("strays"):
        yield
