"""Parse Markdown line by line: find code blocks and links, and change prose or link targets."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,}) *(?P<info>[^`]*)$")
_ITEM = re.compile(r"^ *(?:[-*+]|\d+\.) +\S")
_LINK = re.compile(
    r"(?P<before>\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\()(?P<target>[^)\s]+)(?P<after>\))|(?P<code>`[^`]+`)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code: fenced, with what stands behind the opening fence, or indented, without."""

    line: int  # of its first line of code, from 1
    info: str
    text: str
    fenced: bool

    @property
    def language(self) -> str:
        return self.info.split(" ", 1)[0]

    @property
    def marker(self) -> str:
        """The rest of the info string behind the language, which says how the block is tested."""
        return self.info.partition(" ")[2].strip()


def blocks(text: str) -> Iterator[Block]:
    """Yield every code block of a page, in order."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence:
            end = _end_of_fence(lines, at, fence["ticks"])
            width = len(fence["indent"])
            inside = "\n".join(line[width:] for line in lines[at + 1 : end])
            yield Block(line=at + 2, info=fence["info"].strip(), text=inside, fenced=True)
            at = end + 1
        elif _begins_indented(lines, at):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            inside = "\n".join(line[4:] for line in lines[at:end]).rstrip()
            yield Block(line=at + 1, info="", text=inside, fenced=False)
            at = end
        else:
            at += 1


def _end_of_fence(lines: list[str], start: int, ticks: str) -> int:
    for at in range(start + 1, len(lines)):
        if lines[at].strip() == ticks:
            return at
    return len(lines)


def _begins_indented(lines: list[str], at: int) -> bool:
    """Return whether an indented block begins here: after an empty line, and not within a list."""
    if not lines[at].startswith("    ") or (at > 0 and lines[at - 1].strip()):
        return False
    for line in reversed(lines[:at]):
        if line.strip() and not line.startswith(" "):
            return not _ITEM.match(line)
    return True


def prose(text: str, change: Callable[[str], str]) -> str:
    """Return the page with `change` applied to its lines outside of code blocks."""
    code = _code_lines(text)
    lines = enumerate(text.splitlines(), start=1)
    return "\n".join(line if number in code else change(line) for number, line in lines) + "\n"


def _code_lines(text: str) -> set[int]:
    return {block.line + place for block in blocks(text) for place in range(len(block.text.splitlines()))}


def links(text: str) -> list[str]:
    """Return the targets of a page's links that are paths, without anchors, as they are written."""
    found: dict[str, None] = {}

    def keep(path: str) -> str:
        found[path] = None
        return path

    relinked(text, keep)
    return list(found)


def relinked(text: str, change: Callable[[str], str]) -> str:
    """Return the page with the paths of its links changed; anchors, addresses and code stay."""

    def one(match: re.Match[str]) -> str:
        path, mark, anchor = (match["target"] or "").partition("#")
        if not path or re.match(r"[a-z][a-z0-9+.-]*:|/", path):
            return match[0]
        return match["before"] + change(path) + mark + anchor + match["after"]

    return prose(text, lambda line: _LINK.sub(one, line))


def resolved(page: str, target: str) -> str:
    """Return the path in the repository of a link's target on a page."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def loose_lists(text: str) -> Iterator[int]:
    """Return the lines where a list follows a paragraph without an empty line: the site would show it as text."""
    code = _code_lines(text)
    before = ""
    for number, line in enumerate(text.splitlines(), start=1):
        begins = _ITEM.match(line) and not line.startswith(" ") and number not in code
        if begins and before.strip() and not before.startswith((" ", "#")) and not _ITEM.match(before):
            yield number
        before = line
