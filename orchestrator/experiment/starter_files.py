"""Write starter files of an experiment: `orch init`."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.core.machines import users
from orchestrator.core.paths import playbooks


@dataclass(frozen=True, slots=True)
class Start:
    """A kind of starter folder: its purpose, and the next commands in their order."""

    what: str
    commands: tuple[str, ...]
    before: tuple[str, ...] = ()  # what is no command of ours and comes first


KINDS: Mapping[str, Start] = MappingProxyType(
    {
        "quickstart": Start(
            "a first experiment on hosts of this machine, and a sweep over its load",
            ("orch doctor", "orch run quickstart.yaml --local", "orch sweep load.yaml --local"),
        ),
        "training": Start(
            "a training of your own: an experiment around it, and a script to begin with",
            ("orch plan training.yaml", "orch run training.yaml"),
        ),
        "cluster": Start(
            "an inventory to enter hosts in, a first experiment on them, and the rights that captures need",
            ("orch doctor rack.yaml", "orch plan first.yaml", "orch run first.yaml"),
        ),
        "nightly": Start(
            "a sweep that is measured every night and compared with a baseline, with systemd units and a crontab",
            ("orch plan nightly.yaml", "orch sweep nightly.yaml --new", "orch baseline set main nightly"),
        ),
        "slurm": Start(
            "an experiment on the nodes of a Slurm allocation",
            (
                "orch plan exp.yaml --local",
                "orch run exp.yaml --local",
                "orch run exp.yaml --sbatch --nodes 4 --time 10",
            ),
        ),
        "kubernetes": Start(
            "an experiment in pods of Kubernetes, and a Job that makes them",
            ("orch run exp.yaml --local", "orch doctor exp.yaml", "orch run exp.yaml"),
        ),
        "package": Start(
            "a package with a workload and a collector of your own, and the tests of their contract",
            ("orch plan experiment.yaml", "orch run experiment.yaml"),
            before=("pip install --editable '.[test]'", "python -m pytest"),
        ),
        "paper": Start(
            "a paper that anyone can repeat: what it prints, two figures that ask runs, and sweeps",
            (
                "orch study . --quick --what",
                "orch study . --quick --local",
                "orch study . --quick --local --bundle mine.zip",
            ),
        ),
    }
)
# What of the playbooks' text is replaced by what holds here.
_PLACES = re.compile(
    r"(?P<orch>(?:/srv/orch/)?\.venv/bin/orch)|(?P<here>/srv/orch)|playbooks/(?:sweeps|hosts|nightly)/"
)
_PLAIN = re.compile(r"[\w./+-]+")  # of a path that units and crontabs take as it is


def write(kind: str, folder: Path) -> list[Path]:
    """Write the files of a kind into a folder, which is made where it is missing; return their paths.

    ConfigError where one of them is there already: nothing is written then.
    """
    source = playbooks.START / kind
    found = (path.relative_to(source) for path in source.rglob("*") if path.is_file())
    names = sorted(path for path in found if "__pycache__" not in path.parts)
    taken = [str(name) for name in names if (folder / name).exists() or (folder / name).is_symlink()]
    if taken:
        raise ConfigError(
            f"{folder}: there is already {', '.join(taken)}; nothing was written",
            hint=f"name an empty folder: orch init {kind} FOLDER",
        )
    texts = {name: _filled((source / name).read_text(encoding="utf-8"), folder) for name in names}
    try:
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
            shutil.copymode(source / name, folder / name)
    except OSError as error:
        raise OrchError(f"{error.filename}: cannot be written: {error.strerror}") from None
    return [folder / name for name in names]


def _filled(text: str, folder: Path) -> str:
    """Return a playbook's text with this machine's paths and user filled in."""
    places = {"orch": Path(sys.executable).with_name("orch"), "here": folder.resolve()}

    def now(match: re.Match[str]) -> str:
        place = places.get(match.lastgroup or "")
        if place is not None and not _PLAIN.fullmatch(str(place)):
            raise ConfigError(f"{place}: systemd and cron do not take this path; accepted: letters, digits and /._+-")
        return "" if place is None else str(place)

    return _PLACES.sub(now, text).replace("User=orch", f"User={users.name()}")
