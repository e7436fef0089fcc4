"""What holds for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.machine import exclusively
from tests.skipping import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

# On a busy machine any example may take long; what takes long by itself shows in the durations.
settings.register_profile("orch", deadline=None)
settings.load_profile("orch")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep on one process what takes turns anyway, and modules whose fixtures would be made again on each process."""
    for item in items:
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))


def _group(item: pytest.Item) -> str | None:
    fixtures = item._fixtureinfo.name2fixturedefs
    if "strays" in fixtures:
        return "strays"
    return item.location[0] if any(made[-1].scope == "module" for made in fixtures.values()) else None


@pytest.fixture
def strays() -> Iterator[None]:
    """The right to kill an agent and to sweep: a sweep ends what dead agents left, whichever test they were of."""
    with exclusively("strays"):
        yield
