"""Bounds of the integers in the agent's answers, checked by the controller as it reads them; others have 64 bits.

No agent imports this on its host: `Annotated` is of Python 3.9.
"""

from __future__ import annotations

from typing import Annotated

Count = Annotated[int, range(1 << 63)]
Pid = Annotated[int, range(1, 1 << 63)]
RawText = Annotated[
    str, "raw"
]  # letter by letter, as names of files are; of other texts nothing that cannot be printed
