"""One version in all that names it, and a changelog in the format that it says it has."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def version() -> str:
    (found,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return found


def test_what_is_cited_and_what_pages_check_out_is_the_version_of_the_package():
    assert f"\nversion: {version()}\n" in (ROOT / "CITATION.cff").read_text()
    for page in ("README.md", "docs/getting-started.md"):
        assert set(re.findall(r"git checkout v([\d.]+\d)", (ROOT / page).read_text())) == {version()}, page


def test_the_changelog_begins_with_what_is_unreleased_and_then_has_this_version():
    headings = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(version())}\] - \d{{4}}-\d\d-\d\d", headings[1])


def test_sections_of_versions_are_those_of_the_format():
    found = set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE))
    assert found <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
