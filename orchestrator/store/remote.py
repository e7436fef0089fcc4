"""A results store elsewhere, such as an object store, for reading: what is asked for is kept in this user's cache.

Others may write into a bucket. A key is taken only as a path below the cache; others are left out, and told.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.core import safepath
from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.store.rundir import MANIFEST, PARTIAL

AT_ONCE = 500  # manifests in one request to the file system's library


def is_elsewhere(results: str) -> bool:
    """Whether a store is named by a URL."""
    return "://" in results


def mirrored(results: str) -> Path:
    """The store as a folder of this machine; of one elsewhere a folder with the manifest of every run, up to date.

    A sealed run never changes, so that of those that were seen before nothing is asked.
    """
    if not is_elsewhere(results):
        return Path(results)
    mirror = _mirror(results)
    with _opened(results) as (system, root):
        there = dict(_runs(system, root, results))
        wanted = [path for path in there if path.endswith(PARTIAL) or not (mirror / path / MANIFEST).exists()]
        for first in range(0, len(wanted), AT_ONCE):
            files = {f"{there[path]}/{MANIFEST}": path for path in wanted[first : first + AT_ONCE]}
            found = system.cat(list(files), on_error="omit")
            for name, content in found.items():
                _put(safepath.under(mirror, f"{files[name]}/{MANIFEST}"), content)
    for gone in _mirrored(mirror) - there.keys():
        shutil.rmtree(mirror / gone, ignore_errors=True)
    return mirror


def fetch(results: str, runs: Sequence[Path], *, want: Callable[[str], bool] | None = None) -> None:
    """See that files of runs (folders that `mirrored` gave) are there: their tables and the facts of their hosts.

    `want` decides by the path in the run's folder instead.
    """
    if not is_elsewhere(results):
        return
    mirror = _mirror(results)
    with _opened(results) as (system, root):
        for run in runs:
            there = f"{root}/{run.relative_to(mirror).as_posix()}"
            for file in system.find(there):
                inside = _below(file, there)
                if not (want or _is_figure)(inside):
                    continue
                with _left_out(results):
                    path = safepath.under(run, inside)
                    if run.name.endswith(PARTIAL) or not path.exists():
                        _put(path, system.cat_file(file))


@contextmanager
def _left_out(results: str) -> Iterator[None]:
    """Leave out and tell what has a name that leads elsewhere; whoever else reads the store needs the rest."""
    try:
        yield
    except UnsafePath as error:
        print(f"orch: {results}: left out: {error.message}", file=sys.stderr)


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


def _runs(system: Any, root: str, results: str) -> Iterator[tuple[str, str]]:
    """Every folder that may be a run, as `experiment/run` and as the file system calls it."""
    for experiment in _folders(system, root):
        for run in _folders(system, experiment):
            with _left_out(results):
                yield f"{safepath.segment(_name(experiment))}/{safepath.segment(_name(run))}", run


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
    with safepath.fresh(new) as file:
        file.write(content)
    new.replace(path)
