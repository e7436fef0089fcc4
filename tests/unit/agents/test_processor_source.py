"""What the sampler of processors reads: from this machine's own /proc, and from made ones of other kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.agents import processor_source as source

PATIENCE_S = 60.0
SPIN = "import sys; print('up', flush=True)\nwhile True: pass"


@pytest.fixture
def spinning():
    """A launch that uses a processor all the time, in a process below the one that was started."""
    shell = f'{sys.executable} -c "{SPIN}" & wait'
    process = subprocess.Popen(
        ["/bin/sh", "-c", shell],
        env={**os.environ, "ORCH_LAUNCH": "spinner"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "up\n"
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.communicate()


def spun(tasks):
    """Seconds that the launch "spinner" has run by now."""
    return sum(row[2] for row in tasks.rows() if row[0] == "spinner") / 1e9


def until(ready):
    end = time.monotonic() + PATIENCE_S
    while not (found := ready()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_a_launch_has_what_all_processes_below_it_use(spinning):
    tasks = source.Tasks("/proc", 1.0, os.getpid(), "")
    machine = source.Machine("/proc", "/sys/fs/cgroup", tasks)
    first = spun(tasks)
    own = float(machine.rows()[0][4])
    assert until(lambda: (now := spun(tasks)) > first + 0.5 and now)
    assert float(machine.rows()[0][4]) > own + 0.4


def test_what_an_ended_process_used_stays_the_runs_own(spinning):
    tasks = source.Tasks("/proc", 1.0, os.getpid(), "")
    until(lambda: spun(tasks) > 0.5)
    before, ticks = spun(tasks), tasks.own_ticks
    child = int(Path(f"/proc/{spinning.pid}/task/{spinning.pid}/children").read_text())
    os.kill(child, 9)
    spinning.wait(PATIENCE_S)  # the shell, which has waited for it
    assert spun(tasks) >= before
    assert tasks.own_ticks >= ticks - 1 - len(tasks.seen)  # rounded down once for each process
    assert [row[1] for row in tasks.rows() if row[0] == "spinner"] == [0]


def made_proc(folder: Path, **files) -> str:
    for name, text in {"stat": "cpu  700 100 200 5000 40 10 20 30 0 0\ncpu0 1 2\ncpu1 1 2\nintr 7\n", **files}.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def machine_row(proc, groups="/nowhere"):
    machine = source.Machine(proc, groups, source.Tasks(proc, 1.0, 1, ""))
    (row,) = machine.rows()
    return dict(zip(machine.columns, row, strict=True))


def test_work_interrupts_and_stolen_time_are_told_apart(tmp_path):
    row = machine_row(made_proc(tmp_path))
    of_tick = source.TICK_S
    assert row["|processor.count"] == 2
    assert float(row["|processor.busy_s"]) == pytest.approx(1000 * of_tick)
    assert float(row["|processor.interrupt_s"]) == pytest.approx(30 * of_tick)
    assert float(row["|processor.steal_s"]) == pytest.approx(30 * of_tick)


def test_what_a_kernel_does_not_count_is_left_empty(tmp_path):
    row = machine_row(made_proc(tmp_path))
    assert (row["|processor.pressure_s"], row["|processor.throttled_s"]) == ("", "")


def test_pressure_is_the_time_in_which_some_process_waited(tmp_path):
    text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    assert float(machine_row(made_proc(tmp_path, pressure__cpu=text))["|processor.pressure_s"]) == 2.5


THREAD = {"7__stat": "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 5 6 7 8 20", "7__environ": "A=1\0ORCH_LAUNCH=rank0\0"}


@pytest.mark.parametrize(
    ("own", "told"), [({"self__schedstat": "0 738595 1\n"}, 2500), ({"self__schedstat": "0 0 0\n"}, ""), ({}, "")]
)
def test_waiting_is_empty_where_the_kernel_does_not_count_it(tmp_path, own, told):
    proc = made_proc(tmp_path, **THREAD, **own, **{"7__task__7__schedstat": "9000 2500 3\n"})
    tasks = source.Tasks(proc, 1.0, 1, "")
    assert tasks.rows() == [("rank0", 1, 9000, told)]
    assert tasks.own_ticks == 26


def test_a_thread_with_a_number_that_was_used_before_counts_from_its_beginning(tmp_path):
    proc = made_proc(tmp_path, **THREAD, **{"self__schedstat": "1 1 1", "7__task__7__schedstat": "9000 2500 3\n"})
    tasks = source.Tasks(proc, 1.0, 1, "")
    tasks.rows()
    made_proc(tmp_path, **{"7__task__7__schedstat": "400 100 1\n"})
    assert tasks.rows() == [("rank0", 1, 9400, 2600)]


def test_the_limit_that_held_most_counts_whichever_group_has_it(tmp_path):
    groups = {
        "cpu.stat": "usage_usec 5\n",
        "a/cpu.stat": "nr_throttled 3\nthrottled_usec 1500000\n",
        "a/b/cpu.stat": "nr_throttled 1\nthrottled_usec 200000\n",
    }
    made_proc(tmp_path / "groups", **{name.replace("/", "__"): text for name, text in groups.items()})
    proc = made_proc(tmp_path / "proc", self__cgroup="0::/a/b\n")
    assert float(machine_row(proc, str(tmp_path / "groups"))["|processor.throttled_s"]) == 1.5


def test_the_first_version_of_control_groups_counts_nanoseconds(tmp_path):
    made_proc(tmp_path / "groups", **{"cpu,cpuacct__x__cpu.stat": "nr_throttled 3\nthrottled_time 700000000\n"})
    proc = made_proc(tmp_path / "proc", self__cgroup="4:memory:/y\n3:cpu,cpuacct:/x\n0::/\n")
    assert float(machine_row(proc, str(tmp_path / "groups"))["|processor.throttled_s"]) == 0.7


def test_what_each_processor_did_is_told_beside_the_threads_that_waited_there(tmp_path):
    proc = tmp_path / "proc"
    thread = proc / "7" / "task" / "7"
    thread.mkdir(parents=True)
    (proc / "stat").write_text("cpu 30 0 0 0 0 0 0 5\ncpu0 10 0 0 0 0 0 0 5\ncpu3 15 2 3 0 0 0 0 0\nintr 1\n")
    fields = ["0"] * 50
    fields[36] = "3"
    (thread / "stat").write_text("7 (a b) " + " ".join(fields))
    tasks = source.Tasks(str(proc), 1.0, os.getpid(), "")
    tasks.counted = True
    tasks.place("rank0", 7, 7, 2_000_000, 5_000_000)
    tasks.place("rank0", 7, 7, 900_000, 900_000)  # too little to look it up
    each, waits = source.Processors(tasks), source.Waits(tasks)
    assert each.columns[3:] == ["|processor.cpu3.busy_s", "|processor.cpu3.steal_s", "|processor.cpu3.own_s"]
    assert each.rows() == [["0.10", "0.05", "0.000000", "0.20", "0.00", "0.002000"]]
    assert waits.rows() == [("rank0", 7, 3, 2_000_000, 5_000_000)]
    assert waits.rows() == []
