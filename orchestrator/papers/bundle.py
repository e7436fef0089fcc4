"""Pack a study for others: its page, figures, answers, runs' manifests, environment, the paper's folder, commands.

A bundle is a zip archive. To show one nothing of it is carried out; to measure it again its paper is unpacked, whose
sweeps, and `answers.py`, then run with the rights of who asks for it.
"""

from __future__ import annotations

import filecmp
import itertools
import json
import platform
import shlex
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.core import secret_looks
from orchestrator.core.errors import ConfigError, StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.execution import provenance
from orchestrator.experiment import paperfile
from orchestrator.papers import answering, page
from orchestrator.papers.answering import Paper
from orchestrator.questions.rows import Measured
from orchestrator.store import atomic
from orchestrator.store.rundir import Entry
from orchestrator.store.stamps import MANIFEST

ABOUT, PAGE, README, PAPER = "bundle.json", "page.html", "README.md", "paper"
FORMAT = 1
MOST_FILES, MOST_BYTES = 20_000, 1 << 30  # of a bundle that is unpacked
MOST_OF_ABOUT = 1 << 20  # bytes
MOST_OF_PAPER = 4 << 20  # bytes of a file of a paper's folder: larger ones are results
_NO_PAPER = ("results", "__pycache__")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)  # what zipfile raises


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a bundle is of: the paper, the version of its sweeps, its options, and the counts of its page."""

    paper: str
    title: str
    version: str
    options: tuple[str, ...]
    headline: str


def write(paper: Paper, entries: Sequence[Entry], output: Path, *, version: str, options: Sequence[str] = ()) -> Path:
    """Write the bundle of these runs; `options` are what `orch study` was called with beside the version.

    ConfigError where the paper's folder does not hold all that its sweeps need.
    """
    with tempfile.TemporaryDirectory(prefix="orch-bundle-") as scratch:
        folder = Path(scratch)
        _pack_paper(paper, folder / PAPER, version, options, without=output)
        shown = page.render(paper, entries, folder / PAGE)
        about = About(
            paper=paper.paper.name,
            title=paper.paper.title,
            version=version,
            options=tuple(secret_looks.masked_all(options)),
            headline=shown.headline,
        )
        for name, text in _texts(paper, entries, about).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        try:
            with atomic.replacing(output, durable=False) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as out:
                for file in _files(folder):
                    out.write(file, f"{paper.paper.name}/{file.relative_to(folder)}")
        except OSError as error:
            raise StoreError(f"{output}: cannot be written: {error.strerror}") from None
    return output


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode))


def _pack_paper(paper: Paper, to: Path, version: str, options: Sequence[str], *, without: Path) -> None:
    """Copy the paper's folder, without its own pages and bundle, and see that its sweeps can be read from the copy."""
    for file in _files(paper.folder):
        name = file.relative_to(paper.folder)
        hidden = any(part.startswith((".", "study-")) or part in _NO_PAPER for part in name.parts)
        if hidden or file.absolute() == without.absolute() or file.stat().st_size > MOST_OF_PAPER:
            continue
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes(file.read_bytes())
    read = partial(paperfile.load, overrides=_overrides(options), version=version, local="--local" in options)
    read(paper.folder / paperfile.FILE)
    try:
        read(to / paperfile.FILE)
    except ConfigError as error:
        raise ConfigError(
            f"{paper.folder}: its sweeps cannot be read from a copy of this folder alone: {error.message}",
            hint="keep what they include and name below the paper's folder",
        ) from None


def _overrides(options: Sequence[str]) -> list[str]:
    return [value for option, value in itertools.pairwise(options) if option == "--set"]


def _texts(paper: Paper, entries: Sequence[Entry], about: About) -> dict[str, str]:
    """Return the files of a bundle beside its page and paper."""
    measured = Measured(entries=tuple(entries))
    found = {
        ABOUT: json.dumps({"format": FORMAT, **_plain(about)}, indent=1) + "\n",
        README: readme(about),
        "environment.json": json.dumps(environment(entries), indent=1, sort_keys=True) + "\n",
    }
    for number, figure in enumerate(paper.file.figures, 1):
        rows = answering.answer(paper, figure, measured)
        if rows:
            found[f"answers/figure-{number}.csv"] = answering.csv_text(rows)
    for entry in entries:
        for name in (MANIFEST, "experiment.yaml"):
            path = entry.path / name
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace")
                found[f"runs/{entry.path.parent.name}/{entry.run}/{name}"] = text
    return found


def _plain(about: About) -> dict[str, Any]:
    return {
        "paper": about.paper,
        "title": about.title,
        "version": about.version,
        "options": list(about.options),
        "headline": about.headline,
    }


def environment(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what the runs were made with: versions, commits of orch, controllers; and the machine that packs."""
    return {
        "versions": [dict(one) for one in dict.fromkeys(tuple(entry.manifest.versions.items()) for entry in entries)],
        "commits": sorted({entry.manifest.git.commit for entry in entries if entry.manifest.git is not None}),
        "runs": len(entries),
        "packed": {"python": platform.python_version(), "system": platform.platform(), **provenance.versions()},
    }


def readme(about: About) -> str:
    """Return what a reader of a bundle needs: what is in it, and how to see and repeat it."""
    options = shlex.join(about.options)
    again = f"orch study {PAPER} --sweeps {about.version}" + (f" {options}" if options else "")
    return f"""# {about.title}

Measured again by orch: {about.headline}.

- `{PAGE}`: ours beside what the paper prints; it opens in a browser without a network
- `page-figures/`: its figures as SVG and PDF, with their numbers as CSV
- `answers/`: the rows behind each figure
- `runs/`: the manifest and the experiment of every run
- `environment.json`: versions of what measured
- `{PAPER}/`: the paper as a document, with its sweeps

To measure it again, in this folder, with orch installed (`pip install orch-testbed`):

```bash
{again}
```
"""


def about(path: Path) -> About:
    """Read what a bundle is of; StoreError for an archive that is none."""
    with _opened(path) as archive:
        one = next((one for one in archive.infolist() if one.filename.split("/")[1:] == [ABOUT]), None)
        if one is None or one.file_size > MOST_OF_ABOUT:
            raise StoreError(f"{path}: is no bundle of orch: it has no {ABOUT}")
        try:
            found = json.loads(_content(archive, one))
            if found["format"] != FORMAT:
                raise StoreError(f"{path}: is a bundle of format {found['format']}; accepted: {FORMAT}")
            return About(
                paper=safepath.segment(found["paper"]),
                title=str(found["title"]),
                version=safepath.segment(found["version"]),
                options=tuple(map(str, found["options"])),
                headline=str(found["headline"]),
            )
        except (KeyError, TypeError, ValueError, RecursionError, UnsafePath, *_BROKEN) as error:
            raise StoreError(f"{path}: {ABOUT} cannot be understood: {error}") from None


def unpacked(path: Path, folder: Path) -> Path:
    """Unpack a bundle into a folder of its paper's name below another, and return it. Nothing of it is carried out.

    A folder that has been unpacked from it before is returned as it is. StoreError where that folder is of anything
    else, for names that lead out of it, links, and more than MOST_FILES files or MOST_BYTES bytes; then nothing stays.
    """
    to = folder / about(path).paper
    with _opened(path) as archive:
        files = [one for one in archive.infolist() if not one.is_dir()]
        if len(files) > MOST_FILES or sum(one.file_size for one in files) > MOST_BYTES:
            raise StoreError(f"{path}: is too large: accepted: {MOST_FILES:,} files of {MOST_BYTES >> 20:,} MiB")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".orch-bundle-", dir=folder) as scratch:
                new = Path(scratch) / "new"
                for one in files:
                    file = new / _name(one, to.name)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(_content(archive, one))
                if not to.exists():
                    (new / to.name).rename(to)
                elif not _holds(to, new / to.name):
                    raise StoreError(f"{to}: is there already, and not what {path} has", hint="-o FOLDER")
        except (UnsafePath, OSError, *_BROKEN) as error:
            raise StoreError(f"{path}: cannot be unpacked: {error}") from None
    return to


def _holds(folder: Path, other: Path) -> bool:
    """Return whether a folder has every file of another one, with the same bytes."""
    for file in (one for one in other.rglob("*") if one.is_file()):
        here = folder / file.relative_to(other)
        if here.is_symlink() or not here.is_file() or not filecmp.cmp(here, file, shallow=False):
            return False
    return True


def _name(one: zipfile.ZipInfo, below: str) -> str:
    if stat.S_ISLNK(one.external_attr >> 16):
        raise UnsafePath(f"{one.filename!r} is a link")
    name = safepath.relative(one.filename)
    if not name.startswith(f"{below}/"):
        raise UnsafePath(f"{one.filename!r} is not below {below}")
    return name


def _content(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    """Return a file's bytes, no more of them than the archive says."""
    with archive.open(one) as file:
        return file.read(one.file_size)


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path}: cannot be read as a zip archive: {error}") from None
