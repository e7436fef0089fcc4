"""What a rank is given: settings, as JSON in its working folder, and options in its command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, List, Tuple, TypedDict

FILE = "config.json"

LayerPlan = Tuple[float, float, List[int]]  # forward in seconds, backward in seconds, sizes of the parameter tensors


class TrainingSettings(TypedDict):
    """What a rank is given of an emulated model, where its framework meets the other ranks by itself."""

    layers: List[LayerPlan]
    batch: int  # samples of an iteration
    seed: int
    threads: int  # that may compute


def load() -> Any:
    """The settings; their shape is that of the program's `Settings`."""
    return json.loads(Path(FILE).read_text())


def checksum_requested() -> bool:
    """Whether the command line asks for the sum of all parameters after each iteration; another option is an error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checksum", action="store_true", help="log the sum of all parameters after each iteration")
    return bool(parser.parse_args().checksum)
