"""Tell which captures of a run stay on hosts, one line a host."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from orchestrator.core.units import bytes_text

if TYPE_CHECKING:
    from orchestrator.store.manifests.records import Manifest


def where(manifest: Manifest) -> list[str]:
    """One line a host: how many files, how large, in which folder there; what was not reduced is told."""
    lines = []
    for (node, folder), some in groupby(
        sorted(manifest.stayed, key=lambda one: (one.node, one.folder)), key=lambda one: (one.node, one.folder)
    ):
        files = list(some)
        count = f"{len(files)} files" if len(files) != 1 else "1 file"
        unread = "" if all(one.sha256 for one in files) else ", not all of them reduced"
        lines.append(f"{node}: {count}, {bytes_text(sum(one.bytes for one in files))}, in {folder}{unread}")
    return lines
