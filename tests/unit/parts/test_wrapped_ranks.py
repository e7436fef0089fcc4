"""Ranks below the command of a collector: ended, signalled, fed and heard as without it, whatever that command does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.parts import ranks
from orchestrator.parts.launch import Launch, Wrapper

# Takes its time over what it is given, says how that ended in its own words, and ends with a status of its own.
STUBBORN = ("sh", "-c", '"$@"; echo "it ended with $?" >report; exit 3', "sh")
WRAPPERS = {"env": ("env", "MORE=1"), "stubborn": STUBBORN}
SAYS = "import os, sys; print(sys.stdin.readline(), os.getcwd(), os.environ.get('OWN'), flush=True)"


def wrapped(wrapper, *argv):
    rank = Launch(name="training-rank0", node="h1", role="rank", argv=argv, job="training", rank=0)
    return ranks.wrapped(rank, Wrapper(argv=wrapper), part="collector.mine", python=sys.executable)


def started(launch, folder, **more):
    for name, content in launch.files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else Path(content).read_bytes())
    return subprocess.Popen(
        launch.argv,
        cwd=folder,
        env={**os.environ, "OWN": "mine"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )


def python(program):
    return (sys.executable, "-I", "-S", "-c", program)


def tree(pid):
    """A process and all below it, parents first."""
    found = [pid]
    for one in found:
        found += [
            int(child) for tasks in Path(f"/proc/{one}/task").glob("*/children") for child in tasks.read_text().split()
        ]
    return found


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
def test_a_rank_is_fed_and_heard_and_works_in_its_own_folder(wrapper, tmp_path):
    process = started(wrapped(wrapper, *python(SAYS)), tmp_path)
    out, err = process.communicate("go\n", timeout=60)
    assert (out.split(), err, process.returncode) == (["go", str(tmp_path), "mine"], "", 0)


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
    ],
)
def test_it_ends_as_its_rank_ends(wrapper, program, status, tmp_path):
    process = started(wrapped(wrapper, *python(program)), tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == status
    if wrapper is STUBBORN:
        said = status if status >= 0 else 128 - status
        assert (tmp_path / "mine/report").read_text() == f"it ended with {said}\n"


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_reaches_the_rank_alone(wrapper, number, tmp_path):
    """As agents ask a launch to end: each of its processes, parents first."""
    program = (
        "import os, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (time.sleep(0.2), os.write(1, b'bye\\n'), sys.exit(5)))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(60)\n"
    )
    process = started(wrapped(wrapper, *python(program)), tmp_path)
    assert process.stdout.readline() == "ready\n"
    for pid in tree(process.pid):
        os.kill(pid, number)
    assert process.communicate(timeout=60)[0] == "bye\n"
    assert process.returncode == 5
    if wrapper is STUBBORN:
        assert (tmp_path / "mine/report").read_text() == "it ended with 5\n"


def test_a_rank_that_takes_signals_as_they_come_dies_of_them(tmp_path):
    process = started(wrapped(STUBBORN, "sleep", "60"), tmp_path)
    Deadline.after(60).poll(lambda: len(tree(process.pid)) == 4, every_s=0.01, waiting_for="the rank")
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("which", [0, 1])
def test_no_rank_outlives_what_it_runs_below(which, tmp_path):
    process = started(wrapped(STUBBORN, "sleep", "60"), tmp_path)
    Deadline.after(60).poll(lambda: len(tree(process.pid)) == 4, every_s=0.01, waiting_for="the rank")
    rank = tree(process.pid)[-1]
    os.kill(tree(process.pid)[which], signal.SIGKILL)
    Deadline.after(60).poll(lambda: not Path(f"/proc/{rank}/exe").exists(), every_s=0.05, waiting_for="the rank to end")
    process.communicate(timeout=60)
    assert process.returncode != 0


def test_a_wrapper_that_is_not_there_or_runs_nothing_is_a_failure_in_words(tmp_path):
    for wrapper, said in ((("no-such-program",), "no-such-program: No such file"), (("true",), "true ended with")):
        process = started(wrapped(wrapper, "sleep", "60"), tmp_path)
        assert said in process.communicate(timeout=60)[1]
        assert process.returncode == 127


def test_one_wrapper_stands_around_the_other(tmp_path):
    launch = wrapped(("env", "MORE=1"), *python("import os; print(os.environ['MORE'], os.environ['AGAIN'])"))
    both = ranks.wrapped(launch, Wrapper(argv=("env", "AGAIN=2")), part="collector.other", python=sys.executable)
    process = started(both, tmp_path)
    assert process.communicate(timeout=60) == ("1 2\n", "")
    assert both.wrapped_by == ("collector.mine", "collector.other")
    assert ranks.own_argv(both) == python("import os; print(os.environ['MORE'], os.environ['AGAIN'])")
    assert both.footprint.memory > launch.footprint.memory > 10e6


def test_process_ids_stand_where_they_were_asked_for():
    rank = wrapped(("env",), "sleep", "60")
    watcher = Launch(name="w", node="h1", role="collector", argv=("cat", f"a={ranks.pid_of(rank)}", "{pid}"))
    assert ranks.with_pids(watcher, {("h1", "training-rank0"): 77}).argv == ("cat", "a=77", "{pid}")
