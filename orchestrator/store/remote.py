"""A results store elsewhere, such as an object store, for reading: what is asked for is kept in this user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.store.rundir import MANIFEST, PARTIAL

AT_ONCE = 500  # manifests in one request to the file system's library


def is_elsewhere(results: str) -> bool:
    """Whether a store is named by a URL."""
    return "://" in results


def here(results: str) -> Path:
    """The store as a folder of this machine; of one elsewhere a folder with the manifest of every run, up to date.

    A sealed run never changes, so that of those that were seen before nothing is asked.
    """
    if not is_elsewhere(results):
        return Path(results)
    mirror = _mirror(results)
    with _opened(results) as (system, root):
        there = dict(_runs(system, root))
        wanted = [path for path in there if path.endswith(PARTIAL) or not (mirror / path / MANIFEST).exists()]
        for first in range(0, len(wanted), AT_ONCE):
            files = {f"{there[path]}/{MANIFEST}": path for path in wanted[first : first + AT_ONCE]}
            found = system.cat(list(files), on_error="omit")
            for name, content in found.items():
                _put(mirror / files[name] / MANIFEST, content)
    for gone in _mirrored(mirror) - there.keys():
        shutil.rmtree(mirror / gone, ignore_errors=True)
    return mirror


def fetch(results: str, runs: Sequence[Path], *, want: Callable[[str], bool] | None = None) -> None:
    """See that files of runs (folders that `here` gave) are there: their tables and the facts of their hosts.

    `want` decides by the path in the run's folder instead.
    """
    if not is_elsewhere(results):
        return
    mirror = _mirror(results)
    with _opened(results) as (system, root):
        for run in runs:
            there = f"{root}/{run.relative_to(mirror).as_posix()}"
            for file in system.find(there):
                inside = PurePosixPath(_below(file, there)).as_posix()
                if not (want or _is_figure)(inside):
                    continue
                if run.name.endswith(PARTIAL) or not (run / inside).exists():
                    _put(run / inside, system.cat_file(file))


def _is_figure(path: str) -> bool:
    return path.startswith("tables/") or path.endswith("/before.json")


def _below(file: str, folder: str) -> str:
    return file.lstrip("/")[len(folder.lstrip("/")) :].lstrip("/")


@contextmanager
def _opened(results: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL and the store's path in it; whatever it raises is told with the URL."""
    try:
        import fsspec

        system, root = fsspec.url_to_fs(results)
        yield system, root.rstrip("/")
    except ImportError as error:
        raise StoreError(f"{results}: {error}", hint="pip install what it names") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{results}: cannot be read: {error}") from None


def _runs(system: Any, root: str) -> Iterator[tuple[str, str]]:
    """Every folder that may be a run, as `experiment/run` and as the file system calls it."""
    for experiment in _folders(system, root):
        for run in _folders(system, experiment):
            yield f"{_name(experiment)}/{_name(run)}", run


def _folders(system: Any, path: str) -> list[str]:
    found = system.ls(path, detail=True)
    return [entry["name"].rstrip("/") for entry in found if entry["type"] == "directory"]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _mirrored(mirror: Path) -> set[str]:
    return {path.parent.relative_to(mirror).as_posix() for path in mirror.glob(f"*/*/{MANIFEST}")}


def _mirror(results: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "orch" / hashlib.sha256(results.rstrip("/").encode()).hexdigest()[:16]


def _put(path: Path, content: bytes) -> None:
    """Whole or not at all, also when another `orch` does the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_bytes(content)
    new.replace(path)
