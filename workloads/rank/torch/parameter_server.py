"""Train with parameter servers whose workers pull in an order of choice while their next forward pass begins.

Gradients are pushed as they come in the backward pass. What a worker pulls is the sum, from which it updates a layer
right before that layer computes: so the order decides how long the forward pass waits (Hashemi et al., TicTac).

For TIC and TAC the first worker takes down which buckets its modules wait for, one after the other as PyTorch computes
them, how long each computes and how long each bucket is pulled. All pull in random orders meanwhile, as without
scheduling. Of each time the least over the passes counts, as in TicTac. Then it tells all ranks the order.

Where the model is run as a graph, each worker computes the first layer in order whose inputs and parameters are there,
and waits for the next bucket where there is none; TIC and TAC are given that graph.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..compute import training
from ..lifecycle import Step
from .exchange import Bucket, P2pSettings, exchange_rounds, pulling, split_into_buckets
from .program import Rank, gradient_of
from .transfer_order import Op, chain, tac, tic

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from ..compute.computing import Compute

TRACED = 6  # iterations before TIC and TAC set the order; in the first one nothing is pulled yet
_COMPUTED = ("tic", "tac")
_PUSH, _PULL = slice(0, 1), slice(1, 2)  # rounds of a bucket


class FirstPasses:
    """Buckets and times of a worker's forward passes; of each time the least over passes."""

    def __init__(self, *, wanted: bool, after: list[list[int]] | None) -> None:
        """Record if `wanted`; `after` is the graph of layers, None where they compute one after the other."""
        self._wanted = wanted
        self._after = after
        self._needs: list[frozenset[int]] = []
        self._seconds: list[float] = []
        self._place = 0
        self._computing: int | None = None
        self._since_ns = 0
        self._pull_s: dict[int, float] = {}

    def begin(self) -> None:
        """Begin a pass."""
        self._place = 0
        self._computing = None

    def graph(self, needs: list[frozenset[int]]) -> None:
        """Take the buckets that each layer of the graph needs."""
        self._needs = needs
        self._seconds = [float("inf")] * len(needs)

    def reach_layer(self, place: int) -> None:
        """Note that the pass is about to compute this layer of the graph."""
        if self._wanted:
            self._computing = place
            self.compute()

    def reach(self, numbers: Iterable[int]) -> None:
        """Note that the pass is about to compute with the buckets of these numbers, and may wait for them."""
        if not self._wanted:
            return
        self.stop()
        needs = frozenset(numbers)
        if self._place < len(self._needs) and self._needs[self._place] != needs:
            # A pass that computes something else than the ones before: what was known from here on is of no use.
            del self._needs[self._place :], self._seconds[self._place :]
        if self._place == len(self._needs):
            self._needs.append(needs)
            self._seconds.append(float("inf"))
        self._computing = self._place
        self._place += 1

    def compute(self) -> None:
        """Note the end of waiting."""
        self._since_ns = time.monotonic_ns()

    def stop(self) -> None:
        """Note that what computes has ended."""
        if self._wanted and self._computing is not None:
            took = (time.monotonic_ns() - self._since_ns) * 1e-9
            self._seconds[self._computing] = min(self._seconds[self._computing], took)
            self._computing = None

    def pulled(self, number: int, seconds: float) -> None:
        """Note the time of a pulled bucket; called by the thread that pulls."""
        if self._wanted:
            self._pull_s[number] = min(seconds, self._pull_s.get(number, seconds))

    def order(self, kind: str) -> list[int]:
        """Return the numbers of the buckets in the order of `tic` or `tac`, and stop recording."""
        self._wanted = False
        graph = (
            chain(zip(self._needs, self._seconds, strict=True))
            if self._after is None
            else [
                Op(after=tuple(after), transfers=needs, seconds=seconds)
                for after, needs, seconds in zip(self._after, self._needs, self._seconds, strict=True)
            ]
        )
        return tic(graph) if kind == "tic" else tac(graph, self._pull_s)


class PullOrder:
    """The order of each iteration's pulls, the same on all ranks."""

    def __init__(self, buckets: list[Bucket], rank: Rank[P2pSettings]) -> None:
        self._buckets = buckets
        self._rank = rank
        self._kind = rank.config["order"] or "ready"
        self._first_worker = rank.config["servers"]
        self._numbers: list[int] | None = None
        wanted = self._kind in _COMPUTED and rank.number == self._first_worker
        self.passes = FirstPasses(wanted=wanted, after=rank.config["after"])

    @property
    def at_once(self) -> bool:
        """True if each bucket is pulled as soon as it was pushed, False if in an order after all were."""
        return self._kind == "ready"

    def of(self, iteration: int) -> list[Bucket]:
        """Return all buckets in the order in which they are pulled after this iteration's pushes; all ranks call it."""
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
        """Return the first worker's order on every rank; RuntimeError when a peer is gone."""
        import torch
        import torch.distributed as dist

        mine = self._rank.number == self._first_worker
        numbers = self.passes.order(self._kind) if mine else [0] * len(self._buckets)
        agreed = torch.tensor(numbers, dtype=torch.int64)
        dist.broadcast(agreed, src=self._first_worker)
        return [int(number) for number in agreed]


class Transfers:
    """A thread that carries out the rounds of buckets in turn; waiting for a bucket raises its failure."""

    def __init__(
        self,
        name: str,
        buckets: list[Bucket],
        half: slice,
        rank: Rank[P2pSettings],
        *,
        carried: Callable[[int, float], None] = lambda _number, _seconds: None,
    ) -> None:
        """Start the thread; `carried` is called with each bucket's number and time."""
        self._carried = carried
        self._todo: queue.SimpleQueue[Bucket] = queue.SimpleQueue()
        self._done: list[queue.SimpleQueue[Exception | None]] = [queue.SimpleQueue() for _ in buckets]
        self._half = half
        self._rank = rank
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def begin(self, bucket: Bucket) -> None:
        self._todo.put(bucket)

    def has_ended(self, bucket: Bucket) -> bool:
        """Return whether the bucket was transferred, and `wait` would return at once."""
        return not self._done[bucket.number].empty()

    def wait(self, bucket: Bucket) -> None:
        """Wait until the bucket was transferred; RuntimeError when a peer is gone."""
        error = self._done[bucket.number].get()
        if error is not None:
            raise error

    def _serve(self) -> None:
        while True:
            bucket = self._todo.get()
            begin_ns = time.monotonic_ns()
            try:
                exchange_rounds(bucket, bucket.rounds[self._half], self._rank)
            except RuntimeError as error:
                for done in self._done:
                    done.put(error)
                return
            self._carried(bucket.number, (time.monotonic_ns() - begin_ns) * 1e-9)
            self._done[bucket.number].put(None)


class Server:
    """Adds up gradients that workers push, and returns the sums in order."""

    def __init__(self, work: Compute, rank: Rank[P2pSettings]) -> None:
        self._rank = rank
        self._module = work.module
        self._buckets = split_into_buckets(work.module, rank)
        self._order = PullOrder(self._buckets, rank)
        self._pulls = Transfers("pulls", self._buckets, _PULL, rank)
        self._update = _updates(self._buckets, rank)

    def step(self, iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        for bucket in self._buckets:
            bucket.flat.zero_()
            exchange_rounds(bucket, bucket.rounds[_PUSH], self._rank)
            if self._order.at_once:
                self._pulls.begin(bucket)
        if not self._order.at_once:
            for bucket in self._order.of(iteration):
                self._pulls.begin(bucket)
        for bucket in self._buckets:
            self._pulls.wait(bucket)
            self._update(bucket)
        return {
            "forward_s": 0.0,
            "backward_s": 0.0,
            "wait_s": round((time.monotonic_ns() - begin_ns) * 1e-9, 9),
            "loss": 0.0,
            "samples": 0,
            **self._rank.checksum_of(self._module),
        }


class Worker:
    """Pushes gradients as they come, and holds each layer of the next forward pass until it was updated."""

    def __init__(self, work: Compute, rank: Rank[P2pSettings]) -> None:
        self._work, self._rank = work, rank
        self._buckets = split_into_buckets(work.module, rank)
        self._pushes = Transfers("pushes", self._buckets, _PUSH, rank)
        self._order = PullOrder(self._buckets, rank)
        self._passes = self._order.passes
        self._pulls = Transfers("pulls", self._buckets, _PULL, rank, carried=self._passes.pulled)
        self._update = _updates(self._buckets, rank)
        self._complete: set[int] = set()
        self._next = 0
        self._stale: set[int] = set()  # buckets whose layers still have the weights of the iteration before
        self._coming: deque[Bucket] = deque()  # stale ones, in the order in which they are pulled
        self._needs: list[frozenset[int]] = []  # graph: numbers of the buckets of each layer
        self._waited_ns = 0
        self._computing_ns = 0
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda p, bucket=bucket: self._arrived(p, bucket))
        after = rank.config["after"]
        if after is None:
            self._hold_layers()
        else:
            self._run_graph(after)

    def _run_graph(self, after: list[list[int]]) -> None:
        """Make the forward pass compute whichever layer can."""
        from ..compute.emulated_torch import EmulatedModel

        model = self._work.module
        if not isinstance(model, EmulatedModel):
            raise TypeError("a real model's layers are computed in the order of its program")
        owner = {id(parameter): bucket.number for bucket in self._buckets for parameter in bucket.parameters}
        self._needs = [frozenset(owner[id(p)] for p in block.parameters()) for block in model.blocks]
        self._passes.graph(self._needs)
        model.by_graph(after, self._pick)

    def _pick(self, layers: Sequence[int]) -> int:
        """Return the first of these layers whose parameters are there; wait for the next bucket while there is none."""
        self._passes.stop()
        while self._coming and self._pulls.has_ended(self._coming[0]):
            self._wait([self._coming[0]])
        while True:
            for place in layers:
                if self._needs[place].isdisjoint(self._stale):
                    self._passes.reach_layer(place)
                    return place
            self._wait([self._coming[0]])

    def _hold_layers(self) -> None:
        """Make each module wait for its own parameters before it computes."""
        import torch

        owner = {id(parameter): bucket for bucket in self._buckets for parameter in bucket.parameters}
        for module in self._work.module.modules():
            # Nobody calls a list of parameters: its owner computes with them.
            lists = [child for child in module.children() if isinstance(child, torch.nn.ParameterList)]
            own = [p for part in (module, *lists) for p in part.parameters(recurse=False)]
            needed = list({owner[id(p)].number: owner[id(p)] for p in own}.values())
            if needed and not isinstance(module, torch.nn.ParameterList):
                module.register_forward_pre_hook(lambda _module, _inputs, needed=needed: self._need(needed))

    def _need(self, buckets: list[Bucket]) -> None:
        self._passes.reach(bucket.number for bucket in buckets)
        late = [bucket for bucket in buckets if bucket.number in self._stale]
        if late:
            self._wait(late)
        self._passes.compute()

    def _pull(self, bucket: Bucket) -> None:
        self._coming.append(bucket)
        self._pulls.begin(bucket)

    def _wait(self, late: list[Bucket]) -> None:
        begin_ns = time.monotonic_ns()
        self._rank.trace.computed("forward", self._computing_ns, begin_ns)
        for bucket in late:
            self._pulls.wait(bucket)
            self._update(bucket)
            self._stale.discard(bucket.number)
            self._coming.remove(bucket)
        self._computing_ns = time.monotonic_ns()
        self._waited_ns += self._computing_ns - begin_ns
        self._work.held((self._computing_ns - begin_ns) * 1e-9)

    def _arrived(self, parameter: torch.nn.Parameter, bucket: Bucket) -> None:
        bucket.view(parameter).copy_(gradient_of(parameter))
        bucket.missing -= 1
        if bucket.missing == 0:
            self._complete.add(bucket.number)
        while self._next in self._complete:
            self._pushes.begin(self._buckets[self._next])
            if self._order.at_once:
                self._pull(self._buckets[self._next])
            self._next += 1

    def step(self, iteration: int) -> dict[str, float]:
        config, trace = self._rank.config, self._rank.trace
        begin_ns = self._computing_ns = time.monotonic_ns()
        self._waited_ns, self._next = 0, 0
        self._complete.clear()
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)
        self._passes.begin()
        loss = self._work.loss(self._work.module)
        if not self._needs:
            self._need(self._buckets)  # also those of parameters that no module computed with
        self._passes.stop()
        forward_ns = time.monotonic_ns()
        loss.backward()
        value = loss.item()
        waited_s = self._work.waited_s()
        last_ns = time.monotonic_ns() - int(waited_s * 1e9)
        trace.computed("forward", self._computing_ns, forward_ns)
        trace.computed("backward", forward_ns, last_ns)
        for bucket in self._buckets:
            self._pushes.wait(bucket)
        end_ns = time.monotonic_ns()
        self._stale = {bucket.number for bucket in self._buckets}
        if not self._order.at_once:
            for bucket in self._order.of(iteration):
                self._pull(bucket)
        return {
            "forward_s": round((forward_ns - begin_ns - self._waited_ns) * 1e-9, 9),
            "backward_s": round((last_ns - forward_ns) * 1e-9, 9),
            "wait_s": round((self._waited_ns + end_ns - last_ns) * 1e-9, 9),
            "loss": value,
            "samples": config["batch"],
            **self._work.end_iteration(),
            **self._rank.checksum_of(self._work.module),
        }


def _updates(buckets: list[Bucket], rank: Rank[P2pSettings]) -> Callable[[Bucket], None]:
    """Return a function that updates a bucket's parameters from the sum that it holds, and resets their gradients."""
    workers = rank.world - rank.config["servers"]
    steps = [training.torch_optimizer(rank.config, bucket.parameters) for bucket in buckets]

    def update(bucket: Bucket) -> None:
        bucket.flat.div_(workers)
        for parameter in bucket.parameters:
            parameter.grad = bucket.view(parameter)
        steps[bucket.number].step()
        steps[bucket.number].zero_grad()

    return update


def prepare(work: Compute, rank: Rank[P2pSettings]) -> Step:
    """Return the step of a server or of a worker, whichever this rank is."""
    return (Server if rank.number < rank.config["servers"] else Worker)(work, rank).step
