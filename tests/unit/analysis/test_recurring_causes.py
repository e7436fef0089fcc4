"""Which causes several runs name: how many of how many, in which nights, and where nothing is known."""

from __future__ import annotations

import json

import pytest

from orchestrator.analysis.causes import recurring
from orchestrator.analysis.causes.explanation import Finding
from orchestrator.store.tabular import tables
from tests.helpers.experiments import orch
from tests.helpers.night_runs import write_run


def finding(host: str, share: float, cause: str = "link-rate") -> Finding:
    place = f"{host}'s link, sending"
    return Finding(
        cause=cause, place=place, hosts=(host,), share=share, low=share, high=share, seconds=0.1, evidence=("x",)
    )


def run(number: int, night: int, *findings: Finding) -> recurring.Named:
    return recurring.Named(run=f"r{number}", night=f"2026-11-2{night}", findings=findings)


def test_the_host_that_most_runs_name_comes_first_with_how_many_of_how_many():
    runs = [
        run(1, 1, finding("h3", 0.5)),
        run(2, 1),
        run(3, 2, finding("h1", 0.6, "delay"), finding("h3", 0.2)),
        run(4, 3, finding("h3", 0.3)),
    ]
    found = recurring.culprits(runs)
    assert [(one.hosts, one.runs, one.first) for one in found] == [
        (("h3",), ("r1", "r3", "r4"), 2),
        (("h1",), ("r3",), 1),
    ]
    first = "3 of 4 runs (3 of 3 nights, 2026-11-21 to 2026-11-23)"
    assert recurring.text(runs, found) == [
        "4 runs of 3 nights, in 1 of which nothing stands out",
        f"{first}: h3's link, sending is below its rate: 20% to 50% of the time, largest in 2",
        "1 of 4 runs (1 of 3 nights): h1's link, sending are delayed: 60% of the time, largest in 1",
    ]


def test_a_run_with_several_windows_counts_once_by_its_largest():
    (found,) = recurring.culprits([run(1, 1, finding("h3", 0.2), finding("h3", 0.4))])
    assert (found.runs, found.shares) == (("r1",), (0.4,))


def test_runs_without_the_table_are_not_runs_without_a_cause():
    runs = [run(1, 1), recurring.Named(run="r0", night="2026-11-20", findings=None)]
    (line,) = recurring.text(runs, recurring.culprits(runs))
    assert line.startswith("1 runs of 1 night, in 1 of which nothing stands out; 1 more have no table")


@pytest.fixture
def nights(tmp_path):
    """Three nights of a sweep: h3 is named in the first and the last of them, and the second one has no table."""
    runs = [write_run(tmp_path, night=night) for night in range(3)]
    for path, share in ((runs[0], 0.5), (runs[2], 0.2)):
        row = dict.fromkeys(("cost_share", "low_share", "high_share"), share)
        row |= {"window_name": "load0", "job": "training", "cause": "link-rate", "place": "h3's link, sending"}
        row |= {"hosts": "h3", "cost_s": 0.1, "evidence": "x"}
        tables.write(path / "tables", "causes", {name: [value] for name, value in row.items()}, run=path.name)
    return tmp_path, runs


TOLD = (
    "2 of 2 runs (2 of 2 nights, 2026-11-18 to 2026-11-20): h3's link, sending is below its rate: "
    "20% to 50% of the time, largest in 2"
)


def test_why_of_several_runs_names_what_recurs(nights):
    results, runs = nights
    names = [path.name for path in runs]
    status, out, err = orch("why", *names, "--results", str(results))
    assert (status, err) == (0, "")
    first, second = out.splitlines()
    assert first.startswith("2 runs of 2 nights, in 0 of which nothing stands out; 1 more have no table of causes")
    assert second == TOLD
    _, out, _ = orch("why", *names, "--json", "--results", str(results))
    told = json.loads(out)
    assert [one["run"] for one in told["runs"]] == names
    assert [one["findings"] is None for one in told["runs"]] == [False, True, False]
    assert [one["runs"] for one in told["recurring"]] == [[names[0], names[2]]]
    status, _, err = orch("why", *names, "--iteration", "3", "--results", str(results))
    assert status == 2
    assert "--iteration: 3 runs; accepted: one of them" in err


def test_a_history_ends_with_the_causes_that_recur(nights):
    results, runs = nights
    status, out, _ = orch("history", "nightly", "--results", str(results))
    assert status == 0
    assert out.splitlines()[-1].strip() == TOLD
    for path in runs:
        (path / "tables" / "causes.parquet").unlink(missing_ok=True)
    _, out, _ = orch("history", "nightly", "--results", str(results))
    assert "recur" not in out
