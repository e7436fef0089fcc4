"""Compute times that were fitted on this machine: a file for each experiment that they were fitted with."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.experiment import loading
from orchestrator.experiment.experiment import resolved_data
from orchestrator.experiment.studyfile import Calibration
from orchestrator.store import atomic
from orchestrator.study.compute_fit import Fitted

CPUINFO = Path("/proc/cpuinfo")


def machine() -> dict[str, str | int]:
    """What emulated compute depends on: the processors' model and number, and the kernel."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
    }


def path_of(calibration: Calibration) -> Path:
    """Where the times of this machine and this experiment lie; another scale is another experiment."""
    experiment, _ = loading.checked(calibration.experiment, calibration.overrides, local=False)
    asked = {"machine": machine(), "experiment": resolved_data(experiment)}
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    return cache / "orch" / "calibration" / f"{digest}.json"


def read(path: Path) -> dict[str, Fitted]:
    """What was fitted, by model; nothing where nothing was. StoreError where the file cannot be understood."""
    try:
        return {model: Fitted(**fitted) for model, fitted in json.loads(path.read_bytes())["models"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} holds no calibration: {error}", hint="remove it, or `orch calibrate --new`") from None


def write(path: Path, fitted: Mapping[str, Fitted]) -> None:
    """Keep what was fitted, whole or not at all."""
    document = {"machine": machine(), "models": {model: asdict(one) for model, one in fitted.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, document)
