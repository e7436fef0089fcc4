"""Manifests that tests start from: what matters to each as plain data, through the reader that the store has."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.store.manifests import coding
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.rundir import RunFolder, controller
from orchestrator.store.stamps import MANIFEST

BARE: dict[str, Any] = {
    "run": "r1",
    "experiment": "e",
    "outcome": "completed",
    "began_ns": 1_795_000_000_000_000_000,
    "topology": {"kind": "local", "nodes": [], "links": []},
}
NOT_JUDGED = {"start_ns": 1, "end_ns": 2, "valid": False, "reasons": []}


def made(**more: Any) -> Manifest:
    """A manifest that says this beside the least that there is."""
    return _read({**BARE, **more}, Manifest)


def window(window: str = "w1", **more: Any) -> Window:
    """A window of a manifest."""
    return _read({"name": window, **NOT_JUDGED, **more}, Window)


def launch(name: str = "p", node: str = "h1", **more: Any) -> dict[str, Any]:
    """A process of a manifest, as plain data."""
    return {"name": name, "node": node, "part": "workload.ddp", "role": "rank", "argv": [], **more}


def left(folder: Path, **more: Any) -> Path:
    """Leave such a manifest in a run's folder, which is made if need be; gives the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(json.dumps({**BARE, **more}))
    return folder


def begun(results: Path, run: str = "r1", **more: Any) -> RunFolder:
    """The folder of a run that this process has begun."""
    about = {"outcome": "running", "stage": "start", "controller": asdict(controller())}
    return RunFolder.create(results, made(run=run, **{**about, **more}))


def _read(data: dict[str, Any], kind: type[Any]) -> Any:
    return coding.decoded(json.dumps(data).encode(), kind)
