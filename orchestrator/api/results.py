"""Read results from a program: runs of a store, their tables as Arrow or pandas, comparisons, figures for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.store import listing, query, rundir, stores
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.picked import of_entries

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from matplotlib.figure import Figure

    from orchestrator.analysis.causes.explanation import Explanation
    from orchestrator.analysis.compare.comparing import Comparison
    from orchestrator.analysis.compare.point_histories import History
    from orchestrator.analysis.compare.regression import PointChange
    from orchestrator.report.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure of matplotlib with its title, and a caption that says how to read it."""

    title: str
    caption: str
    figure: Figure

    def save(self, path: str | Path) -> Path:
        """Write it in the format that the name ends in: .svg, .pdf, .png."""
        from orchestrator.report import style

        try:
            with style.look():
                self.figure.savefig(path)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be written: {error}") from None
        return Path(path)

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook shows."""
        import io

        from orchestrator.report import style

        with style.look(), io.BytesIO() as file:
            self.figure.savefig(file, format="png", dpi=120)
            return file.getvalue()


class Compared:
    """What a comparison found, point by point: worse, better, same, or cannot tell."""

    def __init__(self, found: Comparison) -> None:
        self.found = found

    @property
    def points(self) -> tuple[PointChange, ...]:
        """Every point that both sides measured, with ratio, interval, p-values and verdict."""
        return self.found.changes

    def of(self, verdict: str) -> list[PointChange]:
        """Return the points with this verdict, such as "worse"."""
        return self.found.of(verdict)

    def frame(self) -> pd.DataFrame:
        """Return a row a point as a DataFrame of pandas, which has to be installed."""
        import pandas as pd

        from orchestrator.report import comparison_texts

        table: pd.DataFrame = pd.DataFrame(comparison_texts.data(self.found)["points"])
        return table

    def page(self, output: str | Path) -> Path:
        """Write an HTML page with the history of every point."""
        from orchestrator.report import compare_page

        return compare_page.render(self.found, Path(output))

    def __str__(self) -> str:
        """Return what `orch compare` prints."""
        from orchestrator.report import comparison_texts

        return comparison_texts.text(self.found)

    def _repr_markdown_(self) -> str:
        """Return the table that a notebook shows."""
        from orchestrator.report import comparison_texts

        return comparison_texts.markdown(self.found)


class MeasuredRun:
    """One run: what its manifest says, its tables, its figures, its report.

    Times are in seconds, instants in nanoseconds since the epoch, rates and sizes as they were on the testbed; `scale`
    multiplies the latter two to full size. Dilated time (`manifest.dilation`) is divided back.
    Units of each column: `orch tables`, docs/tables.md.
    """

    def __init__(self, run: str | Path, *, store: stores.Store | None = None) -> None:
        """`run` is the run's folder, or, of a `store`, its id, a unique part of it, or "last".

        StoreError where there is none, or it cannot be read.
        """
        self._entry = rundir.opened(Path(run)) if store is None else store.find(str(run))
        self._store = store or stores.opened(str(self._entry.path.absolute().parent.parent))

    @cached_property
    def path(self) -> Path:
        """Its folder on this machine, to which its tables are copied where the store is elsewhere."""
        return self._store.brought(self._entry)

    @property
    def id(self) -> str:
        """When it began (UTC), and which point it is: sorts by time."""
        return self._entry.run

    @property
    def manifest(self) -> Manifest:
        """All that is known of it, as typed records (orchestrator/store/manifests/records.py)."""
        return self._entry.manifest

    @property
    def experiment(self) -> str:
        """The name of its experiment."""
        return self.manifest.experiment

    @property
    def outcome(self) -> str:
        """How it ended: completed, failed, interrupted, lost or running."""
        return self._entry.outcome

    @property
    def error(self) -> str | None:
        """Why it failed; None where it did not."""
        return self.manifest.error

    @property
    def valid(self) -> bool:
        """Whether it was completed and every required gate of every window passed."""
        return self.manifest.valid

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not valid: of the run, and of its windows by their names."""
        of_windows = (f"{window.name}: {why}" for window in self.windows for why in window.reasons)
        return (*self.manifest.reasons, *of_windows)

    @property
    def scale(self) -> int:
        """By which rates and sizes were divided."""
        return self.manifest.scale

    @property
    def windows(self) -> tuple[Window, ...]:
        """Its measured windows, each with its gates, loads and iteration times."""
        return self.manifest.windows

    def table(self, name: str) -> pa.Table:
        """Return a table of the run as it was written, warm-up included; empty where nothing was collected for it."""
        found: pa.Table = self._run.table(name)
        return found

    def frame(self, name: str) -> pd.DataFrame:
        """Return the same as a DataFrame of pandas, which has to be installed."""
        found: pd.DataFrame = self.table(name).to_pandas()
        return found

    def why(self, *, iteration: int | None = None) -> list[Explanation]:
        """Return why iterations of each job of each window took as long as they did: parts that sum, and findings.

        With `iteration`, a number in the job, of that one alone. `orchestrator.analysis.causes.words.text` writes one
        down.
        """
        from orchestrator.analysis.causes import naming

        return list(naming.explanations(self._run, iteration=iteration))

    def draw(self, figure: str) -> Drawing:
        """Return a figure of its report by name, such as "iterations"; ConfigError lists the names there are."""
        return _drawn([self._run], figure)

    def report(self, output: str | Path | None = None) -> Path:
        """Write its report, an HTML page with figures beside it; by default beside the run's folder."""
        from orchestrator.report import page
        from orchestrator.report.run import report_page

        return report_page.render([self.path], Path(output or self.path.parent / page.report_name(self.id)))

    @cached_property
    def _run(self) -> Run:
        """The run as reports read it, its tables fetched where the store is elsewhere."""
        from orchestrator.report.runs import Run

        return Run(self.path)

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.experiment}: {self.outcome}, {'valid' if self.valid else 'not valid'}>"

    def __str__(self) -> str:
        """Return what `orch show` prints."""
        from orchestrator.analysis.causes import stored
        from orchestrator.experiment import runtext

        return runtext.run_text(self._entry, why=stored.lines(self.path))


class Store:
    """A results folder, or the URL of a store elsewhere (`s3://bucket/results`, read through a cache)."""

    def __init__(self, results: str | Path = "results") -> None:
        self.results = str(results)
        self._store: stores.Store = stores.opened(self.results)

    def __repr__(self) -> str:
        return f"Store({self.results!r})"

    def runs(
        self,
        *,
        where: str | Sequence[str] = (),
        experiment: str | None = None,
        since: str | None = None,
        valid: bool = False,
    ) -> list[MeasuredRun]:
        """Return runs in order of time, selected as by `orch ls`: `where` takes conditions such as "load<=8gbit"."""
        conditions = (where,) if isinstance(where, str) else tuple(where)
        wanted = listing.Filter(where=conditions, experiment=experiment, since=since, valid=valid)
        found = listing.select(self._store.listing().entries, wanted)
        return [MeasuredRun(one.run, store=self._store) for one in sorted(found, key=lambda entry: entry.run)]

    def run(self, wanted: str = "last") -> MeasuredRun:
        """Return the run of this id, a unique beginning or end of it, or "last"; StoreError where there is none."""
        return MeasuredRun(wanted, store=self._store)

    def query(self, sql: str, *, runs: Sequence[MeasuredRun] | None = None, unrestricted: bool = False) -> pa.Table:
        """Return what a query over the tables of all runs, or of these, gives; `orch tables` lists tables and views.

        It is one statement that reads these tables and nothing else, unless it is `unrestricted`: then it may do what
        the program may. ConfigError with the database's words where it takes no such query.
        """
        picked = self._store.every()
        if runs is not None:
            chosen = {run.id for run in runs}
            picked = of_entries([one for one in self._store.listing().entries if one.run in chosen])
        return query.table(self._store, picked, sql, unrestricted=unrestricted)

    def frame(self, sql: str, *, runs: Sequence[MeasuredRun] | None = None, unrestricted: bool = False) -> pd.DataFrame:
        """Return the same as a DataFrame of pandas, which has to be installed."""
        found: pd.DataFrame = self.query(sql, runs=runs, unrestricted=unrestricted).to_pandas()
        return found

    def ask(self, *steps: Mapping[str, Any], runs: Sequence[MeasuredRun] | None = None) -> list[dict[str, Any]]:
        """Return the rows that answer a question, as figures of papers ask it, of all runs or of these.

        Each step is a mapping from its name to its arguments, such as `{"iterations": {}}`, then
        `{"sql": "select ... from answer"}`; docs/questions.md lists them. ConfigError for a step that there is not.
        """
        from orchestrator.papers import answering

        chosen = self.runs() if runs is None else runs
        return answering.asked(steps, [rundir.opened(run.path) for run in chosen])

    def compare(
        self,
        a: str,
        b: str,
        *,
        margin: float = 0.02,
        margin_p99: float = 0.1,
        alpha: float = 0.05,
        night_spread: float = 0.02,
        settings: bool = False,
    ) -> Compared:
        """Compare what two names stand for, point by point: runs, sweeps, experiments, baselines, NAME@DATE.

        A mean or a median has to change by `margin`, a p99 by `margin_p99`; the chance that equal runs of one night are
        called different is `alpha` over all points. Nights are assumed to differ by a standard deviation of
        `night_spread` at most, until they show less. All are shares of 1. `settings` compares although both were set
        differently.
        """
        from orchestrator.analysis.compare import comparing
        from orchestrator.analysis.compare.regression import Rule

        for name, value in {
            "margin": margin,
            "margin_p99": margin_p99,
            "alpha": alpha,
            "night_spread": night_spread,
        }.items():
            if not 0 < value < 1:
                raise ConfigError(f"{name}: {value} is not a share; accepted: more than 0 and less than 1")
        rule = Rule(alpha=alpha, margin={"mean": margin, "p50": margin, "p99": margin_p99}, night_spread=night_spread)
        return Compared(comparing.compare(self._folder(), a, b, rule=rule, settings=settings))

    def history(self, name: str) -> tuple[History, ...]:
        """Return each point of a sweep or experiment night by night (seconds), with the steps in it and a verdict."""
        from orchestrator.analysis.compare import point_histories
        from orchestrator.analysis.compare.regression import DEFAULT

        found = point_histories.nights(self._store, name)
        if not found:
            raise StoreError(f"no night of {name} in {self.results}", hint="Store.runs() lists what there is")
        return point_histories.histories(found, rule=DEFAULT)

    def draw(self, figure: str, runs: Sequence[MeasuredRun]) -> Drawing:
        """Return a figure over several runs, as in a report of them: "iterations", "cdf", "over-load", ..."""
        from orchestrator.report import runs as reported

        return _drawn(reported.load([run.path for run in runs]), figure)

    def _folder(self) -> Path:
        if stores.is_elsewhere(self.results):
            raise StoreError(f"{self.results}: comparisons read a folder", hint="copy the store here first")
        return Path(self.results)


def _drawn(runs: Sequence[Run], name: str) -> Drawing:
    from orchestrator.report.run import figures

    if name not in figures.OF_RUNS:
        raise ConfigError(f"{name}: no such figure; accepted: {', '.join(figures.OF_RUNS)}")
    drawn = figures.draw(runs, name)
    if drawn is None:
        raise StoreError(f"{name}: these runs have no data for it", hint="run.table(NAME) says what was collected")
    return Drawing(title=figures.OF_RUNS[name][0], figure=drawn[0], caption=drawn[1])
