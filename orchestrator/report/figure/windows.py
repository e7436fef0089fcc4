"""Select the windows of a figure with their settings, and refuse to mix windows that were set differently."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis.compare import window_settings
from orchestrator.analysis.compare.selection import Chosen, Measurement
from orchestrator.analysis.compare.window_settings import WindowSetting
from orchestrator.core import where
from orchestrator.core.errors import ConfigError
from orchestrator.core.where import Condition
from orchestrator.store.manifests.summaries import Training, WindowSummary
from orchestrator.store.rundir import Entry

LOAD = "load"
TRAFFIC = "traffic"  # its kind, such as websearch-burst
NO_TRAFFIC = "none"
NOT_SET = "not set"
_SHOWN = 4  # values of a setting that an error lists


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureWindow:
    """A job in a valid window of a run, and every setting of it by path; `load` is the requested one, at full size.

    `variables` are the axes of its sweep that are variables of the experiment: they stand for settings.
    `least_rate_bps` is the lowest rate that a condition set for a link.
    """

    entry: Entry
    window: WindowSummary
    row: Training
    settings: Mapping[str, str]
    variables: Mapping[str, str]
    least_rate_bps: float

    @property
    def scale(self) -> int:
        return self.entry.manifest.scale

    @property
    def loaded(self) -> bool:
        """Whether there was cross traffic."""
        return self.settings[TRAFFIC] != NO_TRAFFIC

    def value(self, path: str) -> str:
        """Return the setting at a path, or the value of a variable."""
        return self.settings.get(path, self.variables.get(path, NOT_SET))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """The conditions under which all of a figure was measured: settings that all windows share, and their sources.

    `left_out` says in sentences which windows do not count.
    """

    conditions: tuple[tuple[str, str], ...]
    scales: tuple[int, ...]
    dilations: tuple[int, ...]
    commits: tuple[str, ...]
    runs: tuple[str, ...]
    left_out: tuple[str, ...]


def shared_settings(windows: Sequence[FigureWindow], chosen: Chosen) -> SharedSettings:
    """Return the settings that these windows share."""
    shared = {key: value for key, value in windows[0].settings.items() if all(w.value(key) == value for w in windows)}
    return SharedSettings(
        conditions=tuple(sorted(shared.items())),
        scales=tuple(sorted({one.scale for one in windows})),
        dilations=tuple(sorted({one.entry.manifest.dilation for one in windows})),
        commits=tuple(sorted({str(git.commit) for one in windows if (git := one.entry.manifest.git)})),
        runs=tuple(sorted({one.entry.run for one in windows})),
        left_out=chosen.left_out,
    )


def figure_windows(chosen: Chosen, conditions: Sequence[Condition] = ()) -> list[FigureWindow]:
    """Return every valid window that meets the conditions; ConfigError where there is none."""
    known: dict[Path, dict[str, WindowSetting]] = {}
    found = []
    for window in chosen.windows:
        run = window.entry
        if run.path not in known:
            known[run.path] = window_settings.of_windows(run)
        setting = known[run.path][window.record.name]
        settings = _settings(window, setting)
        variables = {axis: where.text_of(value) for axis, value in window.values.items() if "." not in axis}
        if all(condition.holds({**variables, **settings}) for condition in conditions):
            found += [
                FigureWindow(
                    entry=run,
                    window=window.record,
                    row=row,
                    settings=settings,
                    variables=variables,
                    least_rate_bps=setting.setting.least_rate_bps,
                )
                for row in window.record.training
                if row.job == window.job
            ]
    if not found:
        why = "none meets every --where" if chosen.windows else "; ".join(chosen.left_out[:2]) or "none was measured"
        raise ConfigError(f"{chosen.name}: no valid window to draw: {why}")
    return found


def _settings(window: Measurement[Entry], setting: WindowSetting) -> dict[str, str]:
    manifest = window.entry.manifest
    requested = math.fsum(load.requested_bps for load in window.record.loads) * manifest.scale
    facts = {"job": window.job, "hosts of": manifest.topology.kind, "MTU": str(manifest.topology.mtu)}
    own = dict(setting.setting.traffic) if requested else {}
    kind = setting.traffic if requested else NO_TRAFFIC
    return {**dict(setting.setting.shared), **own, **facts, TRAFFIC: kind, LOAD: _load_text(requested)}


def _load_text(bps: float) -> str:
    return f"{bps / 1e9:.15g}gbit"


def axis(windows: Sequence[FigureWindow], wanted: str) -> str:
    """Return the path of a setting that ends in `name`; ConfigError where none, or more than one, does."""
    paths = {path for window in windows for path in (*window.settings, *window.variables)}
    found = sorted(path for path in paths if path == wanted or path.endswith(f".{wanted}"))
    if wanted in found:
        return wanted
    if len(found) != 1:
        raise ConfigError(
            f"{wanted!r} names {len(found) or 'no'} settings of these runs; these differ among them: "
            f"{', '.join(varying(windows)) or 'none'}"
        )
    return found[0]


def varying(windows: Sequence[FigureWindow]) -> list[str]:
    """Return the settings in which these windows differ."""
    paths = sorted({path for window in windows for path in window.settings})
    return [path for path in paths if len({window.value(path) for window in windows}) > 1]


def of_traffic(path: str) -> bool:
    """Return whether a setting is one of cross traffic."""
    return path == TRAFFIC or path.startswith(f"{TRAFFIC}.")


def refuse_mixed(windows: Sequence[FigureWindow], axes: Iterable[str]) -> None:
    """Raise ConfigError where windows differ in more than these axes.

    A curve through them would be of no one thing. What a variable stands for differs with it, and hand in hand: that is
    the variable's axis. Over load, a window without cross traffic differs from the others in having none; that is the
    axis itself. With a curve for each kind of traffic, what only one kind has is that kind's.
    """
    drawn = set(axes)
    loaded = [window for window in windows if window.loaded] or list(windows)
    for path in varying(windows):
        mixed = loaded if LOAD in drawn and of_traffic(path) else windows
        kinds = {window.value(TRAFFIC) if TRAFFIC in drawn and of_traffic(path) else "" for window in mixed}
        counts = max(
            (Counter(w.value(path) for w in mixed if not kind or w.value(TRAFFIC) == kind) for kind in kinds), key=len
        )
        if path in drawn or len(counts) < 2 or _follows(path, windows, drawn):
            continue
        listed = ", ".join(f"{value} in {count}" for value, count in counts.most_common(_SHOWN))
        more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
        value = counts.most_common(1)[0][0]
        raise ConfigError(
            f"these windows differ in {path} ({listed}{more}) and cannot be in one curve; "
            f"accepted: --series {path}, or --where '{path}={value}'"
        )


def _follows(path: str, windows: Sequence[FigureWindow], drawn: set[str]) -> bool:
    """Return whether a setting has one value at each value of the drawn variables, all windows being of one sweep."""
    variables = sorted(drawn & {name for window in windows for name in window.variables})
    if not variables or len({_sweep(window) for window in windows}) > 1:
        return False
    at = {(*map(window.value, variables), window.value(path)) for window in windows}
    return len(at) == len({values[:-1] for values in at})


def _sweep(window: FigureWindow) -> tuple[str, str]:
    """Return the definition of the sweep that a window is of."""
    sweep = window.entry.manifest.sweep
    return (sweep.name, sweep.definition) if sweep else ("", "")
