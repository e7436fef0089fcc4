"""What TensorFlow's own tracing tells of the tensors that a step moved between a worker and its servers.

Hashemi et al. put these records of RecvTensor into TensorFlow. Each is made where a tensor arrives, by the clock there:
what the worker sent stands in the statistics of the servers' devices, so on hosts whose clocks differ a send is off by
that difference.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, NamedTuple

_MOVED = re.compile(
    r"edge_\d+_(?P<tensor>\S+) from /job:(?P<source>\w+)/\S*?task:(?P<from>\d+)/\S* to /job:\w+/\S*?task:(?P<to>\d+)/"
)


class Transfer(NamedTuple):
    """A tensor that was moved; instants in us since the epoch."""

    name: str  # send or receive, from the worker's side
    what: str
    size: int
    begin_us: int
    end_us: int


def transfers(step_stats: Any) -> Iterator[Transfer]:
    """Every tensor with content that a worker's step received or sent, in no order; `step_stats` is RunMetadata's."""
    for device in step_stats.dev_stats:
        for node in device.node_stats:
            moved = _MOVED.search(node.timeline_label) if node.node_name == "RecvTensor" else None
            size = sum(one.tensor_description.allocation_description.requested_bytes for one in node.output)
            if moved is None or not size:
                continue  # an edge that only says that something has ended
            received = moved["source"] == "ps"
            server = moved["from"] if received else moved["to"]
            yield Transfer(
                name="receive" if received else "send",
                what=f"{moved['tensor']}, server {server}",
                size=size,
                begin_us=node.all_start_micros,
                end_us=node.all_start_micros + node.all_end_rel_micros,
            )
