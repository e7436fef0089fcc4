"""Warn of runs that are pooled as independent repetitions and drew the same random numbers (`--seed`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from orchestrator.analysis.compare import selection
from orchestrator.store.rundir import Listed

_MOST = 8  # runs that are named


def lines(entries: Iterable[Listed]) -> list[str]:
    """Return a line that names the runs which measured a point by the same random numbers; none where there are none.

    Of tries of one repetition the last valid one counts, as where runs are pooled. A run that is older than salts drew
    what every run of its seed did.
    """
    in_order = sorted(entries, key=lambda entry: entry.run)
    runs: dict[tuple[object, ...], dict[str, None]] = defaultdict(dict)
    for one in selection.last_valid(window for entry in in_order for window in selection.windows_of(entry)):
        manifest = one.entry.manifest
        if manifest.seed is not None:
            runs[manifest.experiment, one.key, manifest.salt, manifest.seed][manifest.run] = None
    alike = list(dict.fromkeys(tuple(found) for found in runs.values() if len(found) > 1))
    if not alike:
        return []
    return [
        f"drawn alike, by one `--seed` or by runs older than salts: {_named(alike)}; their random numbers are one "
        "draw, and intervals and verdicts take them for independent repetitions"
    ]


def _named(alike: Sequence[Sequence[str]]) -> str:
    texts, left = [], _MOST
    for runs in alike:
        some = runs[: max(0, left)]
        left -= len(some)
        if some:
            texts.append(", ".join(some) + (f" and {len(runs) - len(some)} more" if len(runs) > len(some) else ""))
    more = len(alike) - len(texts)
    return "; ".join(texts) + (f"; and {more} such groups more" if more else "")
