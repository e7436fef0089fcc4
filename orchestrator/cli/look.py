"""The commands that show results: `orch ls`, `show`, `report`, `figure`, `site`, `timeline`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import capture, options, query, watch, why
from orchestrator.cli.commands import Commands, Group
from orchestrator.core.screen import console

if TYPE_CHECKING:
    from orchestrator.store.rundir import Listed


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

    watch.register(group)
    why.register(group)
    report = group.add(
        "report", "render runs as one HTML page with figures", action=_report, example="orch report last"
    )
    options.results_to_read(report)
    report.add_argument("runs", metavar="RUN", nargs="+", help=options.RUNS)
    report.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default: beside the runs)")
    report.add_argument(
        "--each", action="store_true", help="of several runs, first make the report of each, which the page links to"
    )

    _register_figure(group)
    _register_site(group)
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

    query.register(group)
    capture.register(group)


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
    console.print_verdicts(runtext.listing(found, arguments.results))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.causes import stored
    from orchestrator.core.errors import StoreError
    from orchestrator.core.screen import layout
    from orchestrator.experiment import runtext
    from orchestrator.store import stores
    from orchestrator.store.manifests import manifest

    entry = stores.one(stores.opened(arguments.results), arguments.run)
    if arguments.json:
        print(manifest.text(entry.manifest).decode(), end="")
    else:
        try:
            why = [] if stores.is_elsewhere(arguments.results) else stored.lines(entry.path)
        except StoreError as error:
            why = [f"not told: {error.message}"]
        console.print_verdicts(runtext.run_text(entry, verbose=arguments.verbose, width=layout.columns(), why=why))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from orchestrator.report.page import report_name
    from orchestrator.report.run import report_page
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
            print(report_page.render([folder], folder.parent / report_name(entry.run), others=others))
    print(report_page.render(folders, output, others=others))
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


_OF_FLOWS = ("completion-times", "slowdown")
_FIGURE_MORE = """\
WHAT is iteration-time (the median), mean-iteration-time, p99-iteration-time or
sent-bytes, each --over an axis: load, a setting by the end of its path, such
as ddp.batch, or a variable that is an axis of the sweep; or completion-times
or slowdown of cross traffic, by the size of flows; or a YAML file of figures. Runs that were set
differently in anything but the axes are refused; the error says in what."""


def _register_figure(group: Group) -> None:
    """Add `orch figure`."""
    figure = group.add(
        "figure",
        "draw one quantity over one axis with intervals over runs, and write its table",
        action=_figure,
        example="orch figure iteration-time load --over load --series traffic -o figures/load",
        more=_FIGURE_MORE,
    )
    figure.add_argument("what", metavar="WHAT", help="the quantity, or a file of figures")
    figure.add_argument("of", metavar="OF", help=f"the runs: {options.NAMES}")
    figure.add_argument("--over", metavar="AXIS", help="the x axis (default: load)")
    figure.add_argument("--series", metavar="AXIS", default="", help="a curve for each value of this setting")
    figure.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="only windows that meet this condition, such as load<=8gbit or model=vgg16; may be repeated",
    )
    figure.add_argument(
        "-o", "--output", type=Path, metavar="STEM", help="STEM.svg, .pdf, .csv and .tex (default: WHAT)"
    )
    options.results(figure)


def _figure(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.compare import repeated_draws, selection
    from orchestrator.core import where
    from orchestrator.core.errors import ConfigError
    from orchestrator.report.figure import curves, drawing, flow_times

    if arguments.what.endswith((".yaml", ".yml")):
        return _figures_of_file(arguments)
    conditions = where.parse(arguments.where)
    found: curves.Figure | flow_times.FlowTimes
    if arguments.what in _OF_FLOWS:
        if arguments.over:
            raise ConfigError(f"--over: {arguments.what} is drawn over the size of flows; accepted: --series AXIS")
        chosen = selection.choose(arguments.results, arguments.of)
        found = flow_times.flow_times(
            chosen, slowdown=arguments.what == "slowdown", series=arguments.series, conditions=conditions
        )
    else:
        wanted = curves.quantity_named(arguments.what)
        chosen = selection.choose(arguments.results, arguments.of)
        found = curves.figure(
            chosen, wanted, over=arguments.over or "load", series=arguments.series, conditions=conditions
        )
    stem = arguments.output or Path(arguments.what)
    for path in drawing.write(found, stem):
        print(path)
    for line in repeated_draws.lines(chosen.entries):
        print(f"  warning: {line}")
    for line in found.common.left_out:
        print(f"  not counted: {line}")
    return 0


def _figures_of_file(arguments: argparse.Namespace) -> int:
    """Draw the figures of a file, write the rows behind them, and print what they are held to; return the exit code."""
    from orchestrator.analysis.compare import selection
    from orchestrator.core.errors import ConfigError
    from orchestrator.papers import figures, reading

    for name in ("over", "series", "where"):
        if getattr(arguments, name):
            raise ConfigError(f"--{name}: {arguments.what} is a file of figures; accepted: -o, --results")
    chosen = selection.choose(arguments.results, arguments.of)
    stem = arguments.output or Path(arguments.what).with_suffix("")
    for path in figures.write(reading.figures(Path(arguments.what)), chosen.entries, stem):
        print(path)
    for line in chosen.left_out:
        print(f"  not counted: {line}")
    return 0


_SITE_MORE = """\
The page opens from disk and needs no network. From now on it is written again
after each run that is sealed into the store. It lists runs, sweeps and
studies with their verdicts, shows the history of every point, and puts two
runs side by side."""


def _register_site(group: Group) -> None:
    """Add `orch site`."""
    site = group.add(
        "site",
        "write index.html, a front page of all runs, and keep it up to date",
        action=_site,
        example="orch site --reports 20",
        more=_SITE_MORE,
    )
    options.results(site)
    site.add_argument(
        "--reports",
        nargs="?",
        type=int,
        const=sys.maxsize,
        default=0,
        metavar="NUMBER",
        help="first make the missing reports of the newest NUMBER runs; without NUMBER, of all runs",
    )
    how = site.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="do not write it again after later runs")
    how.add_argument("--refresh", action="store_true", help="write it only if it is kept up to date, as runs do")


def _site(arguments: argparse.Namespace) -> int:
    from orchestrator.core.errors import ConfigError
    from orchestrator.report.site import page, refreshing
    from orchestrator.store import front_page

    if arguments.reports < 0:
        raise ConfigError(f"--reports {arguments.reports}: accepted: 1 or more")
    if arguments.refresh:
        refreshing.refresh(arguments.results)
        return 0
    failed = _reports(arguments.results, arguments.reports)
    print(page.write(arguments.results))
    front_page.keep_fresh(arguments.results, yes=not arguments.once)
    return 1 if failed else 0


def _reports(results: Path, newest: int) -> int:
    """Make the reports that these runs lack; return how many could not be made."""
    if not newest:
        return 0
    from orchestrator.report.site.page import Reports
    from orchestrator.store import index

    known = Reports(results)
    sealed = [entry for entry in index.entries(results) if entry.sealed and entry.manifest.windows]
    chosen = sorted(sealed, key=lambda entry: entry.manifest.began_ns, reverse=True)[:newest]
    return sum(not _made(entry) for entry in chosen if not known.of(entry))


def _made(entry: Listed) -> bool:
    from orchestrator.core.errors import OrchError
    from orchestrator.core.screen import console
    from orchestrator.report.page import report_name
    from orchestrator.report.run import report_page

    try:
        report_page.render([entry.path], entry.path.parent / report_name(entry.run))
    except OrchError as error:
        console.tell(f"orch: no report of {entry.run}: {error}", stream=sys.stderr)
        return False
    return True
