"""Fig 8 of Zerwas et al., from trainings whose course is known."""

from __future__ import annotations

import numpy as np
import pytest
from test_zerwas import run

from orchestrator.analysis.windows.time_to_accuracy import Learning
from orchestrator.papers.zerwas import frameworks, learned, page
from orchestrator.papers.zerwas.frameworks import PAIRS
from orchestrator.papers.zerwas.learned import Learned
from orchestrator.papers.zerwas.published import zerwas
from orchestrator.store import rundir
from orchestrator.store.tabular.tables import TableWriter

MB = 1e6


def course(accuracies: list[float], *, epoch_mb: float) -> Learning:
    """An epoch takes two seconds."""
    epoch = np.arange(1, len(accuracies) + 1)
    return Learning(
        epoch=epoch,
        seconds=2.0 * epoch,
        sent_bytes=epoch_mb * MB * epoch,
        accuracy=np.array(accuracies),
        loss=1.0 / epoch,
    )


def runs(accuracies: list[float], *, epoch_mb: float) -> list[Learning]:
    """Two runs that are alike."""
    return [course(accuracies, epoch_mb=epoch_mb)] * 2


def trained(tmp_path, framework: str, seed: int, *courses: Learning, optimizer: str = "adam") -> Learned:
    (one,) = frameworks.measured([run(tmp_path, framework, seed=seed)], ["mobilenet_v2"])
    return Learned(point=one.point, framework=framework, optimizer=optimizer, runs=courses)


def compared(found: list[Learned]) -> dict[str, tuple[str, str]]:
    return {line.what: (line.ours, line.verdict) for line in learned.accuracy(found, zerwas()).comparisons}


FAST, SLOW = [0.4, 0.6, 0.8, 0.85], [0.2, 0.4, 0.6, 0.8]


def test_pair_averaging_is_held_against_all_reduce_with_its_optimizer(tmp_path):
    found = [
        trained(tmp_path, "horovod-gloo", 1, *runs(FAST, epoch_mb=60)),
        trained(tmp_path, "binary-tree-star", 2, *runs(FAST, epoch_mb=60)),
        trained(tmp_path, "horovod-gloo", 3, *runs(SLOW, epoch_mb=60), optimizer="sgd"),
        trained(tmp_path, PAIRS, 4, *runs(FAST, epoch_mb=40)),
    ]
    what = "volume until 60%, pair averaging over all-reduce"
    assert compared(found)[what] == ("0.6667 (0.6667 to 0.6667)", "agrees")
    slower = [*found[:3], trained(tmp_path, PAIRS, 5, *runs(SLOW, epoch_mb=40))]
    assert compared(slower)[what] == ("1 (1 to 1)", "differs")
    once = [*found[:3], trained(tmp_path, PAIRS, 7, course(FAST, epoch_mb=40))]
    assert compared(once)[what] == ("0.6667", "cannot tell")
    never = [*found[:3], trained(tmp_path, PAIRS, 6, *runs([0.1] * 4, epoch_mb=40))]
    assert compared(never)[what][1] == "cannot tell"


def test_gains_diminish_where_the_first_half_of_the_bytes_wins_more(tmp_path):
    found = [trained(tmp_path, "horovod-gloo", 1, *runs(FAST, epoch_mb=60))]
    what = "diminishing gains in accuracy with more data"
    assert compared(found)[what][1] == "agrees"
    assert compared(found)[what][0].endswith("in 2 of 2 repetitions")
    late = trained(tmp_path, "tensorflow", 2, *runs([0.1, 0.12, 0.4, 0.9], epoch_mb=60))
    assert compared([*found, late])[what][1] == "differs"
    assert compared([])[what][1] == "cannot tell"


def test_the_table_says_what_each_level_took(tmp_path):
    several = course(FAST, epoch_mb=60), course(SLOW, epoch_mb=60)
    section = learned.accuracy([trained(tmp_path, "horovod-gloo", 1, *several)], zerwas())
    ((called, last, *took),) = section.tables[0].rows
    assert (called, last) == ("Horovod on Gloo, adam", "85.0%")
    assert took == ["150", "210", "5", "7"], "means over both runs"


def test_runs_that_learned_are_found_by_their_table_and_left_out_of_volumes(tmp_path):
    entry = run(tmp_path, "horovod-gloo", compute="real", optimizer="adam")
    assert frameworks.measured([entry], ["mobilenet_v2"]) == ()
    with TableWriter(entry.path / "more", run=entry.manifest.run) as writer:
        writer.add(
            "accuracy",
            {
                "job": ["training"] * 4,
                "rank": [0, 1, 0, 1],
                "window_name": [""] * 4,
                "epoch": [1, 1, 2, 2],
                "iteration": [4, 4, 9, 9],
                "end_ns": [entry.manifest.began_ns + 10**10] * 4,
                "evaluation_s": [0.1] * 4,
                "samples": [50] * 4,
                "correct": [10, 20, 40, 45],
                "loss": [1.0] * 4,
            },
        )
    (entry.path / "more/accuracy.parquet").rename(entry.path / "tables/accuracy.parquet")
    (one,) = learned.learned([rundir.entry_at(entry.path)])
    assert (one.framework, one.optimizer) == ("horovod-gloo", "adam")
    assert one.runs[0].accuracy.tolist() == pytest.approx([0.3, 0.85])
    content = page.content([entry], tmp_path)
    (section,) = (section for section in content.sections if section.title.startswith("Fig 8"))
    assert [picture.name for picture in section.pictures] == ["accuracy-time"]
