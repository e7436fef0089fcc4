"""Which causes several runs name: how many of how many, in which nights, and where nothing is known."""

from __future__ import annotations

from orchestrator.analysis.causes import recurring
from orchestrator.analysis.causes.explanation import Finding


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
