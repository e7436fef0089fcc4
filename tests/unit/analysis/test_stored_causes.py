"""What `orch show`, reports and comparisons say of the table `causes`."""

from __future__ import annotations

from orchestrator.analysis.causes import stored
from orchestrator.store.tabular import tables

ROW = {
    "window_name": "w1",
    "job": "training",
    "cause": "link-rate",
    "place": "h3's link, sending",
    "hosts": "h3",
    "cost_share": 0.62,
    "low_share": 0.6,
    "high_share": 0.64,
    "cost_s": 0.24,
    "evidence": "one\ntwo",
}


def run(folder, *rows):
    columns = {name: [{**ROW, **row}[name] for row in rows] for name in ROW}
    tables.write(folder / "tables", "causes", columns, run="r")
    return folder


def test_the_largest_cause_of_each_window_is_told_with_its_share(tmp_path):
    found = stored.lines(run(tmp_path, {}, {"window_name": "w2", "cost_share": 0.3}, {"cause": "delay"}))
    assert found[0] == (
        "h3's link, sending is below its rate: 62% of the time in w1, training; 30% of the time in w2, training"
    )
    assert found[1:] == ["`orch why RUN` has the evidence"]


def test_nothing_is_said_where_nothing_stood_out(tmp_path):
    assert stored.lines(tmp_path) == []
    assert stored.lines(run(tmp_path)) == []


def test_a_cause_of_another_version_is_told_by_its_name(tmp_path):
    assert stored.lines(run(tmp_path, {"cause": "cosmic-rays", "place": "h9"}))[0].startswith("cosmic-rays: h9: 62%")


def test_what_both_sides_have_is_not_new(tmp_path):
    before = run(tmp_path / "a", {"cause": "processor", "hosts": ""})
    after = [run(tmp_path / name, {"cause": "processor", "hosts": ""}, {"cost_share": share}) for name, share in
             (("b", 0.5), ("c", 0.25))]  # fmt: skip
    assert stored.newly([before], after) == [
        "h3's link, sending is below its rate: 25% to 50% of the time in 2 of 2 runs"
    ]
    assert stored.newly(after, [before]) == []
