"""The `orch` command: parses, calls, and renders errors."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.cli import (
    capture_cli,
    compare_cli,
    prepare_cli,
    prune_cli,
    query_cli,
    study_cli,
    sweep_cli,
    timeline_cli,
    traffic_cli,
)
from orchestrator.core import console, terminal
from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.store import listing

DESCRIPTION = """\
Measures what the network does to distributed training, and what training does to the network.

From one YAML file orch reaches the hosts over SSH, starts training, packet captures, counters and cross traffic,
brings everything home into one sealed folder, analyses it, and says whether the numbers count."""

EXAMPLES = """\
examples:
  orch doctor                                             can this machine carry a local testbed?
  orch plan playbooks/experiments/quickstart.yaml         every run, process and flag; touches nothing
  orch run playbooks/experiments/quickstart.yaml --dry-run
  orch run exp.yaml --set traffic.0.iperf.load=12gbit --set repeat=1
  orch ls                                                 the runs there are
  orch show last                                          one run in words
  orch report last                                        its figures and tables as one HTML file

exit status: 0 all is well and valid; 1 something failed; 2 a mistake in a file or an option, and nothing was
touched; 3 measured, but not valid, or nothing could be told; 4 slower than what it was
compared with; 130 interrupted."""


def build_parser() -> argparse.ArgumentParser:
    """The command line, with every command's help."""
    parser = argparse.ArgumentParser(
        prog="orch",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, action: Any, help_text: str, example: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=help_text,
            description=f"{help_text[0].upper()}{help_text[1:]}.",
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(action=action)
        return sub

    run = command(
        "run", _run, "carry out an experiment and seal its results",
        "orch run playbooks/experiments/quickstart.yaml --dry-run --set measure.iterations=50",
    )  # fmt: skip
    _experiment_options(run)
    _results_option(run)
    _wait_option(run)
    _metrics_option(run)
    _force_option(run)
    run.add_argument("--no-report", action="store_true", help="seal the results and render no report")

    plan = command("plan", _plan, "print every run, process, flag and file of an experiment; touches nothing",
                   "orch plan exp.yaml --dry-run --json | jq '.runs[0].jobs[0].launches[].argv'")  # fmt: skip
    _experiment_options(plan)
    _results_option(plan)

    sweep = command("sweep", None, "measure every point of a matrix; taken up again, it measures what is missing",
                    "orch sweep playbooks/sweeps/load.yaml --dry-run --where 'load<=8gbit'")  # fmt: skip
    _experiment_options(sweep)
    _results_option(sweep)
    _wait_option(sweep)
    _metrics_option(sweep)
    _force_option(sweep)
    sweep_cli.options(sweep)

    doctor = command("doctor", _doctor, "say what a testbed lacks, host by host, and what would mend it",
                     "orch doctor playbooks/testbeds/example-rack.yaml")  # fmt: skip
    doctor.add_argument(
        "testbed", nargs="?", metavar="TESTBED", help="an inventory or experiment file; else this machine"
    )
    doctor.add_argument("--dry-run", action="store_true", help="check what a dry run of the experiment needs")

    _reading_commands(command)

    recover = command("recover", _recover, "bring home what an unfinished run left on its hosts, and seal it",
                      "orch recover")  # fmt: skip
    _results_option(recover)
    recover.add_argument("runs", metavar="RUN", nargs="*", help="unfinished runs; default: every one")
    recover.add_argument("--without", metavar="HOST", action="append", default=[],
                         help="a host that will not come back: what it has of a run is given up")  # fmt: skip
    recover.add_argument("--force", action="store_true",
                         help="a named run that another machine began has ended, whatever it looks like")  # fmt: skip

    clean = command("clean", _clean, "end what runs of ours left behind on hosts, by their tag and never by name",
                    "orch clean playbooks/testbeds/example-rack.yaml --data")  # fmt: skip
    clean.add_argument(
        "testbed", nargs="?", metavar="TESTBED", help="an inventory or experiment file; else this machine"
    )
    clean.add_argument(
        "--data", action="store_true", help="remove the runs' folders on the hosts too, here also our image"
    )
    clean.add_argument("--host", metavar="HOST", help="only this host")
    clean.add_argument("--forget", metavar="RUN", default="",
                       help="give up what cannot be taken back of this run, and tell each change")  # fmt: skip

    schema = command("schema", _schema, "print the JSON Schema of experiment files, for editors",
                     "orch schema > experiment.schema.json")  # fmt: skip
    schema.add_argument("--sweep", action="store_true", help="of sweep files instead")

    traffic = command("traffic", None, "cross traffic on its own: draw a schedule, send it, receive it, check it",
                      "orch traffic schedule --load 10gbit --burst 1ms,10ms,3 --plot burst")  # fmt: skip
    traffic_cli.options(traffic)

    for name, add, text, example in (
        ("compare", compare_cli.options, "say point by point whether runs got slower, and how sure that is",
         "orch compare main nightly@today --markdown verdict.md --junit verdict.xml"),
        ("baseline", compare_cli.baseline_options, "remember runs under a name, to compare others with",
         "orch baseline set main nightly@2026-11-20"),
        ("history", compare_cli.history_options, "find the nights since which a sweep or experiment has another speed",
         "orch history nightly"),
        ("prune", prune_cli.options, "compress or drop packet captures of old runs; tables and all else stay",
         "orch prune --compress-after 2d --drop-after 14d --keep 50gb"),
        ("study", study_cli.options, "measure the curves of a paper, and show them beside its own, with the difference",
         "orch study salamy --quick --wait 10min"),
        ("timeline", timeline_cli.options, "write what happened in a run, and when, as a trace for ui.perfetto.dev",
         "orch timeline last"),
        ("prepare", prepare_cli.options, "build what training frameworks need on the hosts of a testbed",
         "orch prepare playbooks/testbeds/example-rack.yaml --check"),
    ):  # fmt: skip
        add(command(name, None, text, example))

    capture = command("capture", None, "packet captures from anywhere to tables and figures: flows, pairs, throughput",
                      "orch capture h1=a.pcap h2=b.pcap.zst --offset h2=-1.5ms --parquet tables")  # fmt: skip
    capture_cli.options(capture)

    testbed = command("testbed", _testbed, "keep a local testbed up until Ctrl-C, to look at it or try things by hand",
                      "orch testbed --hosts 3 --link 1gbit")  # fmt: skip
    _testbed_options(testbed)
    return parser


def _reading_commands(command: Callable[[str, Any, str, str], argparse.ArgumentParser]) -> None:
    """The commands that read the results store, wherever it is."""
    runs = command("ls", _ls, "list the runs of the results store, the unfinished ones too",
                   "orch ls --since 7d --where 'load<=8gbit' --valid")  # fmt: skip
    _results_option(runs, reading=True)
    listing.options(runs)
    runs.add_argument("--json", action="store_true", help="as JSON, one object a line")

    show = command("show", _show, "tell one run in words", "orch show last")
    _results_option(show, reading=True)
    show.add_argument("run", metavar="RUN", help="a run's id or part of it, its folder, or 'last'")
    show.add_argument("--json", action="store_true", help="its whole manifest as JSON")

    report = command("report", _report, "render sealed runs as one HTML file with figures", "orch report last")
    _results_option(report, reading=True)
    report.add_argument("runs", metavar="RUN", nargs="+", help="runs' ids or folders, or 'last'")
    report.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where the page goes (default: beside the runs)"
    )

    query = command("query", None, "ask the tables of all runs in SQL (DuckDB)",
                    'orch query "select experiment, avg(mean_s) from windows where valid group by 1"')  # fmt: skip
    _results_option(query, reading=True)
    query_cli.query_options(query)

    export = command("export", None, "write a table of all runs to a file, or a run as one zip",
                     "orch export iterations --experiment quickstart -o iterations.parquet")  # fmt: skip
    _results_option(export, reading=True)
    query_cli.export_options(export)


def _experiment_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="an experiment file")
    parser.add_argument("--dry-run", action="store_true", help="on containers of this machine instead of the inventory")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="replace one value, such as measure.iterations=50; may be repeated")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output, last")


def _testbed_options(testbed: argparse.ArgumentParser) -> None:
    testbed.add_argument("--hosts", type=int, default=3, metavar="N", help="how many hosts (3)")
    testbed.add_argument("--link", default="1gbit", metavar="RATE", help="capacity of both ends of every link (1gbit)")
    testbed.add_argument("--runtime", choices=["namespaces", "podman", "docker"], default="namespaces",
                         help="what hosts are (namespaces)")  # fmt: skip
    testbed.add_argument("--image", metavar="NAME", help="of hosts that are containers; ours when left out")
    testbed.add_argument("--python", metavar="PROGRAM", help="the image's interpreter (python3)")
    _wait_option(testbed)


def _wait_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", metavar="TIME", help="wait so long for a testbed that somebody else holds (10min)")


def _metrics_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--metrics", metavar="[ADDRESS:]PORT",
                        help="serve live metrics for Prometheus there; without ADDRESS to this machine")  # fmt: skip


def _force_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="start even where processors or memory are too few")


def _results_option(parser: argparse.ArgumentParser, *, reading: bool = False) -> None:
    told = ", or a URL such as s3://bucket/results" if reading else ""
    parser.add_argument(
        "--results", type=str if reading else _folder, default="results" if reading else Path("results"), metavar="DIR",
        help=f"the results store (results){told}",
    )  # fmt: skip


def _folder(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text}: a store elsewhere can only be read")
    return Path(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `orch` command; gives the exit status."""
    with terminal.guarded():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.version:
        from importlib import metadata

        print(f"orch {metadata.version('orch-testbed')}")
        return 0
    if arguments.command is None:
        parser.print_help()
        return 0
    try:
        status = int(arguments.action(arguments))
    except BrokenPipeError:  # the reader has gone
        status = 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        console.tell(f"orch: it could not be written: {error.strerror}", stream=sys.stderr)
        status = 1
    except OrchError as error:
        told = f"orch: {error}" if not isinstance(error, ConfigError) else str(error)
        console.tell(told, stream=sys.stderr)
        status = error.exit_code
    except KeyboardInterrupt:
        status = 130
    if not console.let_go() and status == 0:
        console.tell("orch: it could not be written: nobody takes standard output", stream=sys.stderr)
        status = 1
    return status


def _run(arguments: argparse.Namespace) -> int:
    from orchestrator.run import execute

    with _observed(arguments.metrics) as observer:
        return execute.run_file(
            arguments.file,
            dry_run=arguments.dry_run,
            overrides=arguments.overrides,
            results=arguments.results,
            wait=arguments.wait,
            as_json=arguments.json,
            report=not arguments.no_report,
            force=arguments.force,
            observer=observer,
        )


def _observed(address: str | None) -> contextlib.AbstractContextManager[Any]:
    if address is None:
        return contextlib.nullcontext()
    from orchestrator.run.observers import metrics

    return metrics.served(address)


def _plan(arguments: argparse.Namespace) -> int:
    from orchestrator.experiment import beforehand, describe, loading, plan, plandata, sweepfile

    if sweepfile.is_sweep(arguments.file):
        return sweep_cli.plan(
            arguments.file,
            overrides=arguments.overrides,
            dry_run=arguments.dry_run,
            results=arguments.results,
            as_json=arguments.json,
        )
    experiment, _ = loading.checked(arguments.file, arguments.overrides, dry_run=arguments.dry_run)
    runs = plan.build(experiment)
    if arguments.json:
        print(json.dumps({"runs": [plandata.plan_data(run) for run in runs]}, indent=1))
    else:
        print(describe.plan_text(runs))
    return beforehand.tell(runs[:1])


def _doctor(arguments: argparse.Namespace) -> int:
    from orchestrator.hosts import doctor

    return doctor.examine(arguments.testbed, dry_run=arguments.dry_run)


def _ls(arguments: argparse.Namespace) -> int:
    from orchestrator.experiment import describe
    from orchestrator.store import index, remote

    found = listing.select(index.entries(remote.here(arguments.results)), listing.asked(arguments))
    if arguments.json:
        for entry in found:
            print(json.dumps(describe.run_summary(entry.manifest, entry.path, outcome=entry.outcome)))
        return 0
    print(describe.listing(found, arguments.results))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from orchestrator.experiment import describe
    from orchestrator.store import remote, rundir

    entry = rundir.find(remote.here(arguments.results), arguments.run)
    print(json.dumps(entry.manifest, indent=1) if arguments.json else describe.run_text(entry))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from orchestrator.report.run import html
    from orchestrator.store import remote, rundir

    results = remote.here(arguments.results)
    entries = [rundir.find(results, wanted) for wanted in arguments.runs]
    remote.fetch(arguments.results, [entry.path for entry in entries])
    beside = entries[0].path.parent if not remote.is_elsewhere(arguments.results) else Path()
    output = arguments.output or beside / f"report-{entries[0].run}.html"
    print(html.render([entry.path for entry in entries], output))
    return 0


def _recover(arguments: argparse.Namespace) -> int:
    from orchestrator.run import recovery

    return recovery.recover(arguments.results, arguments.runs, without=arguments.without, force=arguments.force)


def _clean(arguments: argparse.Namespace) -> int:
    from orchestrator.hosts import cleaning

    wanted = cleaning.Wanted(data=arguments.data, forget=arguments.forget, host=arguments.host)
    return cleaning.clean(arguments.testbed, wanted)


def _schema(arguments: argparse.Namespace) -> int:
    from orchestrator.experiment import experiment, sweepfile

    model = sweepfile.SweepFile if arguments.sweep else experiment.model()
    schema = model.model_json_schema(by_alias=True)
    print(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1))
    return 0


def _testbed(arguments: argparse.Namespace) -> int:
    from orchestrator.run import execute

    asked = {key: getattr(arguments, key) for key in ("hosts", "link", "runtime", "image", "python")}
    return execute.hold_testbed(asked, wait=arguments.wait)


if __name__ == "__main__":
    sys.exit(main())
