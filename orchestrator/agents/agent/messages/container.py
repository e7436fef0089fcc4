"""What an agent and the first process of a rank's container (`container_rank.py`) tell each other."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple, TypedDict


class Wanted(TypedDict):
    """The rank, with what it would inherit of the agent: processors, limits by number (soft, hard), nice, umask."""

    argv: List[str]
    env: Dict[str, str]
    affinity: List[int]
    limits: Dict[str, Tuple[int, int]]
    nice: int
    umask: int


class Began(TypedDict):
    """The namespaces of the container, and why the rank could not be started, if it could not."""

    net: str
    ipc: str
    error: Optional[str]


class RankEnded(TypedDict):
    """How the rank ended: a negative status is a signal's number."""

    status: int
    user_s: float
    system_s: float
    max_rss_kib: int
