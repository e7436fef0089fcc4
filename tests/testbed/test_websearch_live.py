from __future__ import annotations

import duckdb
import pytest

from tests.helpers.orch_runs import measured, nothing_is_left, small, write

pytestmark = [pytest.mark.testbed, pytest.mark.alone, pytest.mark.variants]

BURST = {"width": "1ms", "period": "10ms", "height": 3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run with three windows: consistent flows, bursts, and flows of a file from two sources at once."""
    folder = tmp_path_factory.mktemp("websearch")
    recorded = folder / "flows.csv"
    lines = [f"{i / 200:.6f},{250_000 + i % 7 * 100_000},h3\n" for i in range(200)]
    recorded.write_text("start_s,bytes,to\n" + "".join(lines))
    common = {"from": "h1", "to": "h3", "load": "4gbit", "realtime": True}
    windows = [
        {"name": "consistent", "traffic": [{"websearch": {**common, "from": ["h1", "h2"], "fan_in": 2}}]},
        {"name": "burst", "traffic": [{"websearch": {**common, "burst": BURST}}]},
        {"name": "replay", "traffic": [{"replay": {"from": "h1", "schedule": str(recorded), "connections": "pool"}}]},
    ]
    experiment = small(traffic=None, windows=windows, measure={"warmup": 2, "at_most": "6s"}, validity={"load": "10%"})
    path = write(folder, experiment)
    summary, results = measured(path, folder / "results", borne={"flow-gaps", "launch", "load-bursts"})
    (run,) = summary["runs"]
    return run, results / "small" / run["run"]


def ask(folder, query):
    tables = {path.stem: f"'{path}'" for path in (folder / "tables").glob("*.parquet")}
    return duckdb.sql(query.format(**tables)).fetchall()


def test_what_was_asked_for_arrives(finished):
    run, _ = finished
    assert run["outcome"] == "completed"
    for window in run["windows"]:
        for load in window["cross_traffic"]:
            assert load["achieved_bps"] == pytest.approx(load["requested_bps"], rel=0.1)
    nothing_is_left(run["run"], within_s=0.5)


def test_every_flow_is_accounted_for(finished):
    _, folder = finished
    rows = ask(
        folder,
        "select window_name, count(*), count(distinct flow), max(flow) + 1, count(*) filter (error <> ''),"
        " count(*) filter (error like 'unfinished%') from {flows} where window_name not like 'preflight%'"
        " group by window_name, node",
    )
    assert len(rows) == 4  # two senders in the first window
    for _, count, numbers, expected, failed, unfinished in rows:
        assert count == numbers == expected
        assert failed == unfinished < 60


def test_senders_of_an_incast_start_together(finished):
    _, folder = finished
    ((apart, pairs),) = ask(
        folder,
        "select median(abs(a.start_ns - b.start_ns)), count(*) from {flows} a join {flows} b using (window_name, flow)"
        " where a.node = 'h1' and b.node = 'h2' and window_name = 'consistent' and a.planned_bytes = b.planned_bytes",
    )
    assert pairs > 500
    assert apart < 5e6


def test_flows_end_after_they_began_and_carry_what_was_planned(finished):
    _, folder = finished
    ((wrong, short),) = ask(
        folder,
        "select count(*) filter (not (planned_start_ns <= start_ns and start_ns <= connected_ns"
        " and connected_ns <= last_byte_ns and last_byte_ns <= end_ns)),"
        " count(*) filter (bytes <> greatest(planned_bytes, 16)) from {flows} where error = ''",
    )
    assert (wrong, short) == (0, 0)


def test_the_record_says_how_exact_it_was(finished):
    _, folder = finished
    rows = ask(
        folder,
        "select window_name, flows, shed, failed, late_p50_s, gap_distance, size_distance, size_limit,"
        " acknowledged_bps / planned_bps, received_payload_bps / planned_bps from {generated} order by 1",
    )
    assert [row[0] for row in rows] == ["burst", "consistent", "replay"]
    for window, flows, shed, failed, late, gaps, _, _, acknowledged, received in rows:
        assert flows > 300
        assert (shed, failed) == (0, 0)
        assert 0 < late < 0.1
        told = {gate["name"]: gate["passed"] for gate in gates(folder, window)}
        assert told["flow-gaps"] == (gaps <= 0.1)  # where others have the processors they are late, and it says so
        assert acknowledged == pytest.approx(1, rel=0.05)
        assert 0.7 < received < 1
    assert rows[1][6] < rows[1][7]
    assert rows[0][6] is None or rows[0][6] != rows[0][6]  # no distribution to hold bursts against
    names = {gate["name"] for gate in gates(folder, "consistent")}
    assert {"flows", "launch", "flow-sizes", "flow-gaps", "load", "gap"} <= names


def gates(folder, window):
    import json

    manifest = json.loads((folder / "manifest.json").read_bytes())
    return next(entry["gates"] for entry in manifest["windows"] if entry["name"] == window)


def test_bursts_are_planned_and_seen_in_the_capture_when_they_were_sent(finished):
    """Three times the mean in the first of ten milliseconds; where it was sent later, it is seen later."""
    _, folder = finished
    within = (
        "with plan as (select zero_ns from {{schedules}} where window_name = 'burst'),"
        " span as (select start_ns, end_ns from {{windows}} where window_name = 'burst')"
        " select (({at} - zero_ns) // 1000000) % 10 as phase, sum({amount}) from {rows}, plan, span"
        " where {at} between greatest(span.start_ns, zero_ns) and span.end_ns and {which} group by 1 order by 1"
    )
    sent = {"rows": "{flows} flows", "amount": "bytes", "which": "window_name = 'burst' and error = ''"}
    seen = {"rows": "{cross_packets}", "amount": "wire_bytes", "which": "node = 'h1' and direction = 'out'"}

    def shares(**what):
        amounts = [amount for _, amount in ask(folder, within.format(**what))]
        assert len(amounts) == 10
        return [amount / sum(amounts) * 10 for amount in amounts]

    assert shares(**sent, at="planned_start_ns")[0] == pytest.approx(3, rel=0.1)
    # Bins begin at whole milliseconds, wherever in one the schedule began.
    share, said = shares(**seen, at="bin_ns"), shares(**sent, at="last_byte_ns // 1000000 * 1000000")
    for around in ((9, 0, 1), (4, 5, 6)):
        assert sum(share[phase] for phase in around) == pytest.approx(sum(said[phase] for phase in around), rel=0.15)


def test_the_report_shows_schedule_and_capture(finished):
    _, folder = finished
    (page,) = folder.parent.glob("report-*.html")
    text = page.read_text()
    assert "Schedule and capture" in text
    assert "Rates of generated cross traffic" in text
