"""Runs the real `orch` command and looks at what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from orchestrator.report.runs import Run

ROOT = Path(__file__).parents[2]
TRIES = 3
OF_THE_MACHINE = frozenset({"processor", "drift"})  # gates that a busy machine fails
OF_TIMES = {"launch", "load", "load-course", "load-bursts", "flow-gaps"}  # and where others have its processors

SMALL = {
    "name": "small",
    "testbed": {"local": {"hosts": 3, "link": "25gbit", "scale": 100}},
    "conditions": [{"congestion-control": "cubic"}],
    "workload": {"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": ["h1", "h2"]}},
    "traffic": [{"iperf": {"from": "h1", "to": "h3", "load": "5gbit", "streams": 2}}],
    "collect": ["tcpdump", "nic", "qdisc", "tcp", "cpu"],
    "measure": {"warmup": 2, "iterations": 20, "at_most": "30s"},
}


def ring(seconds, *, hosts):
    """A workload without a framework, for what does not depend on the training: as many bytes as that of SMALL."""
    return {
        "command": {
            "argv": ["{python}", "-S", "light_rank.py", "{rank}", "{hosts}", "{port}", "140000", str(seconds)],
            "files": [str(Path(__file__).with_name("light_rank.py"))],
            "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
            "hosts": hosts,
        }
    }


def small(**changes):
    """The small experiment with some of its keys replaced; None removes one."""
    return {key: value for key, value in {**SMALL, **changes}.items() if value is not None}


def light(**changes):
    """The small experiment, whose ranks need no framework, likewise."""
    return small(**{"workload": ring(0.04, hosts=["h1", "h2"]), **changes})


def write(folder, data, name="experiment.yaml"):
    """A file of this; what experiments in it measure counts beside other work too, where they do not say otherwise."""
    path = folder / name
    path.write_text(yaml.safe_dump(_on_any_machine(data), sort_keys=False))
    return path


def _on_any_machine(data):
    if "experiment" in data and isinstance(data["experiment"], dict):
        return {**data, "experiment": _on_any_machine(data["experiment"])}
    if "measure" not in data:
        return data
    return {**data, "validity": {"processor": "ignore", "drift": "ignore", **data.get("validity", {})}}


def command(name, *arguments):
    """The command line of `orch`; a run waits for a testbed that somebody else holds."""
    patience = ("--wait", "5min") if name in ("run", "sweep", "testbed") else ()
    return [sys.executable, "-m", "orchestrator.cli.main", name, *patience, *map(str, arguments)]


def start(name, *arguments, **more):
    """`orch` in the background, its output in pipes unless elsewhere."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command(name, *arguments), **{"cwd": ROOT, **pipes, **more})


def orch(*arguments, timeout_s=420):
    """`orch` to its end: exit status, standard output, standard error."""
    process = start(*arguments)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        raise AssertionError(f"orch {arguments} did not end\n{out}\n{err}") from None
    return process.returncode, out, err


def measured(path, results, *options, borne=frozenset()):
    """What `orch run --json` says of a run that is valid but for its times, and where it lies.

    Another try when a busy machine spoilt one, whose captures that stay on hosts are removed; the last may fail gates
    that are `borne`, since the machine decides them. What is asserted of times belongs to tests marked `alone`.
    """
    for attempt in range(TRIES):
        folder = results / str(attempt)
        status, out, err = orch("run", path, *options, "--results", folder, "--json")
        if good := status == 0 or (status == 3 and failed_gates(folder) == {"processor"}):
            break
        if attempt == TRIES - 1 or (status != 3 and last_json(out)["runs"][0]["stage"] != "preflight"):
            break
        drop_captures(folder, path)
    assert good or (status == 3 and spoilt(folder, borne)), out + err
    return last_json(out), folder


def drop_captures(results, path):
    """Have hosts remove the captures of these runs that stay with them; `path` names the testbed."""
    if any(json.loads(found.read_bytes()).get("stayed") for found in results.glob("*/*/manifest.json")):
        status, out, err = orch("prune", "--results", results, "--drop-after", "1ms", "--testbed", path)
        assert status == 0, out + err


def failed_gates(results, *, remarks=False):
    """The names of the gates because of which windows are not valid; with `remarks` those that only remark too."""
    windows = [
        window for path in results.glob("*/*/manifest.json") for window in json.loads(path.read_bytes())["windows"]
    ]
    judged = [gate for window in windows for gate in window["gates"] if gate["required"] or remarks]
    return {gate["name"] for gate in judged if gate["passed"] is False or (gate["required"] and not gate["passed"])}


def spoilt(results, borne=frozenset()):
    """Whether what is not valid is so for what else the machine did, which decides the gates that are `borne`."""
    failed = failed_gates(results)
    taken = "processor" in failed_gates(results, remarks=True)
    return bool(failed) and failed <= OF_THE_MACHINE | borne | (OF_TIMES if taken else set())


def last_json(out):
    return json.loads(out.splitlines()[-1])


def manifest_of(results):
    """The only run's manifest, and its folder."""
    (path,) = results.glob("*/*/manifest.json")
    return json.loads(path.read_bytes()), path.parent


def wait_for(ready, within_s=120.0, what="it"):
    ends = time.monotonic() + within_s
    while not (found := ready()):
        assert time.monotonic() < ends, f"{what} did not happen within {within_s} s"
        time.sleep(0.02)
    return found


def ended_or(process, ready):
    """Whether it is so, or never will be."""
    return lambda: process.poll() is not None or ready()


def told_of(results, **wanted):
    """Whether the only run has told in its log of an event with these values."""

    def ready():
        with suppress(FileNotFoundError):  # it is just being sealed
            for path in results.glob("*/*/events.jsonl"):
                whole = path.read_text().rpartition("\n")[0].splitlines()
                return any(wanted.items() <= json.loads(line).items() for line in whole)
        return False

    return ready


def in_stage(results, stage, at_least_iterations=0):
    """Whether the only run is in this stage, with so many iterations of rank 0 logged."""

    def ready():
        with suppress(FileNotFoundError):  # it is just being sealed
            for path in results.glob("*/*.partial/manifest.json"):
                if json.loads(path.read_bytes())["stage"] != stage:
                    return False
                logs = list(path.parent.glob("hosts/*/**/training-rank0/iterations.jsonl"))
                return at_least_iterations == 0 or any(
                    len(log.read_bytes().splitlines()) >= at_least_iterations for log in logs
                )
        return False

    return ready


def alone(workload, *, hosts=3, link="25gbit"):
    """An experiment without cross traffic, long enough that what the window's edges cut off weighs little."""
    return small(
        testbed={"local": {"hosts": hosts, "link": link, "scale": 100}},
        workload=workload,
        traffic=None,
        collect=["tcpdump", "nic"],
        measure={"warmup": 2, "iterations": 40, "at_most": "60s"},
    )


def sealed(folder, data):
    """The experiment's only run once it was carried out and nothing is left of it."""
    summary, results = measured(write(folder, data), folder / "results", "--no-report")
    (run,) = summary["runs"]
    nothing_is_left(run["run"])
    return Run(results / data["name"] / run["run"])


def agree(run, *, ranks=3):
    """Assert that the ranks have equal weights after each iteration, which changes them."""
    logs = [
        {record["iteration"]: record["checksum"] for record in map(json.loads, path.read_text().splitlines())}
        for path in sorted(run.path.glob("hosts/*/training-rank*/iterations.jsonl"))
    ]
    assert len(logs) == ranks
    together = set.intersection(*map(set, logs))
    assert len(together) >= (run.manifest.windows[0].wanted_iterations or 0)
    assert all(len({log[number] for log in logs}) == 1 for number in together), "weights differ between ranks"
    assert len({logs[0][number] for number in together}) > 1, "nothing was learned"


@contextmanager
def in_its_window(path, results, *options, iterations):
    """`orch run --json` in its window, with so many iterations of rank 0 logged; where its results lie, and its id.

    It ends with the block. Another try when a busy machine let the run be refused in its preflight.
    """
    process = None
    try:
        for attempt in range(TRIES):
            folder = results / str(attempt)
            process = start("run", path, *options, "--results", folder, "--json")
            wait_for(ended_or(process, in_stage(folder, "window", iterations)), 360, "the window")
            if process.poll() is None:
                break
            out, err = process.communicate()
            assert last_json(out)["runs"][0]["stage"] == "preflight", out + err
        else:
            raise AssertionError(f"refused {TRIES} times\n{err}")
        (partial,) = folder.glob("*/*.partial")
        yield process, folder, partial.name.removesuffix(".partial")
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def killed_in_its_window(folder, data, *, launch="training-rank1", program=None, iterations=4, before=None):
    """What an endless run says on standard error once a process of this launch is killed in the window.

    It is the last one, or the last that runs this program. So many iterations have passed: 0 where none is told of
    before the run brings its data home. `before` is called with the run's id while all of it is still there.
    """
    path = write(folder, {**data, "measure": {"warmup": 1, "at_most": "60s"}})
    with in_its_window(path, folder / "results", "--no-report", iterations=iterations) as (process, _, run):
        if before is not None:
            before(run)
        found = processes(ORCH_RUN=run, ORCH_LAUNCH=launch)
        pids = [pid for pid in found if program in (None, Path(f"/proc/{pid}/comm").read_text().strip())]
        os.kill(pids[-1], signal.SIGKILL)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    nothing_is_left(run)
    return err


STARTED = 19  # of the words of /proc/PID/stat after the name: clock ticks since the machine's start


def processes(**tags):
    """PIDs whose environment has all of these variables, as ORCH_RUN and ORCH_LAUNCH mark what a run starts.

    Those that started first come first, whatever their numbers: these begin again at the kernel's `pid_max`.
    """
    wanted = {f"{key}={value}".encode() for key, value in tags.items()}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                begun = int((entry / "stat").read_text().rpartition(")")[2].split()[STARTED])
                found.append((begun, int(entry.name)))
        except OSError:
            continue
    return [pid for _, pid in sorted(found)]


def tagged(run):
    """Every process of a run, whatever it is."""
    return processes(ORCH_RUN=run)


def nothing_is_left(run, within_s=60.0):
    wait_for(lambda: not tagged(run), within_s, f"the end of {run}'s processes {tagged(run)}")


def rank_of(run, number):
    """The process of a rank that sends; a program of ours that started it has a lower number."""
    return processes(ORCH_RUN=run, ORCH_LAUNCH=f"training-rank{number}")[-1]


def child_of(pid, word):
    """A process that another one has started, by a word of its command line."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if word in Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0"):
            return int(child)
    raise AssertionError(f"{pid} has no child {word}")


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def as_root():
    return os.geteuid() == 0
