"""Abbreviate what is alike: names as ranges, and sentences of one form as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_TOKEN = re.compile(rf"(?<![\w.]){_NUMBER.pattern}(?![\w])|[A-Za-z_][\w.-]*|\s+|.")
_WORD = re.compile(r"[A-Za-z_]")
_SHORTEST_RANGE = 3
_MOST_WORDS = 2  # that may differ between sentences of one form: more of them say different things


def names(found: Iterable[str]) -> str:
    """Names once each in natural order, three and more that are numbered on as a range: "h1..h5, switch"."""
    ordered = sorted(dict.fromkeys(found), key=natural)
    runs: list[list[str]] = []
    for name in ordered:
        if runs and _follows(runs[-1][-1], name) and _steps(runs[-1]) in (None, _place(runs[-1][-1], name)):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) >= _SHORTEST_RANGE else ", ".join(run) for run in runs)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names with their numbers by size: h2 before h10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _follows(first: str, second: str) -> bool:
    """Whether names differ in one number alone, and that by one."""
    place = _place(first, second)
    if place is None:
        return False
    one, other = re.split(r"(\d+)", first)[place], re.split(r"(\d+)", second)[place]
    return one.isdigit() and other.isdigit() and int(other) == int(one) + 1 and f"{int(one) + 1:0{len(one)}}" == other


def _place(first: str, second: str) -> int | None:
    """Which part of two names differs, letters and numbers apart; None unless it is exactly one."""
    one, other = re.split(r"(\d+)", first), re.split(r"(\d+)", second)
    if len(one) != len(other):
        return None
    places = [place for place, (left, right) in enumerate(zip(one, other, strict=True)) if left != right]
    return places[0] if len(places) == 1 else None


def _steps(run: Sequence[str]) -> int | None:
    """Return the part in which the names of a run differ, if it is known yet."""
    return next((_place(first, second) for first, second in pairwise(run)), None)


def sentences(texts: Iterable[str]) -> list[str]:
    """Sentences, those of one form as one, in the order of the first of each.

    Of one form are those that differ in numbers, and in at most two words. Numbers that differ become the least and
    the most of them ("0.1..2.5"), words become names ("h1..h5").
    """
    forms: dict[tuple[str, ...], list[list[str]]] = {}
    for text in dict.fromkeys(texts):
        tokens = _TOKEN.findall(text)
        forms.setdefault(tuple(map(_form, tokens)), []).append(tokens)
    return [sentence for found in forms.values() for sentence in _merged(found)]


def _form(token: str) -> str:
    return "0" if _NUMBER.fullmatch(token) else "w" if _WORD.match(token) else token


def forms(texts: Iterable[str]) -> tuple[str, ...]:
    """Of which forms sentences are: two sets of sentences with equal forms are alike."""
    return tuple(dict.fromkeys(" ".join(map(_form, _TOKEN.findall(text))) for text in texts))


def _merged(found: Sequence[Sequence[str]]) -> list[str]:
    places = [list(dict.fromkeys(tokens)) for tokens in zip(*found, strict=True)]
    if sum(len(tokens) > 1 and _form(tokens[0]) == "w" for tokens in places) > _MOST_WORDS:
        return ["".join(tokens) for tokens in found]
    return ["".join(map(_spread, places))]


def _spread(tokens: Sequence[str]) -> str:
    """Return what one place of several sentences holds."""
    if len(tokens) == 1:
        return tokens[0]
    if _form(tokens[0]) == "w":
        return names(tokens)
    return f"{min(tokens, key=float)}..{max(tokens, key=float)}"
