"""Distributions of sizes, of flows in bytes or of prompts in tokens: supplied ones, and any file of the user's."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import ConfigError

SIZES = Path(__file__).parent / "cdf"
CONTEXTS = Path(__file__).parent / "contexts"
HEADS = ("bytes,cdf", "tokens,cdf")
MOST_POINTS = 10_000
LARGEST_BYTES = 1e15
NEARLY_ONE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A piecewise-linear cumulative distribution: (size, probability) of each point; the last probability is 1.

    What probability the first point has lies on it, as an atom.
    """

    name: str
    source: str  # where it is from, as its file says
    points: tuple[tuple[float, float], ...]


def known(folder: Path = SIZES) -> tuple[str, ...]:
    """Return the names of the distributions that are supplied in a folder."""
    return tuple(sorted(path.stem for path in folder.glob("*.csv")))


def find(name: str, *, folder: Path = SIZES) -> Distribution:
    """Return a distribution by its name, or from the file at this path; ConfigError tells what is wrong with it."""
    if name in known(folder):
        return load(folder / f"{name}.csv")
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"there is no distribution {name!r}",
            hint=f"one of {', '.join(known(folder))}, or the path of a file of lines size,cdf",
        )
    return load(path)


def load(path: Path) -> Distribution:
    """Read a file of lines `bytes,cdf`: sizes and probabilities that never fall, the last one 1.

    Lines that begin with '#' are comments, the first of them is the source; a line `bytes,cdf` may head the columns, or
    `tokens,cdf` where sizes are counted in tokens.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    source = next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")
    points: list[tuple[float, float]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#") or line.replace(" ", "").lower() in HEADS:
            continue
        point = _point(line, f"{path}:{number}")
        _refuse_fall(points, point, f"{path}:{number}")
        points.append(point)
        if len(points) > MOST_POINTS:
            raise ConfigError(f"{path}:{number}: more than {MOST_POINTS} points")
    if not points:
        raise ConfigError(f"{path}: holds no points", hint="a line `bytes,cdf` a point, such as 10000,0.15")
    size, share = points[-1]
    if abs(share - 1) > NEARLY_ONE:
        raise ConfigError(f"{path}: the last point has probability {share:g}, not 1")
    if size <= 0:
        raise ConfigError(f"{path}: every flow would be of 0 bytes")
    return Distribution(name=path.stem, source=source, points=(*points[:-1], (size, 1.0)))


def _point(line: str, at: str) -> tuple[float, float]:
    cells = next(csv.reader([line]))
    try:
        size, share = map(float, cells)
    except ValueError:
        raise ConfigError(f"{at}: {line.strip()!r} is not two numbers, bytes,cdf") from None
    if not (math.isfinite(size) and 0 <= size <= LARGEST_BYTES):
        raise ConfigError(f"{at}: {cells[0]} is no size: 0 to {LARGEST_BYTES:.0e} bytes")
    if not 0 <= share <= 1 + NEARLY_ONE:  # false for NaN too
        raise ConfigError(f"{at}: {cells[1]} is no probability: 0 to 1")
    return size, share


def _refuse_fall(before: list[tuple[float, float]], point: tuple[float, float], at: str) -> None:
    if not before:
        return
    for what, old, new in zip(("sizes", "probabilities"), before[-1], point, strict=True):
        if new < old:
            raise ConfigError(f"{at}: {what} must not fall, and {new:g} comes after {old:g}")
