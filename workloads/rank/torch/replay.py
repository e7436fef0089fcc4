"""Run a rank of a recorded training: it sends what the recording sent, and sleeps where that computed.

What a rank does in an iteration is a graph. A computation begins as long after what it waits for as it did when it was
recorded, and takes as long; those of one lane follow one another. Instants are counted from one to the next, so that no
delay of this program adds up. A communication begins likewise and takes the time that it takes: a thread waits for its
end. Those of a process group begin in the order in which they were recorded, which is the same on all its ranks.
"""

from __future__ import annotations

import heapq
import queue
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple, TypedDict

from ..lifecycle import Step
from .exchange import begun
from .program import Join, Rank, TorchSettings, run

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

_PASSES = ("forward", "backward", "step")  # computations of these names are columns of the log


class Activity(TypedDict, total=False):
    """Something that a rank does; the first four are told of each one, the others of what they mean something for."""

    kind: str  # compute, an operation, send or receive
    name: str  # of its span
    after: List[int]  # places of those that it waits for, in its iteration
    lag_s: float  # how long it begins after the last of them has ended
    what: str
    seconds: float  # of a computation
    lane: int  # of a computation
    behind: int  # place of the communication that has to begin before it
    group: int  # place among the groups; -1 is that of all ranks
    elements: int  # floats of its message, of its share, or of each part of what is exchanged
    parts: List[int]  # floats that an all-to-all gets from each rank of its group
    size: int  # of the message, in bytes, as it was recorded and scaled
    peer: int
    root: int
    tag: int


class ReplaySettings(TorchSettings):
    """The process groups of all ranks, and what this one does in each iteration; behind the last the first comes."""

    groups: List[List[int]]
    buffered: bool  # whether what waits for a send goes on once it has begun
    iterations: List[List[Activity]]


class Messages:
    """Begins communications, with tensors that are used again once they are free."""

    def __init__(self, rank: Rank[ReplaySettings], groups: List[dist.ProcessGroup]) -> None:
        self._rank = rank
        self._groups = groups
        self._members = [*rank.config["groups"], list(range(rank.world))]  # place -1 is the last
        self._free: Dict[int, List[torch.Tensor]] = defaultdict(list)

    def begin(self, one: Activity) -> Tuple[Any, List[torch.Tensor]]:
        """Begin a communication; return its handle and its tensors, which go back by `end`."""
        import torch.distributed as dist

        group = self._groups[one["group"]] if one["group"] >= 0 else None
        root = one.get("root", 0)
        how: Dict[str, Any] = {"group": group, "async_op": True}
        begin: Dict[str, Callable[..., Any]] = {
            "all-reduce": lambda message: dist.all_reduce(message, **how),
            "broadcast": lambda message: dist.broadcast(message, root, **how),
            "reduce": lambda message: dist.reduce(message, root, **how),
            "gather": lambda share, *parts: dist.gather(share, list(parts) or None, root, **how),
            "scatter": lambda share, *parts: dist.scatter(share, list(parts) or None, root, **how),
            "all-gather": lambda share, whole: dist.all_gather_into_tensor(whole, share, **how),
            "reduce-scatter": lambda share, whole: dist.reduce_scatter_tensor(share, whole, **how),
            "all-to-all": lambda sent, got: dist.all_to_all_single(got, sent, one["parts"], **how),
            "barrier": lambda: dist.barrier(**how),
            "send": lambda message: dist.isend(message, one["peer"], group=group, tag=one["tag"]),
            "receive": lambda message: dist.irecv(message, one["peer"], group=group, tag=one["tag"]),
        }
        tensors = [self._take(count) for count in self._counts(one)]
        return begin[one["kind"]](*tensors), tensors

    def _counts(self, one: Activity) -> List[int]:
        """Return the floats of each tensor of a communication."""
        kind, count, ranks = one["kind"], one.get("elements", 0), len(self._members[one["group"]])
        if kind == "barrier":
            return []
        if kind in ("gather", "scatter"):
            return [count] * (1 + (ranks if one["root"] == self._rank.number else 0))
        if kind in ("all-gather", "reduce-scatter"):
            return [count, count * ranks]
        return [count * ranks, sum(one["parts"])] if kind == "all-to-all" else [count]

    def end(self, tensors: List[torch.Tensor]) -> None:
        """Take back the tensors of a communication that has ended."""
        for one in tensors:
            self._free[one.numel()].append(one)

    def _take(self, count: int) -> torch.Tensor:
        import torch

        return self._free[count].pop() if self._free[count] else torch.zeros(count, device=self._rank.device)


class Computed(NamedTuple):
    """A computation that was carried out, and its instants by the monotonic clock in ns."""

    place: int
    begin_ns: int
    end_ns: int


class Course:
    """What of an iteration's activities is due when: instants of the monotonic clock in ns."""

    def __init__(self, activities: List[Activity], *, begin_ns: int, ended_ns: int, buffered: bool) -> None:
        """Begin at `begin_ns`; what waits for nothing waits for the iteration before, which ended at `ended_ns`."""
        self._activities = activities
        self._begin_ns = begin_ns
        self._buffered = buffered
        self._missing = [len(one["after"]) + ("behind" in one) for one in activities]
        self._ready_ns = [ended_ns] * len(activities)  # when the last of those ended that an activity waits for
        self._waiting: Dict[int, List[int]] = defaultdict(list)
        self._behind: Dict[int, List[int]] = defaultdict(list)
        self._due: List[Tuple[int, int]] = []
        self._computing: List[Tuple[int, int]] = []
        self._free_ns: Dict[int, int] = defaultdict(int)  # by lane
        self.left = len(activities)
        self.computed: List[Computed] = []
        for place, one in enumerate(activities):
            for before in one["after"]:
                self._waiting[before].append(place)
            if "behind" in one:
                self._behind[one["behind"]].append(place)
            if not self._missing[place]:
                self._schedule(place)

    @property
    def next_ns(self) -> Optional[int]:
        """The next instant at which something is due or a computation ends; None where a message has to end first."""
        return min((heap[0][0] for heap in (self._due, self._computing) if heap), default=None)

    def due(self, now_ns: int) -> Optional[int]:
        """Return the place of a communication that is due, once; None where there is none. Computations go on."""
        while True:
            at_ns = self.next_ns
            if at_ns is None or at_ns > now_ns:
                return None
            if self._computing and self._computing[0][0] == at_ns:
                end_ns, place = heapq.heappop(self._computing)
                self.ended(place, end_ns)
                continue
            _, place = heapq.heappop(self._due)
            kind = self._activities[place]["kind"]
            if kind != "compute":
                self._release(self._behind[place])
                if self._buffered and kind == "send":
                    self._pass_on(place, now_ns)
                return place
            self._compute(place, at_ns)

    def _compute(self, place: int, at_ns: int) -> None:
        one = self._activities[place]
        begin_ns = max(at_ns, self._free_ns[one["lane"]])
        end_ns = begin_ns + round(one["seconds"] * 1e9)
        self._free_ns[one["lane"]] = end_ns
        heapq.heappush(self._computing, (end_ns, place))
        if end_ns > begin_ns:
            self.computed.append(Computed(place, begin_ns, end_ns))

    def ended(self, place: int, at_ns: int) -> None:
        """Take note that an activity has ended."""
        self.left -= 1
        self._pass_on(place, at_ns)

    def _pass_on(self, place: int, at_ns: int) -> None:
        followers = self._waiting.pop(place, [])
        for follower in followers:
            self._ready_ns[follower] = max(self._ready_ns[follower], at_ns)
        self._release(followers)

    def _release(self, followers: List[int]) -> None:
        for place in followers:
            self._missing[place] -= 1
            if not self._missing[place]:
                self._schedule(place)

    def _schedule(self, place: int) -> None:
        at_ns = self._ready_ns[place] + round(self._activities[place]["lag_s"] * 1e9)
        heapq.heappush(self._due, (max(self._begin_ns, at_ns), place))


class Player:
    """Carries out what a rank does in an iteration."""

    def __init__(self, rank: Rank[ReplaySettings], messages: Messages) -> None:
        from ..compute.training import sharpen_timer

        self._rank = rank
        self._messages = messages
        self._iterations = rank.config["iterations"]
        most = max(sum(one["kind"] != "compute" for one in activities) for activities in self._iterations)
        # A thread for each one that can be under way, so that none waits behind one that waits for it.
        self._waiting = ThreadPoolExecutor(max(1, most), thread_name_prefix="waiting")
        self._done: queue.SimpleQueue[Tuple[int, int, Optional[RuntimeError]]] = queue.SimpleQueue()
        self._ended_ns = 0  # the last iteration
        sharpen_timer()

    def play(self, iteration: int) -> Dict[str, float]:
        """Carry out an iteration; return the times that are logged of it, in seconds."""
        activities = self._iterations[iteration % len(self._iterations)]
        begin_ns = time.monotonic_ns()
        course = Course(
            activities, begin_ns=begin_ns, ended_ns=self._ended_ns or begin_ns, buffered=self._rank.config["buffered"]
        )
        under_way: Dict[int, Tuple[int, List[torch.Tensor]]] = {}
        while course.left:
            while (due := course.due(time.monotonic_ns())) is not None:
                started_ns = time.monotonic_ns()
                work, tensors = self._messages.begin(activities[due])
                under_way[due] = started_ns, tensors
                self._waiting.submit(self._wait, due, begun(work))
            if not course.left:
                break
            ended = self._next(course.next_ns)
            if ended is not None:
                place, at_ns, error = ended
                if error is not None:
                    raise error
                started_ns, tensors = under_way.pop(place)
                self._messages.end(tensors)
                self._communicated(activities[place], started_ns, at_ns)
                course.ended(place, at_ns)
        self._ended_ns = time.monotonic_ns()
        return self._times(activities, course.computed, spent_ns=self._ended_ns - begin_ns)

    def _next(self, until_ns: Optional[int]) -> Optional[Tuple[int, int, Optional[RuntimeError]]]:
        """Return the communication that ends next, when, and why it failed; None where none ends before an instant."""
        try:
            if until_ns is None:
                return self._done.get()
            left_ns = until_ns - time.monotonic_ns()
            return self._done.get(timeout=left_ns * 1e-9) if left_ns > 0 else self._done.get_nowait()
        except queue.Empty:
            return None

    def _wait(self, place: int, work: dist.Work) -> None:
        import torch

        error = None
        try:
            if self._rank.device.type == "cuda":  # where `wait` holds up a stream, not this thread
                with torch.cuda.stream(torch.cuda.Stream(self._rank.device)):
                    work.wait()
                    torch.cuda.current_stream().synchronize()
            else:
                work.wait()
        except RuntimeError as failed:
            error = failed
        self._done.put((place, time.monotonic_ns(), error))

    def _communicated(self, one: Activity, begin_ns: int, end_ns: int) -> None:
        group = self._rank.config["groups"][one["group"]] if one["group"] >= 0 else []
        self._rank.trace.add(
            "communication",
            one["name"],
            begin_ns=begin_ns,
            end_ns=end_ns,
            what=one["what"],
            peer=one.get("peer", -1),
            size=one["size"],
            group=group if len(group) < self._rank.world else [],
        )

    def _times(self, activities: List[Activity], computed: List[Computed], *, spent_ns: int) -> Dict[str, float]:
        """Record what was computed; return the time of passes that have such a name, and that without computing."""
        passes: Dict[str, int] = defaultdict(int)
        busy_ns = until_ns = 0
        for place, begin_ns, end_ns in sorted(computed, key=lambda one: one.begin_ns):
            one = activities[place]
            self._rank.trace.computed(one["name"], begin_ns, end_ns, what=one["what"])
            passes[one["name"]] += end_ns - begin_ns
            busy_ns += max(0, end_ns - max(begin_ns, until_ns))
            until_ns = max(until_ns, end_ns)
        told = {f"{name}_s": round(passes[name] * 1e-9, 9) for name in _PASSES if name in passes}
        return {**told, "wait_s": round(max(0, spent_ns - busy_ns) * 1e-9, 9)}


def build(rank: Rank[ReplaySettings]) -> Join:
    return lambda: prepare(rank)


def prepare(rank: Rank[ReplaySettings]) -> Step:
    """Make the process groups, all of which all ranks make in the same order, and return the step of an iteration."""
    import torch.distributed as dist

    groups = [dist.new_group(members) for members in rank.config["groups"]]
    return Player(rank, Messages(rank, groups)).play


def main() -> None:
    import warnings

    # torch renames these functions while the versions in use have only the old names.
    warnings.filterwarnings("ignore", category=FutureWarning)
    run(build)
