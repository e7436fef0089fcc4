"""What all hosts of a training sent in a step, servers too, and in how many flows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.traffic import traffic
from orchestrator.analysis.traffic.traffic import TRAINING, Mask, Traffic

Floats = npt.NDArray[np.float64]
BIG_SHARE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Bytes of a step at full size, from host (row) to host (column): TCP payload sent once, and all of layer 2.

    `flows` counts 5-tuples (one a direction) of the training, `big` holds the shares of the payload of those that carry
    at least 99 % of it together, the biggest first.
    """

    hosts: tuple[str, ...]
    payload: Floats
    wire: Floats
    flows: int
    big: Floats

    @property
    def step_payload(self) -> float:
        """TCP payload of all hosts."""
        return float(self.payload.sum())

    def edge(self, src: str, dst: str, *, wire: bool = False) -> float:
        """What one host sent to another one; 0 where a host is not among them."""
        if src not in self.hosts or dst not in self.hosts:
            return 0.0
        return float((self.wire if wire else self.payload)[self.hosts.index(src), self.hosts.index(dst)])


def volume(found: Traffic, *, steps: float, scale: int, job: str | None = None) -> Volume:
    """The volume of a stretch of traffic in which a rank carried out `steps`; of one job, or of all training."""
    mine = of_job(found, job)
    payload = found.payload_bytes[mine].astype(np.float64)
    total = payload.sum()
    shares = np.sort(payload / total)[::-1] if total > 0 else np.zeros(0)
    count = int(np.searchsorted(np.cumsum(shares), BIG_SHARE - 1e-9)) + 1 if len(shares) else 0
    factor = scale / steps
    return Volume(
        hosts=found.hosts,
        payload=traffic.matrix(found, mine) * factor,
        wire=traffic.matrix(found, mine, payload=False) * factor,
        flows=int((mine & (found.wire_bytes > 0)).sum()),
        big=shares[:count],
    )


def of_job(found: Traffic, job: str | None = None) -> Mask:
    """A mask of the training's flows, of one job or of all."""
    mine = found.of(TRAINING)
    return mine if job is None else mine & (found.name == job)
