"""What holds for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import machine
from tests.skipping import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

# On a busy machine any example may take long; what takes long by itself shows in the durations.
settings.register_profile("orch", deadline=None)
settings.load_profile("orch")


@pytest.fixture
def strays() -> Iterator[None]:
    """The right to kill an agent and to sweep: a sweep ends what dead agents left, whichever test they were of."""
    with machine.held("strays"):
        yield
