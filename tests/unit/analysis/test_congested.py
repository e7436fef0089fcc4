"""Congestion and losses of RDMA, from trees of counters as three drivers make them, under one name."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows import device_counters
from orchestrator.parts.collectors import nic
from orchestrator.parts.rows import TABLES, LaunchOutput
from orchestrator.parts.samplers import AGENTS
from orchestrator.parts.topology import Node, Rail, Topology
from orchestrator.validity import registry
from orchestrator.validity.gates import congestion
from tests.helpers.gate_windows import judged

DRIVERS = sorted((Path(__file__).parents[2] / "data/rdma").glob("*.json"))
SECOND = 10**9
SPAN = (1_795_000_000 * SECOND, 1_795_000_010 * SECOND)
DEVICE = "ens1f0"


@pytest.fixture(scope="module")
def source():
    """The sampler's program, which knows where counters lie."""
    spec = importlib.util.spec_from_file_location("nic_source", AGENTS / "nic_source.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tree(folder, driver, place):
    """Sysfs with a device's counters as they stood first (0) or later (1)."""
    port = folder / "class/infiniband/rocep1/ports/1"
    for group in ("counters", "hw_counters"):
        (port / group).mkdir(parents=True, exist_ok=True)
        for name, values in driver[group].items():
            (port / group / name).write_text(f"{values[place]}\n")
    (port / "hw_counters/lifespan").write_text("10\n")
    (folder / f"class/net/{DEVICE}/device/infiniband/rocep1").mkdir(parents=True, exist_ok=True)


def counters(source, folder, path):
    """The table `counters` of a run whose sampler read such a tree before and after its window."""
    driver = json.loads(path.read_text())
    output = folder / "output"
    output.mkdir()
    tree(folder, driver, 0)
    stream = source.RdmaCounters(DEVICE, 0.1, source.rdma_files(DEVICE, str(folder)))
    assert len(stream.columns) == len(driver["counters"]) + len(driver["hw_counters"])
    samples = [stream.rows()[0]]
    tree(folder, driver, 1)
    samples.append(stream.rows()[0])
    ethtool = [f"{DEVICE}|ethtool.{name}" for name in driver["ethtool"]]
    more = [[str(values[place]) for values in driver["ethtool"].values()] for place in (0, 1)]
    for stem, columns, rows in (("rdma", stream.columns, samples), ("ethtool", ethtool, more)):
        lines = [["time_ns", "late_ns", *columns], *([str(at), "0", *row] for at, row in zip(SPAN, rows, strict=True))]
        (output / f"{stem}.{DEVICE}.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    launch = LaunchOutput(
        folder=output, node="h1", launch="nic.h1", job=None, rank=None, window=None, source=None, offset_ns=0
    )
    rows = nic.read(launch)["counters"]
    return throughput.CachedTable(pa.table({**rows, "node": ["h1"] * len(rows["value"])}))


def host():
    rails = (Rail(device=DEVICE, address="10.0.0.1"), Rail(device="ens2f0", address="10.0.1.1"))
    return Topology(kind="inventory", nodes=(Node(name="h1", rails=rails),), links=())


@pytest.mark.parametrize("path", DRIVERS, ids=lambda path: path.stem)
def test_drivers_are_read_under_one_name(source, tmp_path, path):
    (row,) = device_counters.congestion(counters(source, tmp_path, path), host(), SPAN)
    assert (row.host, row.rail, row.device) == ("h1", 0, DEVICE)
    expected = {
        "cnp_sent": 30,
        "cnp_handled": 20,
        "ecn_marked": 300,
        "out_of_sequence": 10,
        "retransmits": 5,
        "timeouts": 3,
        "discards": 2,
        "pfc_rx": 7,
        "pfc_tx": 0,
    }
    assert {name: row.figures[name] for name in expected} == expected
    apart = {"mlx5": 7, "bnxt_re": 7, "ionic": math.nan}[path.stem]  # ionic counts them together
    assert row.figures["pfc_rx_3"] == pytest.approx(apart, nan_ok=True)
    assert {*row.figures, "host", "rail", "device", "window_name"} == set(TABLES["congestion"])
    assert set(json.loads(path.read_text())["hw_counters"]) >= {
        name.removeprefix("rdma.")
        for ways in device_counters.RAIL_FIGURES.values()
        for name in ways[{"mlx5": 0, "bnxt_re": 1, "ionic": 2}[path.stem] if len(ways) == 3 else 0]
        if name.startswith("rdma.")
    }


def test_losses_and_pauses_are_remarks_or_make_a_window_invalid(source, tmp_path):
    rows = device_counters.congestion(counters(source, tmp_path, DRIVERS[0]), host(), SPAN)
    warned = judged(congestion, congestion=rows)
    assert {one.name: one.passed for one in warned} == {"losses": False, "pauses": False}
    assert registry.valid(warned)
    told = next(one.message for one in warned if one.name == "losses")
    assert told == f"h1 ({DEVICE}): out of sequence 10, retransmits 5, timeouts 3, discards 2"
    strict = judged(congestion, congestion=rows, validity={"congestion": "invalid"})
    assert not registry.valid(strict)
    assert any("pfc rx 7" in reason for reason in registry.reasons(strict))


def test_a_quiet_window_passes_and_a_host_without_such_counters_has_no_row(source, tmp_path):
    kept = counters(source, tmp_path, DRIVERS[0])
    (row,) = device_counters.congestion(kept, host(), (SPAN[0], SPAN[0]))
    assert all(one.passed for one in judged(congestion, congestion=[row], validity={"congestion": "invalid"}))
    nothing = throughput.CachedTable(
        pa.table({"node": ["h1"], "port": [DEVICE], "counter": ["rx_bytes"], "time_ns": [SPAN[0]], "value": [1.0]})
    )
    assert device_counters.congestion(nothing, host(), SPAN) == ()
