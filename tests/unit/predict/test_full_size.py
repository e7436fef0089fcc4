"""What the scale of a testbed costs, by simulation at both sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import fitting, loading
from orchestrator.predict import full_size, inputs
from orchestrator.predict.foreseeing import How
from orchestrator.predict.full_size import BothSizes


def both(tmp_path: Path, *, scale: int = 100, **changes: Any) -> BothSizes:
    file = tmp_path / "e.yaml"
    made: dict[str, Any] = {
        "name": "t",
        "testbed": {"local": {"hosts": 4, "link": "25gbit", "scale": scale}},
        "workload": {"ddp": {"model": "resnet50", "hosts": ["h1", "h2", "h3"]}},
        "measure": {"iterations": 3, "warmup": 0},
    }
    file.write_text(yaml.safe_dump(made | changes, sort_keys=False))
    experiment, _ = loading.checked(file, [], local=False)
    costs = inputs.usual(fitting.topology_of(experiment))
    (found,) = full_size.of_experiment(experiment, costs, file=str(file), how=How(draws=1), measured={})
    return found


def test_alone_a_training_takes_as_long_at_full_size(tmp_path: Path) -> None:
    found = both(tmp_path)
    assert found.iterations == found.planned == 3
    assert found.cost("mean") == pytest.approx(0.0, abs=0.05)
    assert "at full size" in full_size.text([found])
    assert full_size.data([found])[0]["scale_costs"]["mean"] == found.cost("mean")


def test_of_many_packets_the_first_iterations_are_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_size, "MOST_PACKETS", 1_500_000)
    source = [{"websearch": {"from": "h4", "to": "h1", "load": "16gbit"}}]
    found = both(tmp_path, traffic=source, measure={"iterations": 40, "warmup": 0})
    assert 1 <= found.iterations < found.planned == 40
    assert f"{found.iterations} of 40" in full_size.text([found])


def test_without_a_scale_there_is_nothing_to_tell(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="of full size already"):
        both(tmp_path, scale=1)
