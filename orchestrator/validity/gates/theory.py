"""Gates `shared-hosts` and `theory`: each rank sent what its algorithm must send, where that can be told."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import THEORY_TOLERANCE, MeasuredWindow

NAME = "theory"
ORDER = 30
GATES = (
    GateSpec(
        name="shared-hosts",
        passes="two jobs do not share two hosts, where their bytes cannot be told apart",
        limit="none",
        required=False,
        remedy="Place the jobs on other hosts if you need the bytes of each.",
    ),
    GateSpec(
        name="theory",
        passes="each rank sent what its algorithm must send",
        limit="2 %, and what may fall on either side of the window's ends",
        required=False,
        remedy="Look for other traffic between these hosts.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a remark for each pair of jobs on the same hosts, and a verdict for each job with a theory."""
    for one, other, hosts in window.manifest.shared_hosts:
        names = f"{', '.join(hosts[:-1])} and {hosts[-1]}"
        text = f"jobs {one} and {other} share hosts {names}: their bytes cannot be distinguished"
        yield verdict("shared-hosts", None, text, measured=math.nan, limit=None, required=False)
    for job in window.jobs:
        if math.isnan(job.sent_bytes) or not job.theory_bytes > 0:
            continue
        off, limit = job.sent_bytes / job.theory_bytes - 1, THEORY_TOLERANCE + job.edges
        text = f"job {job.name}: a rank sent {job.sent_bytes / 1e6:.5g} MB an iteration, {off:+.1%} of theory"
        text += "" if abs(off) <= limit else f": off by more than {limit:.3g} of it"
        yield verdict("theory", abs(off) <= limit, text, measured=off, limit=limit, required=False)
