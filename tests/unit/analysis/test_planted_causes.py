"""Experiments in which the bench plants causes are ones that `orch run` takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from orchestrator.experiment import loading
from tests.bench import planted_causes


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_planted_alone_and_in_pairs_is_an_experiment(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    for cause in (*planted_causes.CAUSES, *planted_causes.pairs(seed, 12)):
        planted = planted_causes.draw(cause, seed)
        file.write_text(yaml.safe_dump(planted.experiment, sort_keys=False))
        loading.checked(file, [], local=False)
        assert planted.cause in (cause, "")
