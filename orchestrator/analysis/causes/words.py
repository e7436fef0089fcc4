"""Write explanations for people: a verdict, why, what else, the parts, and the next step, in ten lines at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.analysis.causes.changes import Change
from orchestrator.analysis.causes.explanation import LEAST_SHARE, UNSEEN, Explanation, Finding, Part
from orchestrator.core.units import span_text

_SAYS: Mapping[str, str] = {
    "link-rate": "{place} is below its rate",
    "small-queue": "the queue of {place} is too small",
    "load": "other traffic: {place}",
    "job": "another job: {place}",
    "loss": "{place} are lost",
    "delay": "{place} are delayed",
    "receive-window": "a small receive window: {place}",
    "send-buffer": "a small send buffer: {place}",
    "slow-rank": "{place} computes longer than the others",
    "jittery-rank": "{place} varies in how long it computes",
    "stall": "{place} stalls now and then",
    "slow-step": "{place} is late with its step",
    "slow-disk": "{place} waits for its disk",
    "link-down": "{place} was down for a time",
    "collision": "large flows collide on {place}",
    "slow-reader": "a slow reader: {place}",
    "processor": "other work on the processors of {place}",
}
_NEXT: Mapping[str, str] = {
    "link-rate": "compare the host's speed, cable and port with its neighbours' (`ethtool`), or take it out of the job",
    "small-queue": "give the port a longer queue, mark packets (ECN) before it drops, or use a smaller scale",
    "load": "move this traffic to another host or another time, or give training a queue of its own",
    "job": "place the jobs on different hosts or rails, or shift one in time",
    "loss": "look for errors of the cable and of both ports (`orch query` on table `counters`), then for a policer",
    "delay": "look at the path of this host: a longer way, a middlebox, interrupt moderation",
    "receive-window": "raise the receiver's `net.ipv4.tcp_rmem`",
    "slow-reader": "find what keeps the receiving process from reading: its processors, or a thread that does too much",
    "send-buffer": "raise the sender's `net.ipv4.tcp_wmem`",
    "slow-rank": "compare clocks, temperatures and work of this host with the others' (`collect: [gpu, perf]`)",
    "jittery-rank": "look for work that comes and goes on this host (`collect: [perf]`), and for uneven batches",
    "stall": "look at what it does between passes: checkpoints, evaluation, loading data",
    "slow-step": "look at what this rank alone does after its gradients arrived",
    "slow-disk": "look at the disk that it writes checkpoints to or reads data from, or do so in the background",
    "link-down": "look into the logs of both ends for why it went down; `paths` tells when flows moved",
    "collision": "use more connections a pair, or another hash (`multipath: {seed: N}`); paths are in table `paths`",
    "processor": "end the other work, or measure on processors that are free; the gate `processor` has its share",
}
_NOTHING_NEXT = "compare with a run that was fast: `orch why RUN --against OTHER`"
_MOST = 3  # findings beside the first


def text(found: Explanation) -> list[str]:
    """Return the explanation in at most ten lines: job and time, verdict, why, also, parts, next."""
    return list(_lines(found))


def _lines(found: Explanation) -> Iterator[str]:
    one = len(found.iterations) == 1
    several = f"{len(found.iterations)} iterations"
    if len(found.iterations) < found.measured:
        several = f"the first {several} of {found.measured}"
    which = f"iteration {found.iterations[0]}" if one else several
    yield f"{found.window}, {found.job}: {which}, {span_text(found.mean_s)}{'' if one else ' on average'}"
    first, *others = found.findings or (None,)
    if first is None:
        least = max(found.noise, LEAST_SHARE)
        unseen = next((part.share for part in found.parts if part.name == UNSEEN), 0.0)
        if unseen > least:
            what_time = f"for {unseen:.0%} of the time the network is waited for and no cause is seen"
            yield f"verdict  nothing stands out: {what_time}"
        else:
            yield f"verdict  nothing stands out: no cause costs more than {least:.0%} of the time"
    else:
        yield f"verdict  {headline(first)}"
        yield f"why      {first.evidence[0]}"
        if more := "; ".join(first.evidence[1:]):
            yield f"why      {more}"
    for other in others[: _MOST - bool(found.undecided)]:
        yield f"also     {headline(other)}: {other.evidence[0]}"
    if found.undecided:
        left, right, tells = found.undecided
        yield f"unsure   {left} and {right} look alike here; what tells them apart: {tells}"
    yield f"parts    {parts(found.parts)}"
    if found.missing:
        yield f"missing  collect: [{', '.join(found.missing)}] names more causes"
    yield f"next     {_NOTHING_NEXT if first is None else _NEXT[first.cause]}"


def what(found: Finding) -> str:
    """Return what a finding says, and where."""
    return _SAYS.get(found.cause, f"{found.cause}: {{place}}").format(place=found.place)


def headline(found: Finding) -> str:
    """Return a finding in one line: what and where, and its share of the time with the interval."""
    said = what(found)
    interval = f", 95% interval {found.low:.0%} to {found.high:.0%}" if found.high > found.low else ""
    return f"{said}: {found.share:.0%} of the time{interval}"


def parts(found: Sequence[Part]) -> str:
    """Return the parts in one line, largest first, without those below half a per cent."""
    shown = sorted((part for part in found if part.share >= 0.005), key=lambda part: -part.share)
    return "; ".join(f"{part.name} {part.share:.0%}" for part in shown)


def change_text(found: Change) -> list[str]:
    """Return what changed from one run to another, in at most ten lines."""
    before, after = found.before, found.after
    bound = found.bound_s / before.mean_s
    lines = [f"{after.window}, {after.job}: {span_text(before.mean_s)} in {before.run}, {span_text(after.mean_s)} now"]
    if not found.changed:
        lines.append(f"verdict  nothing changed beyond {bound:.1%}, which is what iterations vary by")
    elif found.more_s < 0:
        lines.append(f"verdict  faster by {-found.more_s / before.mean_s:.0%} (nothing below {bound:.1%} can be told)")
    else:
        first = found.causes[0] if found.causes else None
        said = "no cause is seen" if first is None else what(first)
        lines.append(f"verdict  slower by {found.more_s / before.mean_s:.0%}: {said}")
        lines += [] if first is None else [f"why      {line}" for line in first.evidence]
        lines += [f"also     {headline(other)}" for other in found.causes[1:_MOST]]
    moved = [part for part in found.parts if abs(part.more_s) > found.bound_s / 2]
    told = "; ".join(
        f"{part.name} {'+' if part.more_s > 0 else '-'}{span_text(abs(part.more_s))}" for part in moved[:5]
    )
    lines.append(f"parts    {told or 'none moved'}")
    if found.changed and found.causes:
        lines.append(f"next     {_NEXT[found.causes[0].cause]}")
    return lines
