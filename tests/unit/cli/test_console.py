"""A terminal that is gone, or a full disk behind it, keeps nobody from going on, and no exit status from being true."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.execution.observers.progress import Progress

TELLS = """
import argparse, sys
from orchestrator.cli import commandline as cli; from orchestrator.core.screen import console
def action(arguments):
    console.tell("what was measured")
    console.tell("and why", stream=sys.stderr)
    return 3
arguments = argparse.Namespace(version=False, command="run", action=action)
parser = argparse.ArgumentParser()
parser.parse_known_args = lambda argv: (arguments, [])
cli.build_parser = lambda: parser
sys.exit(cli.carried_out([]))
"""


@contextmanager
def gone(kind):
    """A stream for writing that takes nothing: a pipe without a reader, a full disk, or a closed file."""
    if kind == "full":
        stream = Path("/dev/full").open("w")  # noqa: SIM115 - closed below, where it fails
    else:
        reader, writer = os.pipe()
        os.close(reader)
        stream = os.fdopen(writer, "w")
    if kind == "closed":
        stream.close()
    yield stream
    try:
        stream.close()
    except OSError:
        assert kind != "closed"


@pytest.mark.parametrize("kind", ["pipe", "full", "closed"])
@pytest.mark.parametrize("live", [False, True])
def test_telling_how_far_a_run_is_never_fails(kind, live):
    with gone(kind) as stream:
        shown = Progress(stream if kind != "closed" else sys.stderr)
        shown._stream, shown._live = stream, live
        shown.run("run 1 of 3")
        shown.phase("restore")
        shown.iterations(1, 10, last_s=0.1, left_s=1.0, rate_bps=None)
        shown.phase("fetch")
        shown.iterations(2, 10, last_s=0.1, left_s=1.0, rate_bps=None)
        shown.say("  a note")
        shown.done()


@pytest.mark.parametrize("kind", ["pipe", "full"])
@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_the_exit_status_is_true_where_nobody_reads(kind, which):
    with gone(kind) as stream:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, which: stream}
        done = subprocess.run([sys.executable, "-c", TELLS], text=True, check=False, **streams)
    assert done.returncode == 3
    assert (done.stderr if which == "stdout" else done.stdout).strip() in {"and why", "what was measured"}


@pytest.mark.parametrize(("kind", "told"), [("full", "orch: cannot write"), ("pipe", "")])
def test_an_answer_that_could_not_be_written_is_no_success(kind, told):
    asks = TELLS.replace('console.tell("what was measured")', 'print("rows")').replace("return 3", "return 0")
    with gone(kind) as stream:
        done = subprocess.run(
            [sys.executable, "-c", asks], text=True, check=False, stdout=stream, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["pipe", "full"])
def test_what_was_measured_stays_valid_where_nobody_reads(kind):
    with gone(kind) as stream:
        tells = TELLS.replace("return 3", "return 0")
        done = subprocess.run([sys.executable, "-c", tells], check=False, stdout=stream, stderr=subprocess.PIPE)
    assert done.returncode == 0
