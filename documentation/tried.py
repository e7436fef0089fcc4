"""Extract commands and YAML from the documentation's pages, so that tests can run, parse or validate them.

A block of shell code says behind its language how it is tried: `bash run` (at once, beside a store with some runs),
`bash run on a testbed`, or `bash parsed: WHY`. Where it says nothing, or is indented, its commands are only parsed, and
the page says once why, in a comment: `<!-- commands are parsed: WHY -->`. YAML is validated: a whole file is planned, a
part of one is read beside the rest of an experiment; `yaml parsed: WHY` is only read. A command that does not end well
says so in the remark behind it: `# ends with 4`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from documentation import markdown

ROOT = Path(__file__).parents[1]
SHELL = ("bash", "sh", "console")
RUN = "run"
ON_A_TESTBED = "run on a testbed"

How = Literal["run", "testbed", "parsed"]

_OURS = re.compile(r"(?:\.venv/bin/)?(?:orch|python -m|make) ?")  # how a command of an indented block begins
_WHY = re.compile(r"<!-- commands are parsed: \S.* -->")
_INLINE = re.compile(r"`(orch [a-z]+ [^`]+)`")
_STATUS = re.compile(r"# ends with (\d+)\b")
_PLACEHOLDER = re.compile(r"[\[\]|]|\.\.\.")
_TITLE = re.compile(r"# (\S+\.(?:yaml|py))\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a page: the line, without the remark that may stand behind it."""

    page: str
    line: int
    text: str
    how: How
    status: int  # that it ends with
    explained: bool  # whether the page or the block says why it is not run

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Yaml:
    """A block of YAML; `name` is that of its file, where it has one: `# NAME.yaml` is its first line then."""

    page: str
    line: int
    text: str
    name: str
    only_read: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return every page that readers get, by its path in the repository."""
    found = [ROOT / "README.md", ROOT / "results/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found += [path for path in [ROOT / "CONTRIBUTING.md"] if path.exists()]
    return [path.relative_to(ROOT).as_posix() for path in found]


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of a page's blocks, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    page_says = bool(_WHY.search(text))
    for block in markdown.blocks(text):
        if block.fenced and block.language not in SHELL:
            continue
        how: How = {RUN: "run", ON_A_TESTBED: "testbed"}.get(block.marker, "parsed")  # type: ignore[assignment]
        explained = how != "parsed" or page_says or block.marker.startswith("parsed: ")
        for number, line in _whole_lines(block):
            if block.fenced or _OURS.match(line):
                told = _STATUS.search(line)
                yield Command(
                    page=page,
                    line=number,
                    text=_without_remark(line),
                    how=how,
                    status=int(told[1]) if told else 0,
                    explained=explained,
                )


def _whole_lines(block: markdown.Block) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; one that ends in a backslash is joined with the next."""
    held, began = "", 0
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        began = began if held else number
        held += line.removesuffix("\\")
        if not line.endswith("\\"):
            if held.strip() and not held.lstrip().startswith("#"):
                yield began, held.strip()
            held = ""


def _without_remark(line: str) -> str:
    return re.split(r" {2,}(?=[^ -])|\s+# ", line)[0].strip()


def inline(page: str) -> list[str]:
    """Return commands within sentences that have an argument, and no placeholder that no command takes."""
    found = _INLINE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [command for command in dict.fromkeys(found) if not _PLACEHOLDER.search(command)]


def files(page: str) -> dict[str, str]:
    """Return the files that the page has the reader write, by name.

    They are blocks whose first line is `# NAME.yaml` or `# NAME.py`.
    """
    every = markdown.blocks((ROOT / page).read_text(encoding="utf-8"))
    return {title[1]: f"{block.text}\n" for block in every if block.fenced and (title := _TITLE.match(block.text))}


def yaml_blocks(page: str) -> list[Yaml]:
    """Return the YAML blocks of a page, in order."""
    found = []
    for block in markdown.blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.language == "yaml":
            title = _TITLE.match(block.text)
            only_read = block.marker.startswith("parsed: ")
            name = title[1] if title else ""
            found.append(Yaml(page=page, line=block.line, text=block.text + "\n", name=name, only_read=only_read))
    return found
