"""A night after the cluster got slower, by the lines of the service, the crontab and the alert as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.orch_runs import ROOT, light, write

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

NIGHTLY = ROOT / "playbooks/nightly"
QUICK_S, SLOW_S = 0.03, 0.06
TRAIN = """\
import itertools, pathlib, sys, time
for step in itertools.count():  # as fast as the cluster is that night
    began = time.perf_counter()
    time.sleep(float(pathlib.Path(sys.argv[1]).read_text()))
    print(f"step {step} took {time.perf_counter() - began:.6f} s", flush=True)
"""
STATUS = re.compile(r"^orch_sweep_status\{.*\} (\S+)$", re.MULTILINE)


def lines(name: str, key: str) -> str:
    """The value of a key of a unit that stands once in it."""
    (found,) = re.findall(rf"^{key}=(.*)$", (NIGHTLY / name).read_text(), re.MULTILINE)
    return str(found)


class Place:
    """What `/srv/orch` is in the units: a folder with `orch`, a sweep file, and a cluster of a certain pace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pace(QUICK_S)
        self._program("train.py", TRAIN)
        self._program(".venv/bin/orch", f'#!/bin/sh\nexec {sys.executable} -m orchestrator.cli.main "$@"\n')
        (folder / "playbooks/sweeps").mkdir(parents=True)
        command = {
            "argv": ["{python}", "-S", "train.py", str(folder / "pace")],
            "files": [str(folder / "train.py")],
            "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
            "hosts": ["h1", "h2"],
        }
        measure = {"warmup": 2, "iterations": 30, "at_most": "60s"}
        experiment = light(workload={"command": command}, measure=measure, collect=["nic"], conditions=None)
        del experiment["name"]
        axes = {"traffic.0.iperf.load": ["0gbit"]}
        data = {"name": "nightly", "mode": "windows", "repetitions": 3, "axes": axes, "experiment": experiment}
        write(folder, data, "playbooks/sweeps/nightly.yaml")

    def pace(self, seconds: float) -> None:
        (self.folder / "pace").write_text(str(seconds))

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def runs(self, line: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command line as cron and systemd start it: little in the environment, no terminal, two words in one."""
        path = f"{self.folder / 'stubs'}:{os.environ['PATH']}"
        here = {"HOME": str(self.folder), "PATH": path, "PYTHONPATH": str(ROOT), **env}
        for name in ("ORCH_TESTBED_LOCK", "TMPDIR"):
            here |= {name: os.environ[name]} if name in os.environ else {}
        argv = ["sh", "-c", line.replace("/srv/orch", str(self.folder))]
        return subprocess.run(
            argv,
            cwd=self.folder,
            env=here,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    def mailed(self, journal: str, status: int) -> str:
        """What the alert's unit mails: subject and text; `mail` prints it, and the journal is this."""
        (self.folder / "journal").write_text(journal)
        self._program("stubs/journalctl", f"#!/bin/sh\ncat {self.folder / 'journal'}\n")
        self._program("stubs/mail", '#!/bin/sh\necho "$@"\ncat\n')
        line = " ".join(
            shlex.quote(word.replace("$$", "$")) for word in shlex.split(lines("orch-alert.service", "ExecStart"))
        )
        done = self.runs(line, ORCH_ALERT="ops@example.org", MONITOR_EXIT_STATUS=str(status))
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_a_cluster_that_got_slower_ends_the_night_with_4_and_a_mail_that_says_by_how_much(tmp_path):
    place = Place(tmp_path)
    night = lines("orch-nightly.service", "ExecStart")
    first = place.runs("/srv/orch/.venv/bin/orch sweep playbooks/sweeps/nightly.yaml --new --wait 5min")
    assert first.returncode == 0, first.stdout + first.stderr
    assert place.runs("/srv/orch/.venv/bin/orch baseline set main nightly").returncode == 0

    (cron,) = [line for line in (NIGHTLY / "crontab").read_text().splitlines() if line and not line.startswith("#")]
    quiet = place.runs(cron.split(maxsplit=5)[5])  # behind its five fields
    assert quiet.returncode == 0, quiet.stdout + quiet.stderr
    assert "verdict: " in quiet.stdout
    assert not re.search(r"  worse  ", quiet.stdout)

    place.pace(SLOW_S)
    slow = place.runs(f"{night} --metrics-file {tmp_path / 'night.prom'}")
    assert slow.returncode == 4, slow.stdout + slow.stderr
    (status,) = STATUS.findall((tmp_path / "night.prom").read_text())
    assert float(status) == 4
    assert place.runs(lines("orch-nightly.service", "ExecStopPost")).returncode == 0

    subject, _, text = place.mailed(slow.stdout + slow.stderr, slow.returncode).partition("\n")
    assert subject.endswith(": status 4 ops@example.org")
    assert re.search(r"worse", text)
    assert re.search(r"\+\d+(\.\d+)? ?%", text), text
