"""README has an experiment and a picture, and what contributors are given says what the project does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from documentation import markdown, tried
from orchestrator.core.paths import playbooks
from tests.helpers import ways_in

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def test_readme_has_an_experiment_and_a_picture():
    assert any("testbed" in yaml.safe_load(block.text) for block in tried.yaml_blocks("README.md"))
    assert re.search(r"!\[[^\]]+\]\(docs/\w+\.png\)", README)


def test_each_way_in_is_one_command_on_a_file_that_is_there_or_that_orch_init_writes():
    """`make quickstart` carries out the first one, tests/testbed the others."""
    assert len(ways_in.ROWS) == 5
    for hosts, row in ways_in.ROWS.items():
        (run, *before) = re.findall(r"`(orch [^`]+)`", row)
        file = run.split()[2]
        kinds = [command.removeprefix("orch init ") for command in before]
        written = [path.name for kind in kinds for path in (playbooks.START / kind).iterdir()]
        assert (ROOT / file).exists() or file in written, hosts
        assert f"orch run {file} {' '.join(ways_in.options(hosts))}".rstrip() == run


@pytest.mark.parametrize("page", tried.pages())
def test_links_of_a_page_lead_to_files(page):
    """On a forge too; anchors and links within the site are checked by its strict build."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lost = [link for link in markdown.links(text) if not (ROOT / markdown.resolved(page, link)).exists()]
    assert lost == []


def test_a_commit_is_checked_as_make_check_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(BIN)", ".venv/bin")
    made = re.findall(
        r"^\t(?:NO_\w+=1 )?(\.venv/bin/(?:ruff|mypy|lint-imports|python -m mkdocs)[^\n]*?)(?: \.)?$",
        makefile,
        re.MULTILINE,
    )
    assert sorted(hook["entry"].replace(" --force-exclude", "") for hook in hooks if "stages" not in hook) == sorted(
        made
    )
    for hook in hooks:
        if "ruff" in hook["entry"]:  # on the files that ruff finds by itself, not on scripts without an ending
            assert [name for name in ("a.py", "b/a.pyi", "b/script", "a.pyc") if re.search(hook["files"], name)] == [
                "a.py",
                "b/a.pyi",
            ]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_for_issues_is_one(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    names = [field["id"] for field in form["body"]]
    assert len(set(names)) == len(names)
    for field in form["body"]:
        assert field["type"] in ("textarea", "input", "checkboxes", "dropdown")
        assert field["attributes"]["label"]
