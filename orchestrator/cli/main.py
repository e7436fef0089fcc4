"""The process of the `orch` command: Ctrl-C ends it without a traceback, from its first instruction to its last.

Nothing of ours is imported before the signal is taken: an import that is interrupted says so in a traceback, or takes
it for a module that is not there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

_INTERRUPTED = 130  # as `core.exitcodes` has it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `orch` command and return the exit code; without `argv` the process's own arguments are used."""
    if argv is not None:
        from orchestrator.cli import commandline

        return commandline.carried_out(argv)
    _end_at_once(_INTERRUPTED)  # nothing has been started or opened yet
    try:
        from orchestrator.cli import commandline

        commandline.prepare_process()
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = commandline.carried_out(None)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    _end_at_once(status)  # all is written and closed
    return status


def _end_at_once(status: int) -> None:
    """Let Ctrl-C end this process with this exit code, unless it is ignored, as behind `&` in a script."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(status))


if __name__ == "__main__":
    sys.exit(main())
