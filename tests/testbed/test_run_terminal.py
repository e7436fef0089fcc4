"""The terminal goes in the middle of a run: it ends as by Ctrl-C, all is put back, and its results are sealed."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from contextlib import contextmanager, suppress

import pytest
from orch_runs import ROOT, in_stage, light, manifest_of, nothing_is_left, wait_for, write

pytestmark = pytest.mark.testbed

ENDLESS = {"warmup": 1, "at_most": "120s"}  # without traffic, which a busy machine may refuse in the preflight
PATIENCE_S = 240.0


def command(path, results):
    return [sys.executable, "-m", "orchestrator.cli", "run", str(path), "--results", str(results), "--wait", "5min"]


@contextmanager
def on_a_terminal(argv):
    """A command as the leader of a terminal's session, and the terminal's other end."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread, and no other way
    )
    os.close(slave)
    try:
        yield process, master
    finally:
        process.kill()
        process.wait()


def sealed_as_interrupted(results, by):
    manifest, folder = manifest_of(results)
    assert folder.suffix != ".partial"
    assert (manifest["outcome"], manifest["error"]) == ("interrupted", f"stopped by {by}")
    assert {"restore", "fetch", "residue"} <= set(manifest["phases"])
    nothing_is_left(manifest["run"], PATIENCE_S)


def test_a_closed_terminal_ends_a_run_as_ctrl_c_does(tmp_path):
    results = tmp_path / "results"
    path = write(tmp_path, light(traffic=None, measure=ENDLESS))
    with on_a_terminal(command(path, results)) as (process, master):
        os.set_blocking(master, False)

        def measuring():
            with suppress(BlockingIOError):
                os.read(master, 1 << 16)  # or it would wait for us
            return in_stage(results, "window", 3)()

        wait_for(measuring, PATIENCE_S, "the window")
        os.close(master)
        assert process.wait(PATIENCE_S) == 130
    sealed_as_interrupted(results, "SIGHUP")


def test_ctrl_c_that_ends_the_reader_of_its_output_too(tmp_path):
    """As with `orch run ... 2>&1 | tee log`: tee is gone when the putting back is told."""
    results = tmp_path / "results"
    path = write(tmp_path, light(traffic=None, measure=ENDLESS))
    reader, writer = os.pipe()
    process = subprocess.Popen(command(path, results), cwd=ROOT, stdout=writer, stderr=writer)
    os.close(writer)
    tee = subprocess.Popen(["cat"], stdin=reader, stdout=subprocess.DEVNULL)
    os.close(reader)
    try:
        wait_for(in_stage(results, "window", 3), PATIENCE_S, "the window")
        tee.terminate()
        tee.wait()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.wait()
        tee.kill()
    sealed_as_interrupted(results, "SIGINT")


def test_a_log_on_a_full_disk_costs_no_measurement(tmp_path):
    results = tmp_path / "results"
    path = write(
        tmp_path,
        light(traffic=None, measure={"warmup": 1, "iterations": 20, "at_most": "60s"}, validity={"clock": "1s"}),
    )
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(command(path, results), cwd=ROOT, stdout=full, stderr=full, timeout=600, check=False)
    manifest, _ = manifest_of(results)
    assert manifest["outcome"] == "completed"
    assert done.returncode == (0 if manifest["valid"] else 3)
