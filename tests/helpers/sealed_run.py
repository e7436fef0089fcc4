"""Makes a sealed run of four hosts as a real one would leave it, from known numbers, for tests of what reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from orchestrator.analysis.windows import windows
from orchestrator.parts.rows import TABLES
from orchestrator.store.manifests.coding import encoded
from orchestrator.store.manifests.manifest import load
from orchestrator.store.stamps import MANIFEST
from orchestrator.store.tabular.tables import TableWriter

BEGAN_NS = 1_795_000_000_000_000_000
HOSTS = ("h1", "h2", "h3", "h4")
BIN_NS = 10_000_000
WARMUP = 5
SENT_BYTES = 2_000_000.0  # payload a rank and iteration, scaled
THEORY_BYTES = 1_950_000.0
STRICT: Mapping[str, Any] = MappingProxyType({})  # every limit its default


def make_run(  # noqa: C901
    folder: Path,
    *,
    repetition: int = 1,
    iterations: int = 120,
    load_bps: float = 150e6,
    achieved: float = 1.0,
    seconds: float = 0.2,
    scale: int = 100,
    dropped: int = 0,
    tolerances: Mapping[str, Any] = STRICT,
    windows_count: int = 1,
    skip: tuple[str, ...] = (),
    silent: tuple[str, ...] = (),
    unseen: tuple[str, ...] = (),
    ended_ns: int | None = None,
    logging: int = 4,
    course: Callable[[Any], Any] = np.ones_like,
    change: Callable[[dict[str, Any]], object] = lambda _: None,
) -> Path:
    """One job on four hosts, cross traffic h2 -> h1 of `load_bps` that arrives at `achieved` times the rate.

    `skip`: tables that are not collected; `silent`: hosts whose capture left no counts, `unseen`: nothing at all.
    All captures are whole until `ended_ns` alone.
    So many ranks, the first ones, are `logging` their iterations.
    `course` says how many times its mean the cross traffic is, at shares of the run's time.
    `tolerances` are limits as `validity:` records them.
    `change` may alter the manifest before it is judged. Windows follow one another, each of `iterations`.
    """
    run = f"20261121T02{repetition:04d}-abc{repetition}"
    path = folder / run
    random = np.random.default_rng(repetition)
    total = WARMUP + windows_count * iterations
    noise = np.zeros(total)
    for k in range(1, total):
        noise[k] = 0.5 * noise[k - 1] + random.normal(0, 0.02)
    took = seconds * (1 + noise + random.exponential(0.03, total))
    ends = BEGAN_NS + 3_000_000_000 + np.cumsum((took * 1e9).astype(np.int64))
    starts = ends - (took * 1e9).astype(np.int64)
    spans = []
    for w in range(windows_count):
        first = WARMUP + w * iterations
        last = first + iterations - 1
        spans.append((f"w{w + 1}", first, last, int(starts[first]), int(ends[last])))
    manifest = _manifest(run, repetition, scale, spans, load_bps)
    manifest["validity"] = dict(tolerances)
    change(manifest)
    (path / "tables").mkdir(parents=True)
    with TableWriter(path / "tables", run=run) as writer:
        for rank, host in enumerate(HOSTS):
            if "iterations" not in skip and rank < logging:
                writer.add("iterations", _iterations(rank, spans, starts, ends, took), node=host, launch=f"rank{rank}")
            bins = _bins(rank, int(starts[0]), int(ends[-1]), took.mean(), load_bps * achieved)
            _steer(bins, course)
            if "packets" not in skip and host not in unseen:
                writer.add("packets", bins, node=host, launch="tcpdump")
                if host not in silent:
                    counts = {"captured": [1_000_000], "received": [1_000_000 + dropped], "dropped": [dropped]}
                    row = {"port": ["eth0"], **counts, "files": [1], "bytes": [112_000_000], "ended_ns": [ended_ns]}
                    writer.add("captures", row, node=host, launch="tcpdump")
                writer.add("capture_flows", _flows(rank, int(starts[0]), int(ends[-1])), node=host, launch="tcpdump")
            if "counters" not in skip:
                writer.add("counters", _counters(bins, int(starts[0]), int(ends[-1])), node=host, launch="nic")
            if "sockets" not in skip:
                writer.add("sockets", _sockets(random, int(starts[0]), int(ends[-1])), node=host, launch="tcp")
        if "counters" not in skip:
            writer.add("counters", _queue(random, int(starts[0]), int(ends[-1])), node="switch", launch="qdisc")
    file = path / MANIFEST
    file.write_text(json.dumps(manifest))
    outcome = windows.measure(path / "tables", load(file))
    with TableWriter(path / "tables", run=run) as writer:
        for name, columns in outcome.tables.items():
            writer.add(name, columns)
    manifest["windows"] = json.loads(encoded(outcome.windows))
    manifest["valid"] = all(window.valid for window in outcome.windows)
    manifest["reasons"] = [f"{window.name}: {why}" for window in outcome.windows for why in window.reasons]
    file.write_text(json.dumps(manifest))
    for host in HOSTS:
        (path / "hosts" / host).mkdir(parents=True)
        (path / "hosts" / host / "before.json").write_text(
            json.dumps(
                {
                    "/proc/version": "Linux version 6.1.0-18-amd64 (builder@example) #1 SMP",
                    "/proc/sys/net/ipv4/tcp_congestion_control": "cubic",
                    "offloads": "Features for eth0:\ntcp-segmentation-offload: off\ngeneric-segmentation-offload: off\n"
                    "generic-receive-offload: on",
                }
            )
        )
    return path


def loose() -> dict[str, Any]:
    """Limits that the invented counters keep to."""
    return {"capture_nic": 0.1}


def _manifest(run, repetition, scale, spans, load_bps):
    end = spans[-1][4]
    return {
        "format": 3,
        "run": run,
        "experiment": "resnet-load",
        "outcome": "completed",
        "stage": "sealed",
        "error": None,
        "scale": scale,
        "repetition": repetition,
        "seed": 7 + repetition,
        "argv": ["orch", "run", "playbooks/resnet load.yaml"],
        "git": {"commit": "8e56fa4", "dirty": False},
        "versions": {"orch": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
        "began_ns": BEGAN_NS,
        "ended_ns": end + 2_000_000_000,
        "phases": {"open": 0.8, "warm-up": 3.1, "measure": (end - BEGAN_NS) / 1e9},
        "topology": {
            "kind": "local",
            "mtu": 1500,
            "nodes": [
                {"name": host, "kind": "host", "address": f"10.77.0.{i + 1}", "device": "eth0"}
                for i, host in enumerate(HOSTS)
            ]
            + [{"name": "switch", "kind": "switch", "address": "", "device": ""}],
            "links": [
                {"host": host, "device": "eth0", "switch": "switch", "switch_port": f"p{i + 1}", "rate": 25e9}
                for i, host in enumerate(HOSTS)
            ],
        },
        "jobs": [
            {
                "name": "training",
                "workload": "ddp",
                "model": "resnet50",
                "compute": "emulated",
                "ranks": [{"rank": i, "node": host} for i, host in enumerate(HOSTS)],
                "theory": {
                    "bytes_per_iteration": THEORY_BYTES,
                    "parameters": 255570,
                    "source": "ring all-reduce, 2(n-1)/n",
                },
            }
        ],
        "windows": [
            {
                "name": name,
                "start_ns": start,
                "end_ns": stop,
                "iterations": {"training": {"first": first, "last": last}},
                "loads": [{"source": "iperf0", "src": "h2", "dst": "h1", "requested_bps": load_bps}]
                if load_bps
                else [],
                "valid": False,
                "reasons": [],
            }
            for name, first, last, start, stop in spans
        ],
        "launches": [
            {
                "name": "tcpdump",
                "node": host,
                "part": "collector.tcpdump",
                "role": "collector",
                "argv": ["tcpdump", "-i", "eth0"],
                "failed": None,
            }
            for host in HOSTS
        ],
        "clocks": {
            host: {
                "before": {"offset_ns": 1200, "uncertainty_ns": 80_000},
                "after": {"offset_ns": 2400, "uncertainty_ns": 90_000},
            }
            for host in HOSTS
        },
        "artifacts": [],
        "notes": [],
    }


def _iterations(rank, spans, starts, ends, took):
    n = len(starts)
    window = np.full(n, "", object)
    for name, first, last, *_ in spans:
        window[first : last + 1] = name
    return {
        "job": ["training"] * n,
        "rank": [rank] * n,
        "window_name": list(window),
        "iteration": np.arange(n),
        "start_ns": starts,
        "end_ns": ends,
        "seconds": took,
        "forward_s": took * 0.2,
        "backward_s": took * 0.5,
        "wait_s": took * 0.3,
        "loss": [None] * n,
        "samples": [32] * n,
        "accuracy": [None] * n,
    }


def _steer(bins, course):
    """Have cross traffic go up and down around its mean."""
    at = np.array(bins["bin_ns"])
    times = np.where(np.array(bins["kind"]) == "cross", course((at - at.min()) / np.ptp(at)), 1.0)
    for name in ("packets", "wire_bytes", "payload_bytes", "frames", "captured_bytes"):
        bins[name] = (np.array(bins[name]) * times).astype(int)


def _bins(rank, begin, end, iteration_s, load_bps):
    at = np.arange(begin // BIN_NS, end // BIN_NS + 1) * BIN_NS
    payload = np.full(len(at), int(SENT_BYTES * BIN_NS / 1e9 / iteration_s))
    groups = [("out", "training", "training", payload), ("in", "training", "training", payload)]
    cross = np.full(len(at), int(load_bps * BIN_NS / 8e9 / (1514 / 1448)))
    if HOSTS[rank] in ("h1", "h2") and load_bps:
        groups.append(("in" if HOSTS[rank] == "h1" else "out", "cross", "iperf0", cross))
    columns = {key: [] for key in ("direction", "kind", "name", "bin_ns", "payload_bytes")}
    for direction, kind, name, amount in groups:
        columns["direction"] += [direction] * len(at)
        columns["kind"] += [kind] * len(at)
        columns["name"] += [name] * len(at)
        columns["bin_ns"] += at.tolist()
        columns["payload_bytes"] += amount.tolist()
    payload = np.array(columns["payload_bytes"])
    return columns | {
        "port": ["eth0"] * len(payload),
        "packets": payload // 1448,
        "wire_bytes": (payload * 1514 / 1448).astype(int),
        "repeated_bytes": np.zeros(len(payload), int),
        "frames": payload // 1448,
        "captured_bytes": (payload * 1514 / 1448).astype(int),
    }


def _flows(rank, begin, end):
    if HOSTS[rank] != "h1":
        return {name: [] for name in TABLES["capture_flows"]}
    return {
        "port": ["eth0"],
        "direction": ["in"],
        "protocol": ["tcp"],
        "src": ["10.77.0.2"],
        "src_port": [40000],
        "dst": ["10.77.0.1"],
        "dst_port": [15201],
        "tunnel": [""],
        "outer_src": [""],
        "outer_dst": [""],
        "kind": ["cross"],
        "name": ["iperf0"],
        "packets": [1000],
        "wire_bytes": [1_514_000],
        "payload_bytes": [1_448_000],
        "repeated_bytes": [0],
        "first_ns": [begin],
        "last_ns": [end],
    }


def _counters(bins, begin, end):
    at = np.arange(begin - 500_000_000, end + 500_000_000, 50_000_000)
    columns = {"port": [], "time_ns": [], "counter": [], "value": []}

    def add(port, counter, value):
        columns["port"] += [port] * len(at)
        columns["time_ns"] += at.tolist()
        columns["counter"] += [counter] * len(at)
        columns["value"] += np.asarray(value, float).tolist()

    direction, wire, start = np.array(bins["direction"]), np.array(bins["wire_bytes"]), np.array(bins["bin_ns"])
    for way, counter in (("in", "rx_bytes"), ("out", "tx_bytes")):
        mine = direction == way
        order = np.argsort(start[mine], kind="stable")
        grown = np.concatenate(([0], np.cumsum(wire[mine][order])))
        add("eth0", counter, 1e9 + grown[np.searchsorted(start[mine][order] + BIN_NS, at)])
    for counter in ("swap.in_pages", "swap.out_pages"):
        add("", counter, np.full(len(at), 42))
    add("", "sampler.nic.late_s", np.arange(len(at)) % 7 * 1e-5)
    return columns


def _queue(random, begin, end):
    at = np.arange(begin, end, 50_000_000)
    backlog = np.clip(random.normal(60_000, 40_000, len(at)), 0, 160_000)
    drops = np.cumsum(backlog > 140_000)
    return {
        "port": ["p1"] * (2 * len(at)),
        "time_ns": np.concatenate((at, at)),
        "counter": ["qdisc.tbf.backlog_bytes"] * len(at) + ["qdisc.tbf.drops"] * len(at),
        "value": np.concatenate((backlog, drops)),
    }


def _sockets(random, begin, end):
    at = np.repeat(np.arange(begin, end, 100_000_000), 6)
    n = len(at)
    return {
        "time_ns": at,
        "src": ["10.77.0.2"] * n,
        "src_port": np.tile(np.arange(6) + 40000, n // 6),
        "dst": ["10.77.0.1"] * n,
        "dst_port": [15201] * n,
        "congestion": ["cubic"] * n,
        "rtt_s": random.gamma(4, 0.001, n),
        "cwnd_segments": random.integers(2, 60, n),
        "retransmits": [0] * n,
        "bytes_acked": [0] * n,
        "unacked_segments": [1] * n,
    }
