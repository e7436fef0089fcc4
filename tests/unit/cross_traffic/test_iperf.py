from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cross_traffic import iperf, websearch
from orchestrator.parts.launch import Flow, Line, Listening
from orchestrator.parts.protocols import Demand, Source
from orchestrator.parts.rows import TABLES, LaunchOutput
from orchestrator.parts.topology import Link, Node, Rail, Topology

DATA = Path(__file__).parents[2] / "data/iperf"
SOURCE = Source(name="iperf0", window="w1", port=15203, duration_s=100.5, seed=1)


def topology(mtu: int = 1500, scale: int = 100) -> Topology:
    return Topology(
        kind="local",
        nodes=(
            Node(name="h1", rails=(Rail(address="10.0.0.1", device="eth0"),)),
            Node(name="h2", rails=(Rail(address="10.0.0.2", device="eth0"),)),
        ),
        links=(Link(host="h1", device="eth0", rate=25e9), Link(host="h2", device="eth0", rate=10e9)),
        scale=scale,
        mtu=mtu,
    )


def config(**options: object) -> iperf.Config:
    return iperf.Config.model_validate({"from": "h1", "to": "h2", "load": "8gbit", **options})


def output(tmp_path: Path, sample: str) -> LaunchOutput:
    shutil.copy(DATA / sample, tmp_path / "stdout")
    return LaunchOutput(
        folder=tmp_path, node="h1", launch="x", job=None, rank=None, window="w1", source="iperf0", offset_ns=7
    )


def option(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_the_load_is_what_is_on_the_wire():
    client = iperf.launches(config(), SOURCE, topology())[1]
    streams, payload = int(option(client.argv, "-P")), int(option(client.argv, "-b"))
    assert streams == 4
    assert streams * payload * 1514 / 1448 == pytest.approx(80e6, rel=1e-6)


@pytest.mark.parametrize("mtu", [1500, 4200, 9000])
@pytest.mark.parametrize(("scale", "load"), [(100, "8gbit"), (1, "8gbit"), (1, "100mbit")])
def test_blocks_are_whole_segments(mtu, scale, load):
    size = iperf.block_bytes(config(load=load), topology(mtu, scale))
    assert size % (mtu - 52) == 0
    assert 4000 < size <= 140_000
    assert iperf.block_bytes(config(load=load, block="100kb"), topology(mtu, scale)) == 100_000


def test_blocks_grow_with_the_rate_of_a_stream():
    assert iperf.block_bytes(config(), topology()) == 6 * 1448
    assert iperf.block_bytes(config(), topology(scale=1)) > 100_000


def test_server_then_client():
    server, client = iperf.launches(config(streams=2, congestion="cubic"), SOURCE, topology())
    assert (server.name, server.node, server.order) == ("w1.iperf0.server", "h2", 0)
    assert server.ready == Listening(port=15203)
    assert (client.name, client.node, client.order) == ("w1.iperf0.client", "h1", 1)
    assert client.flows == (Flow(kind="cross", name="iperf0", src="10.0.0.1", dst="10.0.0.2", port=15203),)
    assert option(client.argv, "-c") == option(server.argv, "-B") == "10.0.0.2"
    assert option(client.argv, "-B") == "10.0.0.1"
    assert option(client.argv, "-C") == "cubic"
    assert option(client.argv, "-p") == option(server.argv, "-p") == "15203"
    assert int(option(client.argv, "-t")) > 101
    assert 1 in client.stop.ok


def test_the_client_is_ready_when_it_reports_traffic_and_not_before():
    ready = iperf.launches(config(), SOURCE, topology())[1].ready
    assert isinstance(ready, Line)
    for sample in ("interrupted.txt", "killed.txt"):
        lines = (DATA / sample).read_text().splitlines()
        first = next(place for place, line in enumerate(lines) if re.search(ready.pattern, line))
        assert lines[first - 1].startswith("[ ID] Interval")
    assert not re.search(ready.pattern, (DATA / "refused.txt").read_text(), re.MULTILINE)


def test_one_row_a_stream_that_agrees_with_the_tools_own_summary(tmp_path):
    flows = iperf.read(output(tmp_path, "interrupted.txt"))["flows"]
    assert set(flows) == set(TABLES["flows"])
    summary = re.findall(
        r"^\[ *(\d+)\] .* (\d+) Kbits/sec +\d+ +sender", (DATA / "interrupted.txt").read_text(), re.MULTILINE
    )
    assert len(summary) == len(flows["flow"]) == 4
    for place, (_, kilobits) in enumerate(summary):
        seconds = (flows["end_ns"][place] - flows["start_ns"][place]) / 1e9
        assert seconds == pytest.approx(1.80)
        assert flows["bytes"][place] * 8 / seconds == pytest.approx(int(kilobits) * 1000, rel=0.01)
    assert flows["dst_port"] == [15201] * 4
    assert len(set(flows["src_port"])) == 4
    assert set(flows["src"]) == {"10.77.0.1"}
    assert set(flows["source"]) == {"iperf0"}
    began = datetime(2026, 11, 21, 2, 20, tzinfo=timezone.utc).timestamp()
    assert 0 <= flows["start_ns"][0] / 1e9 - began < 60
    assert flows["start_ns"][0] % 1_000_000_000 == 7


def test_retransmissions_are_added_up(tmp_path):
    text = (DATA / "loss.txt").read_text()
    flows = iperf.read(output(tmp_path, "loss.txt"))["flows"]
    summary = re.findall(r"^\[ *\d+\] .* Kbits/sec +(\d+) +sender", text, re.MULTILINE)
    assert flows["retransmits"] == [int(count) for count in summary]
    assert sum(flows["retransmits"]) > 0


def test_a_client_that_was_killed_is_read_up_to_its_last_report(tmp_path):
    flows = iperf.read(output(tmp_path, "killed.txt"))["flows"]
    assert flows["end_ns"][0] - flows["start_ns"][0] == 1_000_000_000
    assert flows["bytes"][0] == pytest.approx(5004e3 / 8, rel=0.001)


@pytest.mark.parametrize("size", range(0, 3400, 37))
def test_any_beginning_of_the_output_can_be_read(tmp_path, size):
    place = output(tmp_path, "interrupted.txt")
    (tmp_path / "stdout").write_text((DATA / "interrupted.txt").read_text()[:size])
    for columns in iperf.read(place).values():
        assert len({len(values) for values in columns.values()}) == 1


@pytest.mark.parametrize("sample", ["server.txt", "refused.txt"])
def test_a_server_or_a_refused_client_has_no_flows(tmp_path, sample):
    assert iperf.read(output(tmp_path, sample)) == {}


def test_nothing_came_home(tmp_path):
    place = output(tmp_path, "server.txt")
    (tmp_path / "stdout").unlink()
    assert iperf.read(place) == {}


def test_demand():
    assert iperf.demands(config()) == [Demand(src="h1", dst="h2", rate=8e9)]


@pytest.mark.parametrize(
    ("options", "at", "words"),
    [
        ({"from": "h9"}, ("from",), "'h9'"),
        ({"to": "h9"}, ("to",), "'h9'"),
        ({"to": "h1"}, ("to",), "itself"),
        ({"load": "11gbit"}, ("load",), "link of h2"),
        ({"load": "0gbit"}, ("load",), "no traffic"),
        ({"streams": 0}, ("streams",), "0 streams"),
        ({"streams": 129}, ("streams",), "129 streams"),
        ({"block": "2mib"}, ("block",), "at once"),
    ],
)
def test_mistakes_are_named_with_what_would_do(options, at, words):
    found = iperf.problems(config(**options), topology())
    assert [problem.at for problem in found] == [at]
    assert words in found[0].message
    assert found[0].accepted


def test_a_right_configuration_has_no_problems():
    assert iperf.problems(config(load="10gbit"), topology()) == []
    assert {need.node for need in iperf.requirements(config(), topology())} == {"h1", "h2"}
    assert topology().wire_per_payload == pytest.approx(1514 / 1448)


@pytest.mark.parametrize(
    ("kind", "mtu", "load", "fits"),
    [
        ("inventory", 1500, "24.60gbit", True),
        ("inventory", 1500, "24.61gbit", False),
        ("inventory", 9000, "24.93gbit", True),
        ("inventory", 9000, "24.94gbit", False),
        ("local", 1500, "25gbit", True),
        ("local", 1500, "25.01gbit", False),
    ],
)
def test_a_load_is_held_against_what_a_link_carries_on_layer_2(kind, mtu, load, fits):
    """Of a real link's rate preamble, FCS and gap take 24 bytes a frame: 25e9 * 1514 / 1538 = 24.6099e9."""
    links = tuple(Link(host=host, device="eth0", rate=25e9) for host in ("h1", "h2"))
    made = replace(topology(mtu=mtu), kind=kind, links=links)
    at_once = iperf.problems(config(load=load), made)
    assert [problem.at for problem in at_once] == ([] if fits else [("load",)])
    drawn = websearch.problems(websearch.Config.model_validate({"from": "h1", "to": "h2", "load": load}), made)
    assert [problem.at for problem in drawn] == ([] if fits else [("load",)])
    if kind == "inventory" and not fits:
        most = "24.609gbit" if mtu == 1500 else "24.933gbit"
        assert at_once[0].accepted.startswith(f"more than 0, at most {most} (layer 2, which is what 25gbit carry")
