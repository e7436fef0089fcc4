"""In which order workers of a parameter server pull: one that was chosen, or one computed of the first passes.

For TIC and TAC the first worker takes down which buckets its modules wait for, one after the other as PyTorch computes
them, how long each computes and how long each bucket is pulled. All pull in random orders meanwhile, as without
scheduling. Of each time the least over the passes counts, as in TicTac. Then it tells all ranks the order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..exchange import pulling
from .transfer_order import chain, tac, tic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..buckets import Bucket, Settings
    from ..context import Rank

TRACED = 6  # iterations before TIC and TAC set the order; in the first one nothing is pulled yet
_COMPUTED = ("tic", "tac")


class FirstPasses:
    """What a worker's forward passes wait for and how long they take; the least of each time over passes."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._needs: list[frozenset[int]] = []
        self._seconds: list[float] = []
        self._place = 0
        self._since_ns = 0
        self._pull_s: dict[int, float] = {}

    def begin(self) -> None:
        """A pass begins."""
        self._place = 0

    def reach(self, numbers: Iterable[int]) -> None:
        """The pass is about to compute with the buckets of these numbers; it may have to wait for them."""
        if not self._wanted:
            return
        self._stop()
        needs = frozenset(numbers)
        if self._place < len(self._needs) and self._needs[self._place] != needs:
            # A pass that computes something else than the ones before: what was known from here on is of no use.
            del self._needs[self._place :], self._seconds[self._place :]
        if self._place == len(self._needs):
            self._needs.append(needs)
            self._seconds.append(float("inf"))
        self._place += 1

    def compute(self) -> None:
        """It waits no more."""
        self._since_ns = time.monotonic_ns()

    def end(self) -> None:
        """The pass has ended."""
        if self._wanted:
            self._stop()

    def _stop(self) -> None:
        if self._place:
            took = (time.monotonic_ns() - self._since_ns) * 1e-9
            self._seconds[self._place - 1] = min(self._seconds[self._place - 1], took)

    def pulled(self, number: int, seconds: float) -> None:
        """A bucket was pulled; called by the thread that pulls."""
        if self._wanted:
            self._pull_s[number] = min(seconds, self._pull_s.get(number, seconds))

    def order(self, kind: str) -> list[int]:
        """The numbers of the buckets in the order of `tic` or `tac`; nothing is taken down from now on."""
        self._wanted = False
        graph = chain(zip(self._needs, self._seconds, strict=True))
        return tic(graph) if kind == "tic" else tac(graph, self._pull_s)


class PullOrder:
    """The order of each iteration's pulls, the same on all ranks."""

    def __init__(self, buckets: list[Bucket], rank: Rank[Settings]) -> None:
        self._buckets = buckets
        self._rank = rank
        self._kind = rank.config["order"] or "ready"
        self._first_worker = rank.config["servers"]
        self._numbers: list[int] | None = None
        self.passes = FirstPasses(wanted=self._kind in _COMPUTED and rank.number == self._first_worker)

    @property
    def at_once(self) -> bool:
        """Whether each bucket is pulled as soon as it was pushed, and not in an order once all of them were."""
        return self._kind == "ready"

    def of(self, iteration: int) -> list[Bucket]:
        """All buckets in the order in which they are pulled after this iteration's pushes; all ranks call it."""
        if self._kind not in _COMPUTED:
            return self._drawn(self._kind, iteration)
        if iteration + 1 < TRACED:
            return self._drawn("random", iteration)
        if self._numbers is None:
            self._numbers = self._agreed()
        return [self._buckets[number] for number in self._numbers]

    def _drawn(self, kind: str, iteration: int) -> list[Bucket]:
        seed = self._rank.config["seed"]
        return [self._buckets[n] for n in pulling(kind, buckets=len(self._buckets), iteration=iteration, seed=seed)]

    def _agreed(self) -> list[int]:
        """The order that the first worker computes, on every rank; RuntimeError when a peer is gone."""
        import torch
        import torch.distributed as dist

        mine = self._rank.number == self._first_worker
        numbers = self.passes.order(self._kind) if mine else [0] * len(self._buckets)
        agreed = torch.tensor(numbers, dtype=torch.int64)
        dist.broadcast(agreed, src=self._first_worker)
        return [int(number) for number in agreed]
