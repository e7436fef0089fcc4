"""What made iterations slow stands at the top of a run's report, with a drawing of one of them."""

from __future__ import annotations

from pathlib import Path

from orchestrator.report.run import report_page
from orchestrator.report.run.slow_iteration import slow_iteration
from orchestrator.report.runs import Run
from orchestrator.report.style import look
from orchestrator.store.tabular import tables
from tests.helpers.sealed_run import make_run

DATA = Path(__file__).parents[2] / "data" / "causes"


def test_a_cause_stands_before_the_figures_with_its_evidence(tmp_path):
    run = make_run(tmp_path / "quickstart")
    columns = {
        "window_name": ["w1"],
        "job": ["training"],
        "cause": ["link-rate"],
        "place": ["h3's link, sending"],
        "hosts": ["h3"],
        "cost_share": [0.62],
        "low_share": [0.6],
        "high_share": [0.64],
        "cost_s": [0.24],
        "evidence": ["its queue held packets\nit left at 4gbit of 25gbit"],
    }
    tables.write(run / "tables", "causes", columns, run=run.name)
    page = report_page.render([run], tmp_path / "report.html").read_text()
    title, cause = page.index("What made iterations slow"), page.index("sending is below its rate: 62% of the time")
    assert title < cause < page.index("<figure>")
    assert "its queue held packets; it left at 4gbit of 25gbit" in page


def test_a_run_without_causes_has_no_such_section(tmp_path):
    run = make_run(tmp_path / "quickstart")
    (run / "tables/causes.parquet").unlink(missing_ok=True)
    assert "What made iterations slow" not in report_page.render([run], tmp_path / "report.html").read_text()


def test_the_slowest_iteration_is_drawn_with_ranks_rates_and_queues():
    with look():
        drawing, caption = slow_iteration(Run(DATA / "link-rate"))
        ranks, sent, queues = drawing.axes
    assert [label.get_text() for label in ranks.get_yticklabels()] == [f"rank {n}, h{n + 1}" for n in range(4)]
    assert {line.get_label() for line in sent.get_lines()} == {"h1", "h2", "h3", "h4"}
    assert queues.get_lines()[0].get_label() == "h3, receiving"  # the fullest one
    assert "the slowest one" in caption


def test_without_spans_nothing_is_drawn(tmp_path):
    assert slow_iteration(Run(make_run(tmp_path / "quickstart", skip=("spans",)))) is None
