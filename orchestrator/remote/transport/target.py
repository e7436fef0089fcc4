"""Where a node answers, as an inventory says it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

HOST_KEY = "`ssh` in the inventory"


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """Where a node answers; what is None comes from the SSH configuration.

    `host` may be an alias of it. `config` is read instead of the user's and the system's file. `jump` is written as for
    `ssh -J`. `name` is the node's, for messages, and `source` where `host` is written.
    """

    name: str
    host: str
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    config: Path | None = None
    jump: str | None = None
    source: str = HOST_KEY

    def options(self) -> list[str]:
        """What is told to `ssh` before the host, as far as it decides which settings hold; a key decides nothing."""
        given = (("-F", self.config and self.config.expanduser()), ("-p", self.port), ("-J", self.jump))
        return [word for option, value in given if value is not None for word in (option, str(value))]

    def by_hand(self, *words: str) -> str:
        """The command that does the same by hand."""
        key = ["-i", str(self.key)] if self.key is not None else []
        host = f"{self.user}@{self.host}" if self.user else self.host
        return shlex.join(["ssh", *self.options(), *key, host, *words])
