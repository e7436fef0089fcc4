"""Li's document: its settings follow from what is printed, and its own drawings and questions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.experiment import paperfile
from orchestrator.papers import answering, drawing, reading
from orchestrator.questions import messages
from orchestrator.report.style import look
from workloads import ptd
from workloads.models import formulation, gpt

FILE = Path(__file__).parents[3] / "playbooks/papers/li/paper.yaml"
PEAK = 71e12  # FLOP/s of an RTX 3090 at 16 bits (NVIDIA); the paper prints no F


def printed(table: str) -> list[dict[str, float]]:
    return answering.as_rows(reading.paper(FILE).file.printed[table])


def test_compute_times_follow_equation_9_with_the_printed_utilization():
    mu = next(row["mu"] for row in printed("utilization") if row["platform"] == "RTX3090")
    sweeps = {one.file.name: one for one in paperfile.load(FILE, version="full").sweeps}
    configs = [
        point.experiment.all_jobs()[0].workload.config
        for name in ("li-gpt", "li-gpt-16")
        for point in sweeps[name].points
    ]
    assert {config.model for config in configs} == {"gpt-1.5b", "gpt-3b"}
    for config in configs:
        shape = gpt.shape_of(config.model)
        size = {"layers": shape.layers, "h": shape.hidden, "s": shape.sequence, "vocabulary": shape.vocabulary}
        split = formulation.Split(
            p=config.pipeline, t=config.tensor, d=config.data, m=config.microbatches, b=config.batch
        )
        wanted = formulation.compute_s(
            split, parameters=formulation.parameters(**size), s=shape.sequence, f=PEAK, mu=mu
        )
        assert config.compute_time == pytest.approx(wanted, rel=0.002)


def test_the_full_study_trains_the_printed_gpts_on_as_many_ranks_in_both_mappings():
    wanted = {
        (row["model"], row["split"], row["ranks"], mapping)
        for row in printed("gpts")
        for mapping in ("default", "customized")
    }
    found = set()
    for sweep in paperfile.load(FILE, version="full").sweeps:
        for point in sweep.points:
            config = point.experiment.all_jobs()[0].workload.config
            if isinstance(config, ptd.Config):
                split = f"({config.pipeline}, {config.tensor}, {config.data})"
                found.add((config.model, split, len(config.hosts or ()), config.mapping))
    assert wanted <= found


def test_links_have_the_printed_rate_in_every_version():
    for version in ("quick", "full"):
        for sweep in paperfile.load(FILE, version=version).sweeps:
            rates = {point.resolved["testbed"]["local"]["link"] for point in sweep.points}
            assert rates == {"100gbit"}, sweep.file.name


@pytest.mark.parametrize(
    ("span", "what", "kind"),
    [
        ("all-reduce", "bucket 3", "data"),
        ("all-reduce", "data", "data"),
        ("all-reduce", "tensor, block 2", "tensor"),
        ("all-reduce", "embedding", "embedding"),
        ("send", "forward 1", "pipeline"),
        ("receive", "backward 1", "pipeline"),
        ("all-gather", "", "all-gather"),
    ],
)
def test_kinds_of_messages(span, what, kind):
    assert messages.kind_of({"span": span, "what": what}) == kind


def test_messages_are_those_of_the_first_counted_iteration_at_full_size():
    row = {"job": "j", "rank": 0, "window_name": "w", "lane": "communication", "bytes": 3}
    rows = [
        {**row, "iteration": 0, "window_name": ""},
        {**row, "iteration": 2},
        {**row, "iteration": 2, "bytes": None},
        {**row, "iteration": 2, "rank": 1},
        {**row, "iteration": 3},
    ]
    run = SimpleNamespace(rows=lambda _: rows, scale=100)
    assert [one["bytes"] for one in messages.recorded(run, 0, "j")] == [300.0]


def test_mappings_and_schedules_are_drawn():
    paper = reading.paper(FILE)
    places = [
        {"training": "t", "machine": rank // 2, "place": rank % 2, "rank": rank, "stage": rank, "part": 0, "replica": 0}
        for rank in range(4)
    ]
    spans = [
        {"training": "t", "stage": stage, "span": span, "begin_ms": begin, "ms": 1.0}
        for stage in range(2)
        for begin, span in enumerate(("forward", "receive", "backward"))
    ]
    for kind, rows in (("answers.mapping", places), ("answers.bars_of_stages", spans)):
        with look():
            (panel,) = drawing.drawn(paper, paperfile.Draw(kind=kind), rows).axes
        assert "t" in (panel.get_title(loc="left"), panel.get_xlabel().partition(":")[0])
        assert len(panel.patches) == len(rows)
        assert np.isfinite(panel.get_ylim()).all()
