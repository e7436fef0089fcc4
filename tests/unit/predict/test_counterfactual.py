"""What iterations would have taken without their first cause: what is left out, the error, and refusals."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from orchestrator.analysis.causes.explanation import Explanation, Finding
from orchestrator.predict import counterfactual
from orchestrator.predict.counterfactual import Counterfactual

RATE = {"rate": {"where": "switch-port", "host": "h3", "rate": "5gbit"}}
LOAD = {"websearch": {"from": "h4", "to": "h1", "load": "18gbit"}}


def finding(cause: str, host: str, place: str = "a place") -> Finding:
    return Finding(
        cause=cause, place=place, hosts=(host,), share=0.2, low=0.1, high=0.3, seconds=0.04, evidence=("a queue",)
    )


def answer(tmp_path: Path, *findings: Finding, **changes: Any) -> Counterfactual:
    made: dict[str, Any] = {
        "name": "t",
        "testbed": {"local": {"hosts": 4, "link": "25gbit", "scale": 100}},
        "workload": {"ddp": {"model": "resnet50", "hosts": ["h1", "h2", "h3"]}},
        "measure": {"iterations": 5, "warmup": 0},
    }
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(made | changes, sort_keys=False))
    explanation = Explanation(
        run="r",
        window="w1",
        job="training",
        iterations=tuple(range(8)),
        measured=8,
        mean_s=0.2,
        noise=0.01,
        parts=(),
        findings=findings,
    )
    manifest: Any = SimpleNamespace(run="r", salt="abc", repetition=2)
    return counterfactual.of_run(tmp_path, manifest, explanation, results=tmp_path / "none")


@pytest.mark.parametrize(
    ("cause", "changes", "left_out"),
    [
        (finding("load", "h1", "websearch0 on h1's link, receiving"), {"traffic": [LOAD]}, "websearch0"),
        (finding("load", "h4"), {"traffic": [LOAD]}, "websearch0"),
        (finding("link-rate", "h3"), {"conditions": [RATE]}, "the condition rate"),
    ],
    ids=["by its name", "by its host", "a condition"],
)
def test_without_its_cause_a_run_is_as_if_that_were_not_there(
    cause: Finding, changes: dict[str, Any], left_out: str, tmp_path: Path
) -> None:
    found, plain = answer(tmp_path, cause, **changes), answer(tmp_path, finding("load", "h4"), traffic=[LOAD])
    assert found.left_out == (left_out,)
    assert found.without_s < 0.9 * found.simulated_s
    assert found.without_s == pytest.approx(plain.without_s, rel=0.02)
    assert found.error == pytest.approx(found.simulated_s / 0.2 - 1)
    assert found.text.startswith(f"without  {left_out} an iteration would take ")


@pytest.mark.parametrize(
    ("findings", "changes", "words"),
    [
        ((), {}, "no cause stands out"),
        ((finding("slow-rank", "h2"),), {}, "nothing that this cause could be left out of"),
        ((finding("load", "h4"),), {"traffic": [LOAD], "conditions": [{"ecn": {"host": "h1", "share": "1%"}}]}, "ecn"),
    ],
)
def test_what_cannot_be_told_says_why(
    findings: tuple[Finding, ...], changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    found = answer(tmp_path, *findings, **changes)
    assert words in found.unknown
    assert found.text == f"without  not simulated: {found.unknown}"
