"""Li's study: what its sections make of runs, and what they say of the paper without any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.core.errors import StoreError
from orchestrator.papers.li import accuracy, experts, heatmaps, page, printed_training, sizes
from orchestrator.papers.li.published import li
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.parts.terms import Terms
from orchestrator.parts.topology import Node
from orchestrator.predict import messages
from workloads import ptd

NOTHING = Found(replicated=(), split=(), experts=(), benchmarks=(), costs=None)


def test_runs_of_another_study_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nothing to show"):
        page.content([], tmp_path)


def test_table_3_is_our_model_beside_theirs_and_no_measurement() -> None:
    section = sizes.table_3(NOTHING, li())
    assert len(section.comparisons) == 12
    assert {one.verdict for one in section.comparisons} == {"not judged"}
    assert {one.difference for one in section.comparisons} <= {"+0.0 %", "-0.1 %"}


def test_the_papers_heatmaps_are_drawn_and_more_tensor_ranks_reach_further(tmp_path: Path) -> None:
    section = heatmaps.section(NOTHING, li(), tmp_path)
    reach, captured = section.comparisons
    assert reach.verdict == "not judged", "nothing is measured"
    assert "32 against 16 pairs" in reach.ours
    assert captured.verdict == "cannot tell"
    assert (tmp_path / "heatmap-paper.svg").exists()


def test_the_customized_mapping_keeps_stages_on_a_machine_and_replicas_apart() -> None:
    default, customized = (printed_training.subject(mapping=name) for name in ("default", "customized"))
    assert isinstance(default.topology.nodes[0], Node)
    for one, kinds in ((default, {"pipeline", "embedding"}), (customized, {"data"})):
        crossing = {
            kind
            for kind, pairs in ptd.traffic(one.config, 1).items()
            if any(one.network.node_of[src] != one.network.node_of[dst] for src, dst in pairs)
        }
        assert crossing == kinds
    assert messages.of_rank(default, 0) == messages.of_rank(customized, 0)


def routing(iterations: int, *, spread: float) -> SimpleNamespace:
    """A run of four ranks whose busiest pair sends `spread` bytes more than the others, less as iterations go on."""
    rows = []
    for iteration in range(iterations):
        more = round(spread * (1 - iteration / iterations))
        rows += [
            {
                "iteration": iteration,
                "rank": rank,
                "peer": peer,
                "nonuniform_bytes": more,
                "bytes": 1000 + 10 * iteration + (more if (rank, peer) == (0, 1) else 0),
            }
            for rank in range(4)
            for peer in range(4)
        ]
    manifest = SimpleNamespace(jobs=(SimpleNamespace(model="gpt2"),))
    return SimpleNamespace(rows=lambda _name: rows, scale=100, manifest=manifest, name="made")


def test_experts_that_even_out_keep_the_papers_claims_and_others_do_not(tmp_path: Path) -> None:
    evening = experts.section([routing(40, spread=500)] * 2, li(), tmp_path)  # type: ignore[list-item]
    assert [one.verdict for one in evening.comparisons] == ["agrees"] * 3
    even = experts.section([routing(40, spread=0)] * 2, li(), tmp_path)  # type: ignore[list-item]
    assert [one.verdict for one in even.comparisons] == ["differs", "agrees", "cannot tell"]
    once = experts.section([routing(40, spread=500)], li(), tmp_path)  # type: ignore[list-item]
    assert {one.verdict for one in once.comparisons} == {"cannot tell"}
    short = experts.section([routing(5, spread=500)], li(), tmp_path)  # type: ignore[list-item]
    assert {one.verdict for one in short.comparisons} == {"cannot tell"}


def test_a_term_is_judged_by_its_own_size_however_small_it_is_in_the_iteration() -> None:
    """Communication of 3 % of the iteration, predicted half as long: the iteration is 98 % right, this is not."""
    measured = Terms(compute_s=0.97, data_s=0.03)
    one = Training(
        point=SimpleNamespace(job=SimpleNamespace(compute="emulated")),
        subject=None,
        prediction=SimpleNamespace(terms=replace(measured, data_s=0.015), iteration_s=0.985),
        runs=(),
    )
    one.__dict__["terms_of_runs"] = tuple({0: replace(measured, data_s=0.03 + run / 1e4)} for run in range(3))
    communication = accuracy.compared("data parallel", "T_comm", [one], li())
    assert (communication.verdict, communication.ours.partition(" ")[0]) == ("differs", "49.83")
    computing = accuracy.compared("data parallel", "T_comp", [one], li())
    assert computing.verdict == "cannot tell"
    assert "compute is emulated" in computing.why
