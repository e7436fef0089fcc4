"""What a run that a busy machine spoilt leaves to the next try."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers import orch_runs


class Orch:
    """`orch` whose first runs are spoilt, and all of whose runs leave a capture on a host."""

    def __init__(self, spoilt: int) -> None:
        self.spoilt = spoilt
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, name: str, *arguments: object) -> tuple[int, str, str]:
        self.calls.append((name, *map(str, arguments)))
        if name == "prune":
            return 0, "", ""
        number = sum(call[0] == "run" for call in self.calls)
        folder = Path(self.calls[-1][self.calls[-1].index("--results") + 1]) / "own" / f"run-{number}"
        folder.mkdir(parents=True)
        valid = number > self.spoilt
        gates = [{"name": "drift", "required": True, "passed": valid}]
        manifest = {"stayed": [{"node": "h1"}], "windows": [{"gates": gates}]}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return 0 if valid else 3, json.dumps({"runs": [{"run": folder.name, "stage": "sealed"}]}), ""


@pytest.mark.parametrize("spoilt", range(orch_runs.TRIES))
def test_captures_of_a_spoilt_try_are_removed_from_their_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spoilt: int
) -> None:
    """And those of the try that counts stay."""
    orch = Orch(spoilt)
    monkeypatch.setattr(orch_runs, "orch", orch)
    summary, folder = orch_runs.measured("experiment.yaml", tmp_path)
    assert [run["run"] for run in summary["runs"]] == [f"run-{spoilt + 1}"]
    pruned = [call for call in orch.calls if call[0] == "prune"]
    where = [call[call.index("--results") + 1] for call in pruned]
    assert where == [str(tmp_path / str(number)) for number in range(spoilt)]
    assert str(folder) not in where
    assert all(call[call.index("--testbed") + 1] == "experiment.yaml" for call in pruned)
    assert [call[0] for call in orch.calls] == ["run", *["prune", "run"] * spoilt]
