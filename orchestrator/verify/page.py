"""Build the page of a verification (`verify_page.html`): every claim, held, broken or not judged, with its figures."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.core.units import duration_text, span_text
from orchestrator.report import page
from orchestrator.report.tables import Cell, Number, Table, table
from orchestrator.store import atomic
from orchestrator.verify.claims import DeviceSeen, Figure, HostSeen, Judged
from orchestrator.verify.verifying import Verified

LOOKS = {"held": "good", "broken": "bad", "not judged": "open"}
MOST_FIGURES = 4  # of a claim, those nearest to their limits


def write(found: Verified, output: Path) -> Path:
    """Write the page; StoreError when it cannot be written."""
    began = datetime.fromtimestamp(found.began_ns / 1e9, tz=timezone.utc)
    hosts = len(found.topology.hosts)
    text = page.fill(
        "verify_page.html",
        title=f"Verified: {found.testbed}",
        about=f"{began:%Y-%m-%d %H:%M} UTC, {hosts} hosts ({found.topology.described}), "
        f"{'quick, ' if found.quick else ''}in {duration_text(round(found.seconds))}",
        looks="invalid" if found.of("broken") else "valid" if found.of("held") else "unknown",
        headline=headline(found),
        broken=[f"{claim.says}: {judged.why}" for claim, judged in found.of("broken")],
        tables=[_claims(found), _hosts(found), _devices(found)],
    )
    try:
        atomic.write(output, text.encode())
    except OSError as error:
        raise StoreError(f"cannot write the page {output}: {error.strerror}") from error
    return output


def headline(found: Verified) -> str:
    """Return how many claims hold, are broken, and were not judged."""
    held, broken, open_ = (len(found.of(verdict)) for verdict in ("held", "broken", "not judged"))
    text = f"{held} claims held, {broken} broken, {open_} not judged"
    return f"interrupted: {text}" if found.interrupted else text


def text(found: Verified) -> str:
    """Return every claim on lines of its own, for a terminal."""
    lines = []
    for claim, judged in found.judged:
        lines += [f"{judged.verdict:<12}{claim.name}: {claim.says}", f"            {judged.why}"]
    return "\n".join([*lines, headline(found)])


def _claims(found: Verified) -> Table:
    rows = [
        [
            Cell(judged.verdict, look=LOOKS[judged.verdict]),
            Cell(claim.says, notes=(claim.name,)),
            Cell(judged.why),
            Cell("", notes=tuple(map(_figure, _nearest(judged)))),
            claim.breaks,
        ]
        for claim, judged in found.judged
    ]
    caption = "Figures are those nearest to their limits. A claim that was not judged says nothing of the testbed."
    return table("Claims", ["verdict", "claim", "why", "figures", "what would break it"], rows, caption=caption)


def _nearest(judged: Judged) -> list[Figure]:
    def share(figure: Figure) -> float:
        return abs(figure.value) / figure.limit if figure.limit else 0.0

    return sorted(judged.figures, key=share, reverse=True)[:MOST_FIGURES]


def _figure(figure: Figure) -> str:
    limit = "" if figure.limit is None else f" (limit {figure.limit:.4g})"
    return f"{figure.what}: {figure.value:.4g}{' ' if figure.unit else ''}{figure.unit}{limit}"


def _hosts(found: Verified) -> Table:
    columns = ["host", Number("reached in"), Number("clock's offset"), Number("known to"), "Linux", "Python", "trouble"]
    return table("Hosts", columns, [_host(one) for one in found.evidence.hosts])


def _host(one: HostSeen) -> list[str]:
    if one.trouble:
        return [one.host, "", "", "", "", "", one.trouble]
    offset = f"{one.offset_s * 1e6:+.4g} us"
    return [one.host, span_text(one.reached_s), offset, span_text(one.uncertainty_s), one.kernel, one.python, ""]


def _devices(found: Verified) -> Table:
    rows = [[one.host, one.device, one.driver, str(len(one.counters)), _names(one)] for one in found.evidence.devices]
    columns = ["host", "device", "driver", Number("counters"), "of the driver and of RDMA"]
    return table("Counters of devices", columns, rows)


def _names(one: DeviceSeen) -> str:
    return ", ".join(sorted(name for name in one.counters if "." in name))
