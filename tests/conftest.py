"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

from tests.skipping import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

# On a busy machine any example may take long; what takes long by itself shows in the durations.
settings.register_profile("orch", deadline=None)
settings.load_profile("orch")
