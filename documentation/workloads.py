"""Generate the status of every workload: what it does, where and by which tests it is verified, what was never run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("workloads.yaml")
_LABELS = {
    "verified": "Verified at every commit, by CI",
    "variants": "Verified by `python -m tests.bench variants`",
    "by_hand": "Verified by hand",
    "unverified": "Written, not verified",
}


def entries() -> Mapping[str, Mapping[str, str]]:
    """Read the workloads from their file."""
    found: Mapping[str, Mapping[str, str]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def page() -> str:
    """Return a section for each workload as Markdown, headings from the second level on."""
    lines = []
    for name, told in entries().items():
        lines += [f"## {name}\n", f"{told['does']} [Its keys](keys.md#experiment-workload-{name}).\n"]
        lines += [f"- **{label}:** {told[key]}" for key, label in _LABELS.items() if key in told]
        lines += [f"- **Tests:** {', '.join(f'`tests/testbed/{test}`' for test in told['tests'])}", ""]
    return "\n".join(lines)
