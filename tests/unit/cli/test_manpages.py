"""Man pages: one for every command, with all that its help says, in macros that man takes without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from orchestrator.cli import manpages
from orchestrator.cli.commandline import build_parser

PAGES = manpages.pages("1.2.3")


def plain(text):
    return text.replace(r"\-", "-").replace(r"\e", "\\").replace(r"\&", "")


def test_there_is_a_page_for_every_command_with_all_of_its_options():
    commands = dict(manpages.below(build_parser()))
    assert PAGES.keys() == {"orch", *(f"orch-{word}" for word in commands)}
    for word, parser in commands.items():
        text = plain(PAGES[f"orch-{word}"])
        for one in [parser, *(inner for _, inner in manpages.below(parser))]:
            for argument in manpages.arguments(one):
                assert all(rf"\fB{option}\fR" in text for option in argument.options), word
                assert argument.help in text
        assert manpages.example(parser) in text
        assert rf".BR orch-{word} (1)" in plain(PAGES["orch"])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_parts_that_man_and_apropos_look_for(name):
    lines = PAGES[name].splitlines()
    assert lines[0] == rf'.TH "{name.upper()}" "1" "" "orch 1.2.3" "orch"'.replace("-", r"\-")
    assert lines[1] == ".SH NAME"
    assert re.fullmatch(r"[\w\\-]+ \\- [^.]+.*", lines[2])
    assert {".SH SYNOPSIS", ".SH DESCRIPTION"} <= set(lines)
    for line in lines:  # what begins with a dot or an apostrophe is a request
        assert not line.startswith("'")
        assert not line.startswith(".") or re.match(r"\.(TH|SH|PP|TP|BR|nf|fi)\b", line), line


def test_a_line_that_would_be_a_request_is_text():
    assert manpages._text(".venv/bin/orch") == r"\&.venv/bin/orch"
    assert manpages._text("'quoted' a\\b") == r"\&'quoted' a\eb"


def test_what_shows_pages_has_nothing_to_say_against_them(tmp_path):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    manpages.write(tmp_path, "1.2.3")
    files = sorted(map(str, tmp_path.iterdir()))
    shown = ["groff", "-man", "-ww", "-Tascii", "-P-cbu", *files]
    done = subprocess.run(shown, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("SYNOPSIS") == len(files)
