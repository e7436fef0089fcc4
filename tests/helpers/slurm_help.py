"""A cluster of Slurm on this machine, held by `orch testbed --slurm`, whose jobs are an ordinary user's."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.orch_runs import ROOT, ring, start, wait_for
from tests.helpers.rack import descendants

PATIENCE_S = 420.0  # of a job that starts, reduces on its nodes and ends beside other testbeds
NODES = 4
USER = 65534  # of jobs where the cluster is root's: nobody, without any of root's rights
PROJECT = (
    "orchestrator",
    "workloads",
    "cross_traffic",
    "playbooks/experiments/slurm.yaml",
    "tests/helpers/light_rank.py",
)

EXPERIMENT = {
    "name": "slurm",
    "testbed": {"slurm": {"network": "198.18.0.0/24", "link": "200mbit"}},
    "workload": ring(0.04, hosts=["h1", "h2", "h3"]),
    "traffic": [{"iperf": {"from": "h1", "to": "h4", "load": "40mbit", "streams": 2}}],
    "collect": ["nic"],
    "measure": {"warmup": 1, "iterations": 20, "at_most": "60s"},
    "validity": {"processor": "ignore", "drift": "ignore"},
}


class Cluster:
    """The cluster while it is up; `folder` is one that jobs may write to, with a copy of the project."""

    def __init__(self, config: Path, folder: Path, holder: int) -> None:
        self.config = config
        self.folder = folder
        self._holder = holder
        self.idle = self.processes()

    def processes(self) -> dict[int, str]:
        """Every process of the cluster but those by which it is looked at, with its command line."""
        found = {}
        for pid in descendants(self._holder):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] and not words[0].startswith(b"sshd"):
                found[pid] = " ".join(word.decode(errors="replace") for word in words)[:200]
        return found

    def came(self) -> dict[int, str]:
        """Those that came since it was idle."""
        return {pid: words for pid, words in self.processes().items() if pid not in self.idle}

    def start(self, *argv: object, root: bool = False) -> subprocess.Popen[str]:
        """A command on the host to log in to, as the jobs' user or as root, in the folder that they may write to."""
        settings = {
            "HOME": self.folder,
            "PYTHONPATH": os.pathsep.join([str(self.folder), *site.getsitepackages()]),
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "TMPDIR": "/tmp",
        }
        user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 and not root else []
        words = ["setpriv", *user, "env", "-i", *(f"{key}={value}" for key, value in settings.items()), *argv]
        line = f"cd {shlex.quote(str(self.folder))} && exec {shlex.join(map(str, words))}"
        return subprocess.Popen(
            ["ssh", "-F", str(self.config), "login", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def done(self, *argv: object, root: bool = False) -> tuple[int, str]:
        """The exit status of such a command, and what it printed."""
        process = self.start(*argv, root=root)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out + err

    def allocated(self, *words: object, nodes: int = NODES, options: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The words of `orch` in an allocation of its own."""
        return ("salloc", f"--nodes={nodes}", *options, *self.orch(*words))

    def orch(self, *words: object) -> tuple[str, ...]:
        return (python(), "-m", "orchestrator.cli.main", *map(str, words))

    def write(self, name: str, **changes: Any) -> Path:
        """A file with the experiment, some of its keys replaced; None removes one."""
        data = {key: value for key, value in {**EXPERIMENT, **changes}.items() if value is not None}
        data = yaml.safe_load(yaml.safe_dump(data).replace(str(ROOT), str(self.folder)))
        data["testbed"]["slurm"]["work"] = str(self.folder / f"work-{name}")
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(data))
        return path


def python() -> str:
    """An interpreter that the jobs' user can run, of this one's version, so that it has the same packages."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    own = Path(sys.executable).resolve()
    readable = os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in own.parents)
    return sys.executable if readable else f"/usr/bin/{version}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Bring the cluster up; it is gone with the block."""
    folder = Path(tempfile.mkdtemp(prefix="orch-slurm-", dir="/tmp"))
    for name in PROJECT:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, target)
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER)
    holding = start("testbed", "--slurm", "--hosts", NODES, "--link", "250mbit")
    try:
        config = None
        while config is None:
            line = holding.stdout.readline()
            assert line, holding.stderr.read()
            if match := re.search(r"ssh -F (\S+) n1", line):
                config = Path(match[1])
        wait_for(lambda: holding.stdout.readline().startswith("up"), PATIENCE_S, "the cluster")
        yield Cluster(config, folder, holding.pid)
    finally:
        holding.send_signal(signal.SIGINT)
        holding.communicate(timeout=PATIENCE_S)
        shutil.rmtree(folder)
