"""A window as gates see it, of which a test says what matters to it; all else is empty."""

from __future__ import annotations

from orchestrator.testing import MadeWindow
from tests.helpers import manifests


def window(*, manifest=None, validity=None, **given):
    """Such a window; `validity` are limits as a manifest records them."""
    return MadeWindow(manifest=manifest or manifests.made(validity=validity or {}), **given)


def judged(module, **given):
    """The verdicts of a module of gates on such a window."""
    return list(module.judge(window(**given)))
