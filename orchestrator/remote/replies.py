"""The fields of what an agent says, each read as the type that it must have; BadAnswer tells the first that is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from orchestrator.core.errors import BadAnswer

MOST = (1 << 63) - 1  # what tables and logs hold as a whole number
_SHOWN = 60
_HALVES = re.compile("[\ud800-\udfff]")


class Fields:
    """One object of an answer or event: `of` says which, `node` whose. Fields that nobody asks for are passed over."""

    def __init__(self, values: object, *, of: str, node: str) -> None:
        self._of = of
        self._node = node
        if not isinstance(values, Mapping):
            self._refuse("it", values, "an object")
        self._values: Mapping[str, object] = values

    def integer(self, name: str, *, least: int = -MOST) -> int:
        return self._integer(name, self._get(name), least)

    def number(self, name: str) -> float:
        value = self._get(name)
        if type(value) not in (int, float) or not abs(value) <= MOST:  # which NaN is not, either
            self._refuse(name, value, "a number")
        return float(value)

    def text(self, name: str) -> str:
        return self._text(name, self._get(name))

    def raw(self, name: str) -> str:
        """Text as it came, not for printing: a name of a file means something only letter by letter."""
        value = self._get(name)
        return value if isinstance(value, str) else self._refuse(name, value, "text")

    def text_or_none(self, name: str) -> str | None:
        return None if self._values.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        value = self._get(name)
        return value if isinstance(value, bool) else self._refuse(name, value, "true or false")

    def integers(self, name: str, *, least: int = -MOST) -> tuple[int, ...]:
        return tuple(self._integer(name, one, least) for one in self._list(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._text(name, one) for one in self._list(name))

    def inner(self, name: str) -> Fields:
        """An object in this one."""
        return Fields(self._get(name), of=f"{self._of}.{name}", node=self._node)

    def each(self, name: str) -> list[Fields]:
        """The objects of a list."""
        return [Fields(one, of=f"{self._of}.{name}", node=self._node) for one in self._list(name)]

    def each_or_none(self, name: str) -> list[Fields | None]:
        """The objects of a list in which some may be null."""
        return [
            None if one is None else Fields(one, of=f"{self._of}.{name}", node=self._node) for one in self._list(name)
        ]

    def texts_by_name(self) -> dict[str, str | None]:
        """All of an object whose values are texts, or nothing."""
        return {_clean(name): None if one is None else self._text(name, one) for name, one in self._values.items()}

    def verdict(self, name: str) -> tuple[bool, str]:
        """A pair of whether, and why."""
        value = self._list(name)
        if len(value) != 2 or not isinstance(value[0], bool):
            self._refuse(name, value, "true or false, and why")
        return value[0], self._text(name, value[1])

    def words(self, *names: str) -> dict[str, str]:
        """Those of these fields that are text or a number, as text."""
        there = {name: self._values.get(name) for name in names}
        return {name: _clean(str(one)) for name, one in there.items() if isinstance(one, (str, int, float))}

    def _get(self, name: str) -> Any:
        if name not in self._values:
            raise BadAnswer(f"its agent's answer to {self._of} lacks {name!r}", node=self._node)
        return self._values[name]

    def _list(self, name: str) -> list[Any]:
        value = self._get(name)
        return value if isinstance(value, list) else self._refuse(name, value, "a list")

    def _integer(self, name: str, value: Any, least: int) -> int:
        if type(value) is not int or not least <= value <= MOST:
            self._refuse(name, value, "a whole number of 64 bits" + ("" if least < 0 else f", at least {least}"))
        return value

    def _text(self, name: str, value: Any) -> str:
        return _clean(value) if isinstance(value, str) else self._refuse(name, value, "text")

    def _refuse(self, name: str, value: Any, accepted: str) -> NoReturn:
        shown = repr(value)[:_SHOWN] if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"
        raise BadAnswer(f"its agent's answer to {self._of}: {name} is {shown}; accepted: {accepted}", node=self._node)


def _clean(text: str) -> str:
    """Text that can be written and printed: halves of surrogate pairs, which JSON can spell, are replaced."""
    return text if text.isascii() else _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)
