"""A real browser without a screen, for tests and benchmarks of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAM = "chromium-headless-shell"


def is_here() -> bool:
    """Whether the browser is installed."""
    return shutil.which(PROGRAM) is not None


@contextmanager
def browser() -> Iterator[Browser]:
    """The system's Chromium; in a container of root its own sandbox is not to be had, and pages here are ours."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=shutil.which(PROGRAM), args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()
