"""What would mend a node that does not let its agent do its work."""

from __future__ import annotations

import re

WRAPPER = "/usr/local/sbin/orch-agent"
RIGHTS = (
    f"set `sudo: {WRAPPER}` in the inventory (orch-agent, which `orch init cluster` writes, says how to install it), or"
    " `sudo: true` if the user may run python with sudo and without a password"
)

ROOT = "set `sudo: true` in the inventory and let the user run python with sudo and without a password"
_REMEDIES = (
    (
        r"must have a tty",
        f"let sudo work without a terminal: `Defaults!{WRAPPER} !requiretty`, or `Defaults:USER !requiretty`",
    ),
    (
        r"(?m)^sudo: (?P<program>\S+): command not found",
        "install {program} on the node: as a wrapper, orch-agent says how (`orch init cluster` writes it); as `python`,"
        " 3.8 or later",
    ),
    (r"sudo: (command )?not found", "install sudo on the node, or set `sudo: false`"),
    (
        r"a password is required|not allowed to execute|may not run|not in the sudoers",
        "let the user run it with sudo and without a password (sudoers-orch, which `orch init cluster` writes, is a"
        f" rule for the wrapper, `sudo: {WRAPPER}`), or set `sudo: false`",
    ),
    (r"setpriv: not found", "install util-linux 2.34 or later on the node: orch-agent needs its setpriv"),
    (
        # Python 3.6 and 2.7, at the first that they do not know; then no Python at all.
        r"is too old: the agent needs 3\.8|has no attribute 'buffer'|unknown option: -I|not found|no such file",
        "install Python 3.8 or later on the node, or set `python` to its path",
    ),
)


def remedy(said: str) -> str | None:
    """What would mend an agent that did not start, from what the far end printed; None where that tells nothing."""
    for pattern, text in _REMEDIES:
        if match := re.search(pattern, said, re.IGNORECASE):
            return text.format_map(match.groupdict())
    return None
