"""Exit codes are one list, and the pages print it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documentation import generated
from orchestrator.cli.commandline import exit_text
from orchestrator.core.exitcodes import MEANINGS, Exit, gravest

ROOT = Path(__file__).parents[3]


def test_every_code_has_a_meaning():
    assert set(MEANINGS) == set(Exit)
    assert [int(line.split()[0]) for line in exit_text().splitlines()[1:]] == sorted(Exit)


def test_the_page_of_commands_has_the_list():
    page = generated.expanded((ROOT / "docs/commands.md").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(str(code.value), meaning) for code, meaning in MEANINGS.items()]


@pytest.mark.parametrize(("found", "code"), [([], 0), ([0, 0], 0), ([0, 3], 3), ([3, 1, 0], 1), ([1, 130, 3], 130)])
def test_the_gravest_decides(found, code):
    assert gravest(found) == code
