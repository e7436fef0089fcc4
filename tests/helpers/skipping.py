"""Where ORCH_TESTS=all is set, as in CI, a test that is skipped fails, unless no installation would let it run."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from importlib.util import find_spec
from typing import TypeVar

import pytest

# What a machine or a user is, which set-up cannot change.
_MACHINE = re.compile(r"\broot\b|ordinary user|\bkernel\b")
# What set-up installs or builds; these are the reasons that make a test red.
INSTALLATION = re.compile(
    r"not installed|Debian's package|[Nn]o [\w -]+ here|compiler|is built here|could not import|make frameworks"
)

# Without an import: that takes seconds in every process that collects tests.
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def in_ci() -> bool:
    """Whether nothing may be missing."""
    return os.environ.get("ORCH_TESTS") == "all"


def of_machine(reason: str) -> bool:
    """Whether it is the machine or the user that keeps a test from running, and nothing that could be installed."""
    return _MACHINE.search(reason) is not None


def _held(report: Report) -> Report:
    if not in_ci() or not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not of_machine(reason):
        report.outcome = "failed"
        report.longrepr = f"{reason} (ORCH_TESTS=all: nothing that could be installed may be missing)"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _held((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _held((yield))
