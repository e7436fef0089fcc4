"""A fabric of leaves and spines on this machine: what each link carries, and iteration time over oversubscription.

Sixteen hosts on four leaves and four spines, 25 Gbit/s at scale 100, 2:1. Each host of a leaf sends to two others,
whose links have room for it, and two send to each; then all send to those of the next leaf, in more flows than there
are uplinks. What a port sends is what its queueing discipline counts. The sweep of oversubscription is measured into
`results/bench-fabric`, and a later call does not repeat it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.parts.topology import Fabric
from orchestrator.testbed.local.local_spec import FabricSpec
from orchestrator.testbed.local.netns import NetnsTestbed
from tests.bench import local
from tests.bench.commands import ROOT, call, orch_argv
from tests.bench.figure import Figure, Settings, Table
from tests.helpers.netns_help import run_on

STORE = ROOT / "results" / "bench-fabric"
SWEEP = ROOT / "playbooks" / "sweeps" / "oversubscription.yaml"
SPEC = FabricSpec(leaves=4, spines=4, hosts=4, oversubscription=2)
RATE_BPS = 250e6
FLOWS = 16  # of each pair of hosts
RISE_S, COUNTED_S = 1.0, 4.0
WITHIN = 0.01  # of its rate

Port = tuple[str, str]  # node and device


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Return the rate of each kind of link beside what was asked, and iteration times over oversubscription."""
    found: dict[str, dict[str, float]] = {"hosts' links": {}, "uplinks": {}}
    with local.machine_to_ourselves():
        testbed = local.made(SPEC.leaves * SPEC.hosts, rate_bps=RATE_BPS, fabric=SPEC)
        with local.up(testbed, settings.scratch / "fabric"):
            fabric = testbed.topology.fabric
            assert fabric is not None
            for leaf in fabric.leaves[: settings.times(SPEC.leaves, 1)]:
                for kind, ports, pairs in _loads(testbed, fabric, leaf):
                    found[kind] |= _shares(testbed, ports, pairs)
    for kind, shares in found.items():
        off = max(abs(share - 1) for share in shares.values())
        yield Figure(
            what=f"{kind}: what each direction carries, of its rate",
            unit="of the rate",
            values=tuple(shares.values()),
            against="requested",
            reference=(1.0,),
            note=f"{len(shares)} directions, {off:.2%} off at most, goal {WITHIN:.0%}",
        )
    yield _curve(settings)


def _loads(
    testbed: NetnsTestbed, fabric: Fabric, leaf: str
) -> Iterator[tuple[str, dict[Port, float], list[tuple[str, str]]]]:
    """Yield what fills links of a leaf: the kind of link, ports with their rates, and who sends to whom."""
    links = [link for link in testbed.topology.links if link.switch == leaf]
    for place, link in enumerate(links):
        two = [links[(place + far) % len(links)].host for far in (1, 2)]
        yield "hosts' links", {(link.host, link.device): link.rate}, [(link.host, other) for other in two]
        yield "hosts' links", {(leaf, link.switch_port): link.rate}, [(other, link.host) for other in two]
    hosts = [link.host for link in links]
    after = fabric.leaves[(fabric.leaves.index(leaf) + 1) % len(fabric.leaves)]
    ports = {(leaf, one.leaf_port): one.rate for one in fabric.uplinks if one.leaf == leaf}
    ports |= {(one.spine, one.spine_port): one.rate for one in fabric.uplinks if one.leaf == after}
    others = [link.host for link in testbed.topology.links if link.switch == after]
    yield "uplinks", ports, list(zip(hosts, others, strict=True))


def _shares(testbed: NetnsTestbed, ports: dict[Port, float], pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Have hosts send to others, and return by port which share of its rate it carried meanwhile."""
    seconds = RISE_S + COUNTED_S + 3 * RISE_S
    deadline = Deadline.after(local.CALL_S)
    topology = testbed.topology
    for port, (src, dst) in enumerate(pairs, start=5201):
        address = topology.node(dst).address
        listens = f"until ss -Htln sport = :{port} | grep -q .; do sleep 0.05; done"
        run_on(testbed, dst, f"iperf3 -s -1 -D -p {port} -B {address}; {listens}")
        run_on(testbed, src, f"(iperf3 -c {address} -p {port} -P {FLOWS} -t {seconds:g} >/dev/null 2>&1 &)")
    time.sleep(RISE_S)
    devices: defaultdict[str, list[str]] = defaultdict(list)
    for node, device in ports:
        devices[node].append(device)

    def counted(node: str) -> dict[Port, float]:
        """Return the bit/s that each of these ports of a node sends."""
        look = " ".join(f"date +%s%N; tc -s -j qdisc show dev {device};" for device in devices[node])
        said = run_on(testbed, node, f"{look} sleep {COUNTED_S:g}; {look}").splitlines()
        instants = [int(line) for line in said if line.isdigit()]
        sent = [_sent(line) for line in said if line.startswith("[")]
        count = len(devices[node])
        return {
            (node, device): 8e9 * (sent[count + at] - sent[at]) / (instants[count + at] - instants[at])
            for at, device in enumerate(devices[node])
        }

    found = fanout.each(list(devices), counted, deadline=deadline, what="counting")
    for src, dst in pairs:
        run_on(testbed, src, "while pgrep -x iperf3 >/dev/null; do sleep 0.05; done")
        run_on(testbed, dst, "while pgrep -x iperf3 >/dev/null; do sleep 0.05; done")
    rates = {port: rate for one in found.values() for port, rate in one.items()}
    return {f"{node}:{device}": rates[node, device] / asked for (node, device), asked in ports.items()}


def _sent(line: str) -> int:
    """Return the bytes that the queueing discipline at the root has sent, as packets on the wire."""
    return int(next(one["bytes"] for one in json.loads(line) if one.get("root")))


def _curve(settings: Settings) -> Table:
    """Return iteration times over oversubscription; `--quick` measures few iterations of each."""
    store = settings.scratch / "results" if settings.quick else STORE
    less = ("--set", "measure.iterations=5") if settings.quick else ()
    store.mkdir(parents=True, exist_ok=True)
    call(orch_argv("sweep", str(SWEEP), "--wait", "5min", *less, "--results", str(store)), within_s=1800.0)
    asked = "select axis_values, valid, mean_s, p50_s, p99_s from windows where experiment = 'oversubscription'"
    said = call(orch_argv("query", asked, "--json", "--results", str(store))).stdout
    points: defaultdict[float, list[dict[str, float]]] = defaultdict(list)
    for line in said.splitlines():
        row = json.loads(line)
        axes = json.loads(row["axis_values"])
        points[float(axes["testbed.local.fabric.oversubscription"])].append(row)
    rows = [
        (
            f"{ratio:g}:1",
            f"{sum(bool(row['valid']) for row in found)} of {len(found)}",
            *(round(1e3 * statistics.fmean(row[name] for row in found), 1) for name in ("mean_s", "p50_s", "p99_s")),
            *(round(1e3 * pick(row["mean_s"] for row in found), 1) for pick in (min, max)),
        )
        for ratio, found in sorted(points.items())
    ]
    return Table(
        title="Oversubscription: ResNet-50, four hosts, two leaves and two spines, three seeds each",
        columns=("oversubscription", "valid", "mean, ms", "p50, ms", "p99, ms", "least mean, ms", "most mean, ms"),
        rows=tuple(rows),
    )
