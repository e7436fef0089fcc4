"""The notebooks of docs/notebooks and the store that they are carried out on.

`python -m tests.helpers.notebooks` carries them out and writes what they show into them; a test keeps nothing of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/notebooks"
REPETITIONS = 3


def store(folder: Path) -> Path:
    """A store with a recorded run, and nights whose iterations were recorded, the last ones with 5 % more compute."""
    from tests.bench.nights import BASE_MS, SLOW_MS, recorded
    from tests.helpers.night_runs import write_run

    for run in sorted((ROOT / "tests/data/store/traffic").iterdir()):
        shutil.copytree(run, folder / "traffic" / run.name)
    base, slow = (list(recorded(milliseconds).values()) for milliseconds in (BASE_MS, SLOW_MS))
    nights = [base[place : place + REPETITIONS] for place in range(0, len(base), REPETITIONS)]
    nights += [slow[place : place + REPETITIONS] for place in range(0, len(slow) // 2, REPETITIONS)]
    for night, runs in enumerate(nights):
        for repetition, times in enumerate(runs, start=1):
            write_run(folder, night=night, repetition=repetition, recorded=dict(times))
    return folder


def carried_out(path: Path, folder: Path) -> Any:
    """A notebook with what its cells show where `folder` is the current one; CellExecutionError where one fails."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    environment = {**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    # By sockets in files: a port that is free when it is chosen may be taken when the kernel listens on it.
    with tempfile.TemporaryDirectory() as sockets:
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        client = NotebookClient(notebook, kernel, timeout=240, resources={"metadata": {"path": str(folder)}})
        return client.execute(env=environment)


def main() -> None:
    import nbformat

    with tempfile.TemporaryDirectory() as scratch:
        store(Path(scratch) / "results")
        for path in sorted(FOLDER.glob("*.ipynb")):
            notebook = carried_out(path, Path(scratch))
            for cell in notebook.cells:
                cell.metadata.pop("execution", None)  # times: they differ each time
            notebook.metadata.pop("language_info", None)
            nbformat.write(notebook, path)
            print(f"carried out {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
