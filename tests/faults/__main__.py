"""`python -m tests.faults [ROW...]`: carries out the fault matrix, and prints what held."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.bench import recording
from tests.faults import record as records
from tests.faults.carrying import Result
from tests.faults.matrix import Case, cases
from tests.faults.record import ROOT, Record
from tests.faults.side_by_side import carried_out, folder_of, interruptible


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Carries out the fault matrix.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="7, 7/ranks, 7@local or 7/ranks@local (default: all)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="carry each out so often in all (1)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time (1)")
    parser.add_argument("--under", type=int, metavar="S", help="only rows that take less than about S seconds")
    parser.add_argument("--over", type=int, metavar="S", help="only rows that take S seconds or more")
    parser.add_argument("--again", action="store_true", help="forget what was carried out of these rows")
    parser.add_argument("--list", action="store_true", help="say what each row breaks, and carry out nothing")
    parser.add_argument(
        "--record",
        metavar="LOAD",
        help="write all that is on record to docs/measurements; LOAD says what ran beside it",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=ROOT / "results/.faults",
        metavar="DIR",
        help="where results and the logs of rows that did not hold are kept (results/.faults)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out rows; gives 1 when one did not hold."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    try:
        chosen = cases(arguments.rows)
    except LookupError as word:
        parser.error(f"no row {word}; --list shows all")
    chosen = [
        case
        for case in chosen
        if (arguments.under is None or case.about_s < arguments.under)
        and (arguments.over is None or case.about_s >= arguments.over)
    ]
    if arguments.list:
        for case in chosen:
            print(f"{case.name:<24} {case.about_s:>4} s  {case.what}")
        return 0
    record = Record(arguments.results / f"{records.version()}.jsonl")
    if arguments.record:
        table = records.table(cases(), record)
        print(recording.record("faults", [table], load=arguments.record, command="python -m tests.faults"))
        return 0
    if arguments.again:
        record.forget({case.name for case in chosen})
    _carry_out(chosen, record, arguments.repeat, arguments.jobs)
    print(records.text(records.rows(chosen, record)), end="")
    return 0 if all(result.held for case in chosen for result in record.of(case)) else 1


def _carry_out(chosen: Sequence[Case], record: Record, repeat: int, jobs: int) -> None:
    logs = record.path.parent / "logs"
    interruptible()
    todo = [(case.name, number) for case, number in record.missing(chosen, repeat)]
    with closing(carried_out(todo, jobs, logs)) as results:
        for result in results:
            record.add(result)
            print(told(result, folder_of(logs, result.case, result.number)), flush=True)


def told(result: Result, folder: Path) -> str:
    """A result in words."""
    first = f"{result.case} #{result.number}: {result.seconds:.1f} s: {'held' if result.held else 'FAILED'}"
    wrong = [f"    {check}: {reason}" for check, reasons in result.failures.items() for reason in reasons]
    return "\n".join([first, *wrong, *([] if result.held else [f"    logs: {folder}"])])


if __name__ == "__main__":
    sys.exit(main())
