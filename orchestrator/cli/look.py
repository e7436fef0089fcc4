"""The commands that show what was measured: `orch ls`, `show`, `report`, `timeline`, `query`, `tables`, `capture`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from orchestrator.cli import options
from orchestrator.cli.commands import Commands
from orchestrator.cli.results import capture_cli, figure_cli, query_cli, site_cli


def register(commands: Commands) -> None:
    """Add the commands of this group."""
    group = commands.group("look")
    runs = group.add(
        "ls",
        "list runs, including unfinished ones",
        action=_ls,
        example="orch ls --since 7d --where 'load<=8gbit' --valid",
    )
    options.results_to_read(runs)
    options.filters(runs)
    runs.add_argument("--json", action="store_true", help="print one JSON object a line")

    show = group.add("show", "summarize one run: verdict, times, gates", action=_show, example="orch show last")
    options.results_to_read(show)
    show.add_argument("run", metavar="RUN", help=options.RUN)
    show.add_argument("--verbose", action="store_true", help="list every gate, also those that passed alike")
    show.add_argument("--json", action="store_true", help="print the whole manifest as JSON")

    report = group.add(
        "report", "render runs as one HTML page with figures", action=_report, example="orch report last"
    )
    options.results_to_read(report)
    report.add_argument("runs", metavar="RUN", nargs="+", help=options.RUNS)
    report.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default: beside the runs)")
    report.add_argument(
        "--each", action="store_true", help="of several runs, first make the report of each, which the page links to"
    )

    figure_cli.register(group)
    site_cli.register(group)
    timeline = group.add(
        "timeline",
        "export the events of a run as a trace for ui.perfetto.dev",
        action=_timeline,
        example="orch timeline last",
    )
    options.results(timeline)
    timeline.add_argument("run", metavar="RUN", help=options.RUN)
    timeline.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the trace (default: timeline-RUN.json.gz beside the run)"
    )

    query_cli.register(group)
    capture = group.add(
        "capture",
        "analyse packet captures from anywhere: flows, host pairs, throughput",
        action=capture_cli.capture,
        example="orch capture h1=a.pcap h2=b.pcap.zst --offset h2=-1.5ms --parquet tables",
        more=capture_cli.MORE,
    )
    capture_cli.add_options(capture)


def _ls(arguments: argparse.Namespace) -> int:
    from orchestrator.experiment import runtext
    from orchestrator.store import listing, stores

    store = stores.opened(arguments.results).listing()
    found = listing.select(store.entries, options.filter_of(arguments))
    for problem in store.problems:
        print(f"orch: left out: {problem}", file=sys.stderr)
    if arguments.json:
        for entry in found:
            print(json.dumps(runtext.run_summary(entry.manifest, entry.path, outcome=entry.outcome)))
        return 0
    print(runtext.listing(found, arguments.results))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from orchestrator.core.screen import layout
    from orchestrator.experiment import runtext
    from orchestrator.store import stores
    from orchestrator.store.manifests import manifest

    entry = stores.one(stores.opened(arguments.results), arguments.run)
    if arguments.json:
        print(manifest.text(entry.manifest).decode(), end="")
    else:
        print(runtext.run_text(entry, verbose=arguments.verbose, width=layout.columns()))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from orchestrator.report.page import report_name
    from orchestrator.report.run import html
    from orchestrator.report.site import refreshing
    from orchestrator.store import stores

    store = stores.opened(arguments.results)
    entries = stores.entries(store, arguments.runs)
    folders = [store.brought(entry) for entry in entries]
    beside = Path() if stores.is_elsewhere(arguments.results) else folders[0].parent
    output = arguments.output or beside / report_name(entries[0].run, len(entries) - 1)
    unsure = [entry for entry in entries if not entry.manifest.valid]
    others = [entry.manifest for entry in store.listing().entries] if unsure else []
    if arguments.each and len(folders) > 1:
        for entry, folder in zip(entries, folders, strict=True):
            print(html.render([folder], folder.parent / report_name(entry.run), others=others))
    print(html.render(folders, output, others=others))
    if not stores.is_elsewhere(arguments.results):
        refreshing.refresh(Path(arguments.results))
    return 0


def _timeline(arguments: argparse.Namespace) -> int:
    from orchestrator.report.run import timeline
    from orchestrator.report.runs import Run
    from orchestrator.store import stores

    entry = stores.one(stores.opened(str(arguments.results)), arguments.run)
    output = arguments.output or entry.path.parent / f"timeline-{entry.run}.json.gz"
    print(timeline.write(Run(entry.path), output))
    return 0
