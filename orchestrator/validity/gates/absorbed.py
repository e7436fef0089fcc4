"""Gate `absorbed`: ranks had little to do beside their emulated layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from orchestrator.core.fields import Share
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "absorbed"
ORDER = 180
MOST = Limit(
    key="absorbed",
    kind=Share | Literal["ignore"],
    default=0.1,
    help="Largest share of its iterations in which a rank may do something else while its emulated layers are to "
    'compute; "ignore" only notes it.',
)
GATES = (
    GateSpec(
        name="absorbed",
        passes="ranks do little else while their emulated layers are to compute, such as copying gradients",
        limit=MOST,
        required=False,
        remedy="Emulated layers end on time whatever the rank does meanwhile, as on an accelerator that was given its "
        "work in advance. Where the processor has more to do than that hides, real iterations are longer: take fewer "
        "ranks a processor, a larger `scale` or larger buckets, or `compute: real`.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a remark for each job with emulated compute whose ranks told how much of its time they were busy."""
    limit = MOST.number(window.manifest.validity)
    for row in window.training:
        if row.absorbed is None:
            continue
        few = limit is None or row.absorbed <= limit
        text = f"job {row.job}: for {row.absorbed:.1%} of an iteration a rank did something else while its layers were"
        text += " to compute, which made these no longer"
        text += "" if few else f": more than {limit:.3g} of it"
        yield verdict("absorbed", few, text, measured=row.absorbed, limit=limit, required=False)
