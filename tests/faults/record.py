"""What was carried out so far, in a file for each version of the sources, and tables of it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from tests.bench.figure import Table
from tests.faults.carrying import Result
from tests.faults.matrix import Case

ROOT = Path(__file__).parents[2]
SOURCES = (
    "orchestrator", "workloads", "cross_traffic", "playbooks/hosts", "tests/faults", "tests/helpers",
    ":(exclude)*.md",
)  # fmt: skip
HEADER = ("row", "what breaks", "testbed", "times", "held", "seconds")


def version() -> str:
    """A hash of all that a case carries out, as it lies here: what is no part of it may change without a new one."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *SOURCES], cwd=ROOT, capture_output=True, check=True).stdout
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.split(b"\0"))):
        path = ROOT / name.decode()
        digest.update(name + b"\0" + (hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""))
    return digest.hexdigest()[:12]


def seed_of(case: str, number: int) -> int:
    """The seed of a repetition of a case: the same for everybody."""
    return int.from_bytes(hashlib.sha256(f"{case} {number}".encode()).digest()[:4], "big")


class Record:
    """Results of a version in a file, a line each; what was interrupted has none, and is carried out again.

    Files of other versions lie beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):
            path.write_text("".join(lines[:-1]))
        self.results = _results(path)

    def add(self, result: Result) -> None:
        with self.path.open("a") as file:
            file.write(_line(result))
        self.results.append(result)

    def forget(self, names: Collection[str]) -> None:
        """Have these cases carried out anew."""
        kept = [result for result in self.results if result.case not in names]
        self.path.write_text("".join(_line(result) for result in kept))
        self.results = kept

    def missing(self, cases: Sequence[Case], repeat: int) -> list[tuple[Case, int]]:
        """What is still to be carried out: the first repetition of all, then the second of all."""
        done = {(result.case, result.number) for result in self.results}
        return [(case, number) for number in range(repeat) for case in cases if (case.name, number) not in done]

    def of(self, case: Case) -> list[Result]:
        return [result for result in self.results if result.case == case.name]


def _results(path: Path) -> list[Result]:
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [Result(**json.loads(line)) for line in lines if line.endswith("\n")]


def _line(result: Result) -> str:
    return json.dumps(asdict(result)) + "\n"


def rows(cases: Iterable[Case], record: Record) -> list[tuple[str, ...]]:
    """A line of the table for each case."""
    return [(*_title(case), *_figures(record.of(case))) for case in cases]


def _title(case: Case) -> tuple[str, str, str]:
    return case.name.partition("@")[0], case.what, case.place


def _figures(results: Sequence[Result]) -> tuple[str, str, str]:
    if not results:
        return "0", "-", "-"
    held = sum(result.held for result in results)
    failing = sorted({check for result in results for check in result.failures})
    told = "all" if held == len(results) else f"{held}; not: {', '.join(failing)}"
    return str(len(results)), told, f"{median(result.seconds for result in results):.0f}"


def table(cases: Sequence[Case], record: Record) -> Table:
    """Return what is on record, as docs/measurements has it."""
    return Table(title="", columns=HEADER, rows=tuple(rows(cases, record)))


def text(lines: Sequence[Sequence[str]]) -> str:
    table = [HEADER, *lines]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADER))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in table
    )
