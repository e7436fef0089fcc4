"""The exit codes of `orch`, which help and the documentation print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType


class Exit(IntEnum):
    """Exit code of a command."""

    OK = 0
    FAILED = 1
    MISTAKE = 2
    INCONCLUSIVE = 3
    WORSE = 4
    BROKEN = 5
    INTERRUPTED = 130


MEANINGS: Mapping[Exit, str] = MappingProxyType(
    {
        Exit.OK: "success: everything measured is valid; in a comparison, no point is worse",
        Exit.FAILED: "something failed, or is missing",
        Exit.MISTAKE: "a mistake in a file or an option; nothing was started",
        Exit.INCONCLUSIVE: "measured, but not valid; or a comparison or a verification that cannot tell",
        Exit.WORSE: "a point is slower than what it was compared with",
        Exit.BROKEN: "a claim does not hold on the testbed that was verified",
        Exit.INTERRUPTED: "interrupted (Ctrl-C, SIGTERM)",
    }
)

_BY_GRAVITY = (Exit.OK, Exit.INCONCLUSIVE, Exit.FAILED, Exit.INTERRUPTED)


def gravest(found: Iterable[int]) -> Exit:
    """Return the gravest exit code of several measurements: interrupted, failed, not valid, success."""
    return max((Exit(code) for code in found), key=_BY_GRAVITY.index, default=Exit.OK)
