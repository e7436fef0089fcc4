"""Makes the traffic of a training in a ring with known iterations beside a steady flow, for tests of what reads it."""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.traffic.traffic import Traffic

MS = 1_000_000
BEGAN_NS = 1_795_000_000_000_000_000
ITERATION_MS = 100
SENDS_MS = 40
BYTES_A_MS = 20_000


def made(*, iterations: int = 40, order=("h1", "h4", "h3", "h2"), cross: int = 10_000, told: bool = True) -> Traffic:
    """Each host of `order` sends to the next one for 40 ms of each 100 ms; h1 sends `cross` bytes a ms to h5 all along.

    Every flow has one back with little in it, and two hosts say hello by SSH.
    """
    hosts = ("h1", "h2", "h3", "h4", "h5")
    at = np.arange(iterations * ITERATION_MS)
    burst = np.where(at % ITERATION_MS >= ITERATION_MS - SENDS_MS, BYTES_A_MS, 0)
    rows, bins = [], []

    def flow(  # noqa: PLR0917
        src, dst, ports, kind, name, values, payload
    ):
        used = np.flatnonzero(values)
        number = len(rows)
        bins.append((np.full(len(used), number), BEGAN_NS + used * MS, values[used], payload[used]))
        first, last = (
            (BEGAN_NS + int(used[0]) * MS, BEGAN_NS + int(used[-1]) * MS) if len(used) else (BEGAN_NS, BEGAN_NS)
        )
        rows.append(
            (hosts.index(src), hosts.index(dst), *ports, kind, name, int(values.sum()), int(payload.sum()), first, last)
        )

    for number, (src, dst) in enumerate(zip(order, order[1:] + order[:1], strict=True)):
        flow(src, dst, (40000 + number, 50000), "training", "train", burst * 1514 // 1448, burst)
        flow(dst, src, (50000, 40000 + number), "training", "train", (burst > 0) * 66, burst * 0)
    if cross:
        steady = np.full(len(at), cross)
        flow("h1", "h5", (45000, 15201), "cross", "iperf0", steady * 1514 // 1448, steady)
        flow("h5", "h1", (15201, 45000), "cross", "iperf0", steady * 0 + 66, steady * 0)
    hello = np.where(at == 3, 200, 0)
    flow("h2", "h1", (41000, 22), "control", "ssh", hello, hello)
    columns = list(zip(*rows, strict=True))
    flows, starts, wire, payload = (np.concatenate(column).astype(np.int64) for column in zip(*bins, strict=True))
    order_of_bins = np.argsort(starts, kind="stable")
    ints = [np.array(columns[k], np.int64) for k in (0, 1, 2, 3, 6, 7, 8, 9)]
    unknown = ["other"] * len(rows), [""] * len(rows)
    kind, name = (columns[4], columns[5]) if told else unknown
    return Traffic(
        hosts=hosts,
        src=ints[0],
        dst=ints[1],
        src_port=ints[2],
        dst_port=ints[3],
        kind=np.array(kind, object),
        name=np.array(name, object),
        packets=ints[4] // 1000 + 1,
        wire_bytes=ints[4],
        payload_bytes=ints[5],
        first_ns=ints[6],
        last_ns=ints[7],
        width_ns=MS,
        bin_flow=flows[order_of_bins],
        bin_ns=starts[order_of_bins],
        bin_wire=wire[order_of_bins],
        bin_payload=payload[order_of_bins],
        begin_ns=BEGAN_NS,
        end_ns=BEGAN_NS + len(at) * MS,
    )
