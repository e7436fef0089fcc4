"""Look up files that a file names: beside the naming file first, then from the current folder.

One that is sent to a host keeps there the path by which it was named. Where that does not show in the path at which it
was found, `/./` stands before it, as rsync has it: `project/./package/model.py` is `package/model.py` there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from orchestrator.core.errors import shortened
from orchestrator.core.paths import safepath
from orchestrator.core.units import Mistake

ACCEPTED = "a path from the folder of the file that names it, from the current folder, or an absolute one"
_FOLDERS = "folders"
_HERE = "/./"


def candidates(named: str, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return where a file is looked up that files of these folders name, in this order."""
    try:
        path = Path(named).expanduser()
    except RuntimeError:  # no such user's home
        path = Path(named)
    return tuple(dict.fromkeys([*(folder / path for folder in folders), path]))


def find(named: str, folders: Sequence[Path], *, there: Callable[[Path], bool] = safepath.is_there) -> Path | None:
    """Return the first of the candidates that is a file, or for which `there` holds."""
    return next((path for path in candidates(named, folders) if there(path)), None)


def nowhere(named: str, folders: Sequence[Path]) -> str:
    """Return the message that there is no such file, and where it was looked up."""
    return f"no file {' nor '.join(shortened(str(path)) for path in candidates(named, folders))}"


def context(*folders: Path) -> dict[str, tuple[Path, ...]]:
    """Return the context of a validation in which `looked_up` looks into these folders."""
    return {_FOLDERS: folders}


def folders_of(info: ValidationInfo) -> Sequence[Path]:
    """Return the folders of a validation's context; none where nothing says which files it is of."""
    folders: Sequence[Path] = (info.context or {}).get(_FOLDERS, ())
    return folders


def looked_up(named: str, info: ValidationInfo) -> str:
    """Return the path of a file that what is validated names; as it is where nothing says which file that is from.

    The path is from the current folder, as far as that of the naming file is, so that it stays good for what is read
    again elsewhere, and is the same wherever a project lies.
    """
    if not (folders := folders_of(info)):
        return named
    found = find(named, folders)
    if found is None:
        raise Mistake(nowhere(named, folders), accepted=ACCEPTED)
    return str(found)


def name_there(sent: str) -> str:
    """Return the path of a file or folder on the host that it is sent to.

    The last name of one that does not lead down.
    """
    _, mark, behind = sent.rpartition(_HERE)
    path = PurePosixPath(behind if mark else sent)
    leads_down = not path.is_absolute() and ".." not in path.parts and not sent.startswith("~")
    return str(path) if mark or leads_down else path.name


def _sent(named: str, info: ValidationInfo) -> str:
    """Return the path of a file or folder as `looked_up` gives it, marked (`/./`) where its name on the host begins."""
    if not (folders := folders_of(info)):
        return named
    found = find(named, folders, there=safepath.is_file_or_folder)
    if found is None:
        raise Mistake(nowhere(named, folders), accepted=ACCEPTED)
    path, name = str(found), name_there(named)
    return path if name_there(path) == name else f"{path.removesuffix(name)}{_HERE.lstrip('/')}{name}"


def _path(named: Path, info: ValidationInfo) -> Path:
    return Path(looked_up(str(named), info))


def _folder(named: Path, info: ValidationInfo) -> Path:
    """Return the path of a folder as `looked_up` gives that of a file."""
    if not (folders := folders_of(info)):
        return named
    found = find(str(named), folders, there=safepath.is_folder)
    if found is None:
        looked = " nor ".join(shortened(str(path)) for path in candidates(str(named), folders))
        raise Mistake(f"no folder {looked}", accepted=ACCEPTED)
    return found


SentFile = Annotated[str, AfterValidator(_sent)]
NamedFile = Annotated[Path, AfterValidator(_path)]
NamedFolder = Annotated[Path, AfterValidator(_folder)]
