"""Sources of what shares a fabric with trainings: checkpoints, weights, incast, KV transfers, UDP."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from cross_traffic import checkpoint, distributions, incast, kv_transfer, periodic, udp, weight_sync
from cross_traffic.agents import flow_drawing
from orchestrator.core.units import Mistake
from orchestrator.parts.protocols import Source
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Link, Node, Rail, Topology
from orchestrator.store.manifests.summaries import Load
from orchestrator.validity.gates import datagrams
from tests.helpers.gate_windows import judged
from tests.helpers.manifests import window

HOSTS = ("h1", "h2", "h3", "h4")
SOURCE = Source(name="source0", window="w1", port=15217, duration_s=100.0, seed=3)
TOPOLOGY = Topology(
    kind="local",
    nodes=tuple(
        Node(name=host, rails=(Rail(address=f"10.0.0.{i}", device="eth0"),)) for i, host in enumerate(HOSTS, start=1)
    ),
    links=tuple(Link(host=host, device="eth0", rate=25e9) for host in HOSTS),
    scale=100,
)


def wire(size, *, flow=272):
    """Layer-2 bytes towards the receiver at an MTU of 1500: segments of 1448 bytes, each with 66 bytes of headers."""
    return size + 66 * math.ceil(size / 1448) + flow


def write(**options):
    return checkpoint.Config.model_validate({"from": ["h1", "h2"], "to": ["h3", "h4"], "period": "10s", **options})


def sync(**options):
    return weight_sync.Config.model_validate({"from": "h1", "to": ["h2", "h3", "h4"], "period": "4s", **options})


def serve(**options):
    return kv_transfer.Config.model_validate({"from": ["h1", "h2"], "to": ["h3", "h4"], "requests": 4, **options})


def specs(launches, ending):
    return {launch.node: json.loads(launch.files["spec.json"]) for launch in launches if launch.name.endswith(ending)}


def test_a_checkpoint_has_14_bytes_a_parameter_in_equal_parts_from_each_host_to_each_storage_host():
    made = write(parameters=1e9)
    assert {(one.src, one.dst, one.size, one.after_s) for one in made.transfers} == {
        (src, dst, 3_500_000_000, 0.0) for src in ("h1", "h2") for dst in ("h3", "h4")
    }
    assert {demand.rate for demand in checkpoint.demands(made)} == {wire(3_500_000_000) * 8 / 10}
    assert (checkpoint.demands(made)[0].period_s, checkpoint.demands(made)[0].pause_s) == (10, 10)


def test_the_checkpoint_of_bloom_has_the_size_that_its_authors_tell():
    made = write(parameters=176.247e9, period="1h")
    assert sum(one.size for one in made.transfers) / 2**40 == pytest.approx(2.3, rel=0.03)


def test_sizes_that_cannot_be_divided_lose_no_byte():
    assert periodic.parts_of(10, 4) == [2, 3, 3, 2]
    assert sum(one.size for one in write(size="1000003b").transfers) == 1_000_003


def test_a_period_is_sent_again_and_again_by_all_hosts_from_one_instant_on():
    made = checkpoint.launches(write(size="4gb"), SOURCE, TOPOLOGY)
    assert [(launch.node, launch.order) for launch in made] == [("h3", 0), ("h4", 0), ("h1", 1), ("h2", 1)]
    senders, sinks = specs(made, ".sender"), specs(made, ".sink")
    assert {spec["starters"] for spec in sinks.values()} == {2}
    assert {str(spec["recorded"]) for spec in senders.values()} == {
        str({"path": "flows.csv", "factor": 0.01, "length_s": 10.0})
    }
    assert made[2].files["flows.csv"] == b"0,1000000000,0\n0,1000000000,1\n"


def test_weights_go_to_each_host_or_from_each_to_the_next_one():
    star = sync(parameters=1e9)
    assert [(one.src, one.dst, one.size) for one in star.transfers] == [("h1", to, 2_000_000_000) for to in HOSTS[1:]]
    chain = sync(parameters=1e9, way="chain", hop="20ms")
    assert [(one.src, one.dst, one.after_s) for one in chain.transfers] == [
        ("h1", "h2", 0.0),
        ("h2", "h3", 0.02),
        ("h3", "h4", 0.04),
    ]
    lines = {launch.node: launch.files.get("flows.csv") for launch in weight_sync.launches(chain, SOURCE, TOPOLOGY)}
    assert lines["h3"] == b"40000000,2000000000,0\n"


def test_an_incast_is_one_answer_of_each_host():
    made = incast.Config.model_validate({"from": ["h2", "h3", "h4"], "to": "h1", "period": "100ms"})
    assert {(demand.src, demand.rate) for demand in incast.demands(made)} == {
        (host, wire(262_144, flow=66) * 8 / 0.1) for host in ("h2", "h3", "h4")
    }
    assert incast.demands(made)[0].over_s == pytest.approx(3.0)
    assert specs(incast.launches(made, SOURCE, TOPOLOGY), ".sender")["h2"]["pool"] is True


def test_a_plan_says_what_a_period_sends_and_how_long_that_takes():
    (text,) = checkpoint.remarks(write(size="4gb"), TOPOLOGY)
    assert text.startswith("every 10s: 4 flows of 4gb together, for which the busiest link takes 669 ms at least")


@pytest.mark.parametrize(
    ("options", "at", "told"),
    [
        ({"from": "h9", "size": "1gb"}, ("from",), "no host 'h9'"),
        ({"to": ["h3", "h3"], "size": "1gb"}, ("to", 1), "twice"),
        ({"to": "h1", "size": "1gb"}, ("to",), "to itself"),
        ({"size": "1gb", "rail": 1}, ("rail",), "1"),
        ({"size": "200gb"}, ("period",), "do not fit the link of h1"),  # 83.6 Gbit/s from each host
        ({"to": "h3", "size": "30gb"}, ("period",), "25.09gbit on average do not fit the link of h3"),
        ({"size": "10kb"}, (), "headers add"),
    ],
)
def test_mistakes_of_a_checkpoint_have_a_place_and_a_way_out(options, at, told):
    (problem, *_) = checkpoint.problems(write(**options), TOPOLOGY)
    assert problem.at == at
    assert told in problem.message
    assert problem.accepted


def test_what_would_do_instead_of_a_period_that_is_too_short_does():
    (problem,) = checkpoint.problems(write(size="200gb"), TOPOLOGY)
    least = problem.accepted.split()[2].rstrip(",")
    assert checkpoint.problems(write(size="200gb", period=least), TOPOLOGY) == []


def test_a_chain_may_not_be_longer_than_its_period():
    (problem,) = weight_sync.problems(sync(size="1gb", way="chain", hop="2s"), TOPOLOGY)
    assert (problem.at, problem.message) == (("period",), "its last flow begins 4s after its first")
    assert weight_sync.problems(sync(size="1gb", way="chain", hop="1.9s"), TOPOLOGY) == []


@pytest.mark.parametrize("options", [{}, {"size": "1gb", "parameters": 1e9}])
def test_a_state_is_as_large_as_is_said_once(options):
    with pytest.raises(ValueError, match="not once") as error:
        write(**options)
    assert isinstance(error.value.errors()[0]["ctx"]["error"], Mistake)


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("llama-3.1-405b", 516_096),  # this and the next: arXiv 2505.09343, table 1
        ("deepseek-v3", 70_272),
        ({"layers": 2, "kv_heads": 3, "head": 5, "bytes": 1}, 60),
    ],
)
def test_a_token_keeps_what_its_model_says(model, size):
    assert kv_transfer.bytes_per_token(serve(model=model)) == size


def test_requests_are_divided_among_all_pairs_of_hosts(tmp_path):
    contexts = tmp_path / "contexts.csv"
    contexts.write_text("tokens,cdf\n1000,1\n")
    made = serve(contexts=str(contexts), model="llama-3.1-8b")
    assert kv_transfer.problems(made, TOPOLOGY) == []
    assert kv_transfer.demands(made)[0].pause_s == pytest.approx(math.log(600_000))  # one request a second
    found = {(demand.src, demand.dst): demand.rate for demand in kv_transfer.demands(made)}
    assert found == {(src, dst): pytest.approx(wire(131_072_000) * 8) for src in ("h1", "h2") for dst in ("h3", "h4")}
    senders = specs(kv_transfer.launches(made, SOURCE, TOPOLOGY), ".sender")
    streams = [stream for spec in senders.values() for stream in spec["streams"]]
    assert [stream["seed"] for stream in streams] == ["3/0", "3/1", "3/2", "3/3"]
    assert {stream["load_bps"] for stream in streams} == {wire(1_310_720) * 8}


@pytest.mark.parametrize("dilation", [1, 10])
def test_requests_come_as_often_as_is_asked_and_are_as_large_as_the_trace_has_them(dilation):
    made = serve(requests=400, model="deepseek-v3", arrivals="compound-poisson")
    where = replace(TOPOLOGY, dilation=dilation)
    (stream, _) = specs(kv_transfer.launches(made, SOURCE, where), ".sender")["h1"]["streams"]
    flows = list(islice(flow_drawing.drawn(stream), 20_000))
    gaps = np.diff([at for at, _, _ in flows]) / 1e9
    assert gaps.mean() == pytest.approx(dilation / 100, rel=0.03)  # a hundred a second between two hosts
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # exponential
    sizes = np.array([size for _, size, _ in flows])
    assert sizes.mean() == pytest.approx(2048 * 70_272 / 100, rel=0.03)
    assert sizes.max() <= 7437 * 70_272 / 100 + 1


@pytest.mark.parametrize(("name", "mean", "median"), [("azure-code", 2048, 1469), ("azure-conversation", 1155, 1020)])
def test_contexts_are_those_of_the_trace(name, mean, median):
    sizes = flow_drawing.Sizes(distributions.find(name, folder=distributions.CONTEXTS).points)
    assert sizes.mean() == pytest.approx(mean, rel=0.005)
    assert sizes.at(0.5) == pytest.approx(median, rel=0.01)


@pytest.mark.parametrize(
    ("options", "at", "told"),
    [
        ({"from": "h9"}, ("from",), "no host 'h9'"),
        ({"to": ["h1", "h3"]}, ("to",), "to itself"),
        ({"contexts": "/nowhere.csv"}, ("contexts",), "no distribution"),
        ({"requests": 1000}, ("requests",), "do not fit the link of h1"),
    ],
)
def test_mistakes_of_transfers_have_a_place_and_a_way_out(options, at, told):
    (problem,) = kv_transfer.problems(serve(**options), TOPOLOGY)
    assert problem.at == at
    assert told in problem.message
    assert problem.accepted


def offer(**options):
    return udp.Config.model_validate({"from": "h1", "to": "h2", "load": "10gbit", **options})


def test_datagrams_fill_packets_and_their_headers_count_in_the_load():
    server, client = udp.launches(offer(streams=2), SOURCE, TOPOLOGY)
    assert "-u" not in server.argv
    words = dict(zip(client.argv, client.argv[1:], strict=False))
    assert {"-u", "-l"} <= set(client.argv)
    assert (words["-P"], words["-l"], words["-b"]) == ("2", "1472", str(round(100e6 / 2 * 1472 / 1514)))
    (demand,) = udp.demands(offer())
    assert (demand.src, demand.dst, demand.rate) == ("h1", "h2", 10e9)


@pytest.mark.parametrize(
    ("options", "at", "told"),
    [
        ({"to": "h1"}, ("to",), "to itself"),
        ({"to": "h9"}, ("to",), "no host 'h9'"),
        ({"load": "26gbit"}, ("load",), "does not fit"),
        ({"load": "0bit"}, ("load",), "no traffic"),
        ({"datagram": 1473}, ("datagram",), "fragments"),
        ({"rail": 1}, ("rail",), "1"),
    ],
)
def test_mistakes_of_datagrams_have_a_place_and_a_way_out(options, at, told):
    (problem,) = udp.problems(offer(**options), TOPOLOGY)
    assert problem.at == at
    assert told in problem.message


SERVER = """iperf 3.12
Time: Fri, 27 Nov 2026 03:21:37 GMT
[  5] local 10.0.0.2 port 15201 connected to 10.0.0.1 port 43089
[  6] local 10.0.0.2 port 15201 connected to 10.0.0.1 port 47340
Starting Test: protocol: UDP, 2 streams, 958 byte blocks, omitting 0 seconds, 86400 second test, tos 0
[  5]   0.00-0.50   sec   305 KBytes  4992 Kbits/sec  0.005 ms  0/200 (0%)
[  6]   0.00-0.50   sec   305 KBytes  4992 Kbits/sec  0.002 ms  20/200 (10%)
[SUM]   0.00-0.50   sec   610 KBytes  9984 Kbits/sec  0.003 ms  20/400 (5%)
[  5]   0.50-1.00   sec   305 KBytes  4992 Kbits/sec  0.005 ms  -1/100 (-1%)
[  6]   0.50-1.00   sec   305 KBytes  4992 Kbits/sec  0.002 ms  100/100 (1e+02%)
[  6]   0.50-1.00   sec   305 KBytes  4992 Kbits/sec  0.002 ms  100/100 (1e+02%)
Test Complete. Summary Results:
[  5]   0.00-1.00   sec   305 KBytes  4992 Kbits/sec  0.005 ms  0/300 (0%)  receiver
"""


def output(folder):
    return LaunchOutput(
        folder=folder, node="h2", launch="x", job=None, rank=None, window="w1", source="udp0", offset_ns=5
    )


def test_a_server_tells_what_was_offered_and_what_of_it_was_lost(tmp_path):
    (tmp_path / "stdout").write_text(SERVER)
    rows = udp.read(output(tmp_path))["counters"]
    offered, lost, seconds = (
        [value for name, value in zip(rows["counter"], rows["value"], strict=True) if name == counter]
        for counter in udp.COUNTERS
    )
    assert offered == [0.0, 400_000.0, 600_000.0]  # of 1,000 bytes each on the wire
    assert lost == [0.0, 20_000.0, 119_000.0]
    assert seconds == [0.0, 0.5, 1.0]
    assert rows["time_ns"][0] == 1_795_749_697_500_000_005
    assert rows["time_ns"][-1] - rows["time_ns"][0] == 10**9
    assert set(rows["port"]) == {"udp0"}


def test_a_server_that_does_not_say_when_it_began_is_not_read(tmp_path):
    (tmp_path / "stdout").write_text(SERVER.replace("Time:", "At:"))
    told = output(tmp_path)
    assert udp.read(told) == {}
    assert "does not tell when" in told.unread.sentences()[0]


@pytest.mark.parametrize(("offered", "passed"), [(1.0, True), (0.96, True), (0.94, False), (1.06, False)])
def test_a_source_offers_what_was_asked_whatever_is_lost(offered, passed):
    asked = Load(source="udp0", src="h1", dst="h2", requested_bps=80e6)
    sent = 10e6 * 5.5 * offered
    grown = {("h2", "udp0", name): value for name, value in zip(udp.COUNTERS, (sent, sent / 4, 5.5), strict=True)}
    (gate,) = judged(datagrams, record=replace(window(), loads=(asked,)), grown=grown)
    assert gate.passed is passed
    assert "25.00% were lost" in gate.message


def test_loads_without_datagrams_are_not_judged_as_such():
    asked = Load(source="iperf0", src="h1", dst="h2", requested_bps=80e6)
    assert judged(datagrams, record=replace(window(), loads=(asked,))) == []
