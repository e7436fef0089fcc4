"""A new agent of a run on a node where the run had one before, whose controller is gone or has lost it."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LockedError, OrchError
from orchestrator.remote.agent_client import AgentClient

ENDING_S = 15.0  # for an agent that has lost its controller to put everything down
AGAIN_S = 0.2


def come_back(
    reach: Callable[[], AgentClient],
    deadline: Deadline,
    *,
    patience_s: float = ENDING_S,
    waiting: Callable[[LockedError], None] = lambda _: None,
) -> AgentClient:
    """A client on a node where this run had an agent before, which may still be putting things down by itself.

    `reach` gives a fresh client each time it is called; `waiting` hears once that the agent before is still there.
    """
    patience = deadline.sooner(patience_s)
    last: LockedError | None = None
    while True:
        client = reach()
        try:
            client.hello(deadline)
        except LockedError as error:
            client.close(deadline)
            if patience.expired:
                raise
            if last is None:
                waiting(error)
            last = error
            time.sleep(AGAIN_S)
        except OrchError:
            client.close(deadline)
            raise
        else:
            return client
