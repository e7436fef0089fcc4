"""`python -m tests.bench [NAME...]`: measures, and prints each number beside what it is held against."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from orchestrator.core.errors import OrchError
from tests.bench import recording
from tests.bench.commands import ROOT, CommandError
from tests.bench.figure import Figure, Settings, Table

BENCHMARKS = (
    "start", "reader", "captures", "closing", "big_captures", "testbed", "samplers", "counters", "transport",
    "overhead", "load", "payload", "variants", "collectors", "meter", "logs", "flow_generator", "overload",
    "flow_cost", "flow_times", "local_drops", "nights", "validity", "papers", "store", "site", "sweep", "size",
    "predict", "predicting", "containers", "slurm", "dilation", "causes", "choose", "until", "knee", "shrink",
    "fabric",
)  # fmt: skip
ON_REQUEST = ("kubernetes",)  # it needs programs that no package has


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measures the numbers that the documentation quotes. Times are told, never judged: the exit status "
        "is 1 only when something could not be measured.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all but kubernetes)")
    parser.add_argument("--list", action="store_true", help="say what each benchmark measures")
    parser.add_argument("--quick", action="store_true", help="few repetitions: does it work at all?")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write what is found to docs/measurements, a file a benchmark and machine, from which the site draws",
    )
    parser.add_argument(
        "--only", metavar="PATTERN", default="", help="predict: settings alone in whose kind or name this is found"
    )
    parser.add_argument("--most", type=int, metavar="N", help="predict: at most so many runs, evenly spread")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to this file too")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run benchmarks; gives the exit status."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.names if name not in BENCHMARKS + ON_REQUEST]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS + ON_REQUEST)}")
    if arguments.record and arguments.only:
        parser.error("--record takes settings of every kind: leave --only out")
    if arguments.list:
        for name in BENCHMARKS + ON_REQUEST:
            print(f"{name:<12} {module(name).__doc__.strip()}")
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background deaf to it
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGHUP, _terminated)
    machine = {**recording.this_machine(), "began": time.strftime("%Y-%m-%d %H:%M:%S")}
    print(", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    found: dict[str, Any] = {"machine": machine, "quick": arguments.quick, "benchmarks": {}}
    failed = []
    try:
        for name in arguments.names or BENCHMARKS:
            found["benchmarks"][name] = result = one(
                name, quick=arguments.quick, recorded=arguments.record, only=arguments.only, most=arguments.most
            )
            failed += [name] if result["error"] else []
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def one(name: str, *, quick: bool, recorded: bool = False, only: str = "", most: int | None = None) -> dict[str, Any]:
    """Run a benchmark, print its figures as they come, and give them with the error that ended it, if any.

    What ended early is not recorded.
    """
    chosen = module(name)
    print(f"\n{name}: {chosen.__doc__.strip()}", flush=True)
    load, began, error = os.getloadavg()[0], time.monotonic(), None
    found: list[Figure | Table] = []
    with tempfile.TemporaryDirectory(prefix="orch-bench-") as scratch:
        try:
            for measured in chosen.measure(Settings(quick=quick, scratch=Path(scratch), only=only, most=most)):
                found.append(measured)
                if isinstance(measured, Figure):
                    print(f"  {measured.text()}", flush=True)
        except (CommandError, OrchError, OSError, AssertionError) as failure:
            error = str(failure)
            print(f"  FAILED: {error}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(f"  took {seconds:.0f} s; load average when it began {load:.2f}", flush=True)
    if recorded and not error:
        beside = f"load average {load:.1f} when it began, {os.getloadavg()[0]:.1f} when it ended"
        command = f"python -m tests.bench {name} --most {most}" if most else None
        path = recording.record(name, found, load=beside, quick=quick, command=command)
        print(f"  wrote {path.relative_to(ROOT)}", flush=True)
    data = [measured.as_data() for measured in found]
    return {"figures": data, "error": error, "seconds": round(seconds, 1), "load_average": load}


def module(name: str) -> Any:
    """A benchmark's module, imported only when it is wanted."""
    return importlib.import_module(f"tests.bench.{name}")


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
