"""Gates `processor` and `own-processors`: the network, and not processors, set the times of a window.

What is judged is the time for which a job's processes were kept from a processor by work that is not the run's, as a
share of the window: what their threads waited in run queues, times the part of the processors' work that was others' or
stolen by the hypervisor, plus what was stolen from them while they ran. In every second the process that was kept
longest counts, since the ranks of a job wait for each other. Senders of cross traffic are judged alike, each by itself,
since what they send late comes in bursts. `analysis/windows/processors.py` has the arithmetic.

What this does in cases that one may think of:

- Other work on one processor of several, also pinned there: the ranks that are queued behind it wait, and it is told by
  what that processor did, however many others are busy with the run.
- Other work at a lower priority (nice 19): the ranks hardly wait for it, and so little is told.
- Emulated compute, which sleeps: being late for the end of a layer because no processor is free is waiting, and counts.
- A limit of a control group (cpu.max), inside which nobody else works: the time for which it stopped the run's
  processes is judged by itself, against the same limit.
- A busy hypervisor: stolen time counts, as others' work.
- Many ranks with little work on few processors, or real compute on more ranks than processors: they wait for each
  other. Such times are set by processors too, yet the ranks of a quickstart on two processors wait for each other half
  of the time without harm, and ranks that poll (Open MPI) use whatever is there. So the run's own work is noted where
  it fills the processors, and does not make a window invalid.
- Work that slows others without a queue, by filling the memory's bandwidth, a shared cache, or the other thread of a
  core, and processors that clock down: not seen. The ranks' processor time an iteration (table `tasks`) grows then, and
  only a comparison with another window shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from orchestrator.core.fields import Share
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow, ProcessorUse, ProcessorWait

NAME = "processor"
ORDER = 160
FULL = 0.95  # share of the processors' time that the run itself uses, above which they set its times
MOST_KEPT = Limit(
    key="processor",
    kind=Share | Literal["ignore"],
    default=0.05,
    help='Largest share of a window for which other work may keep a job from processors; "ignore" only notes it.',
)
GATES = (
    GateSpec(
        name="processor",
        passes="other work, control groups and the hypervisor did not keep ranks and senders from processors",
        limit=MOST_KEPT,
        remedy="End that work, or measure at another time. The report shows on which host it was.",
    ),
    GateSpec(
        name="own-processors",
        passes="the run did not fill the processors by itself",
        limit="95 % of the processors' time",
        required=False,
        remedy="Use fewer ranks, or emulated compute.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each job and each source of cross traffic, then those for the processors of each kernel."""
    most = MOST_KEPT.number(window.manifest.validity)
    for one in window.processor_waits:
        yield _kept(one, most)
    for shared in window.processor_use:
        if shared.throttled > 0:
            yield _throttled(shared, most)
        if not math.isnan(shared.used):
            yield _full(shared)


def _kept(one: ProcessorWait, most: float | None) -> Gate:
    who = f"cross traffic {one.job}" if one.traffic else f"job {one.job}"
    if math.isnan(one.kept):
        text = f"{who}: {one.node} did not report how long it waited for processors, or for whose work"
        return verdict("processor", None, text, measured=math.nan, limit=most, required=False)
    text = f"{who}: for {one.kept:.1%} of the window its threads waited for processors because of other work"
    where = "" if one.processor is None else f", processor {one.processor},"
    text += f" ({one.process} on {one.node}{where} longest; of the work there {one.others:.0%} was not this run's,"
    text += f" {one.stolen:.0%} was stolen)"
    return _limited(text, one.kept, most)


def _throttled(shared: ProcessorUse, most: float | None) -> Gate:
    text = f"{shared.nodes[0]}: a limit of its control group (cpu.max) stopped the run for {shared.throttled:.1%}"
    return _limited(f"{text} of the window", shared.throttled, most)


def _limited(text: str, share: float, most: float | None) -> Gate:
    if most is None:
        return verdict("processor", True, f"{text}; ignored", measured=share, limit=None, required=False)
    if share > most:
        text += f", above {most:.3g} of it: the times are not the network's alone; measure on processors that are"
        text += " free, or take them as they are with validity: {processor: ignore}"
    return verdict("processor", share <= most, text, measured=share, limit=most)


def _full(shared: ProcessorUse) -> Gate:
    text = f"{_some(shared.nodes)}: the run itself used {shared.used:.0%} of the processors' time"
    if not math.isnan(shared.pressure):
        text += f"; for {shared.pressure:.0%} of the window some process waited"
    free = shared.used <= FULL
    text += "" if free else f"; above {FULL:.0%} they set its times too: fewer ranks, or emulated compute"
    return verdict("own-processors", free, text, measured=shared.used, limit=FULL, required=False)


def _some(nodes: tuple[str, ...]) -> str:
    return ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
