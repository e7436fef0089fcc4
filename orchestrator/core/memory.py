"""Return freed memory to the system, and keep pyarrow from loading pandas."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone


def give_back() -> None:
    """Return freed memory to the system, which the C library otherwise keeps."""
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
    """An import hook that refuses pandas and leaves every other module to other finders."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
