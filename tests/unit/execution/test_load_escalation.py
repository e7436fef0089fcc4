from __future__ import annotations

from orchestrator.execution.load_escalation import covers, requested_bps, unescalated
from orchestrator.experiment import documents, plan, validation
from orchestrator.experiment.experiment import model
from tests.helpers.experiments import GOOD, IPERF

TRAFFIC = """traffic:
  - iperf: {from: h1, to: h3, load: 200mbit, streams: 4, most_streams: 10}
  - iperf: {from: h2, to: h1, load: 200mbit, streams: 3, most_streams: 1}
"""


def window():
    document = documents.parse(GOOD.replace("traffic:\n" + IPERF, TRAFFIC).encode(), name="e", needs="all")
    return plan.build(validation.validate(document, model()))[0].windows[0]


def test_only_sources_of_receivers_that_get_too_little_are_escalated_and_only_while_they_can_be():
    requested = unescalated(window())
    assert requested.escalatable == {"h3"}
    assert requested.escalated({"h1"}) is None
    eight = requested.escalated({"h1", "h3"})
    ten = eight.escalated({"h3"})
    assert [step.text for step in (requested, eight, ten)] == ["", "iperf0 with 8 streams", "iperf0 with 10 streams"]
    assert (ten.escalatable, ten.escalated({"h3"})) == (frozenset(), None)


def test_every_means_has_processes_of_its_own_for_the_same_port():
    requested = unescalated(window())
    eight = requested.escalated({"h3"})
    assert [launch.name for launch in eight.launches] == [
        "w1.iperf0.server.escalated1",
        "w1.iperf0.client.escalated1",
        "w1.iperf1.server",
        "w1.iperf1.client",
    ]
    assert [launch.ready for launch in eight.launches] == [launch.ready for launch in requested.launches]
    assert eight.launches[1].argv[eight.launches[1].argv.index("-P") + 1] == "8"
    assert {(launch.name[:10], launch.window) for launch in eight.rehearsal} == {("preflight.", "preflight of w1")}


def windows(*texts):
    lines = "".join(f"  - {{name: w{number}, traffic: [{text}]}}\n" for number, text in enumerate(texts))
    document = documents.parse(GOOD.replace("traffic:\n" + IPERF, f"windows:\n{lines}").encode(), name="e", needs="all")
    return plan.build(validation.validate(document, model()))[0].windows


def iperf(load, more=""):
    return f"{{iperf: {{from: h1, to: h3, load: {load}{more}}}}}"


def test_a_load_that_is_reached_shows_that_smaller_ones_of_its_shape_are():
    low, high, others, none = windows(
        iperf("100mbit"), iperf("300mbit"), iperf("100mbit", ", streams: 2"), iperf("0bit")
    )
    assert [covers(high, window) for window in (low, high, others, none)] == [True, True, False, False]
    assert not covers(low, high)
    assert sorted(map(requested_bps, (low, high, others, none))) == [0, 100e6, 100e6, 300e6]


def test_windows_of_one_shape_are_sent_by_the_same_means():
    low, high = windows(iperf("100mbit"), iperf("300mbit"))
    escalated = unescalated(high).escalated({"h3"})
    alike = escalated.alike(low)
    assert alike.text == escalated.text
    assert alike.window is low
    assert {launch.window for launch in alike.launches} == {"w0"}


def test_traffic_without_load_is_no_traffic():
    (silent,) = windows(iperf("0bit"))
    assert (silent.sources, unescalated(silent).launches) == ((), ())
