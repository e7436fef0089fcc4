"""Gives freed memory back to the system, and keeps pandas from being loaded where nobody needs it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone


def give_back() -> None:
    """Give freed memory back to the system, which the C library otherwise keeps between what is in use."""
    if _TRIM is not None:
        _TRIM(0)


def without_pandas() -> None:
    """Keep pyarrow from importing pandas with its first array, which it does only to recognise pandas' objects.

    That takes 43 MB and 0.2 s. For processes of ours that give pyarrow no such objects; it still makes them.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([])  # pyarrow tries to import it once, and again where it is to make such objects
    finally:
        sys.meta_path.remove(absent)


class _Absent(MetaPathFinder):
    """Finds every module but pandas where it would be found anyway."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
