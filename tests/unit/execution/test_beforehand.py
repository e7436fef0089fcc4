"""What keeps a run from starting is told before anything starts, with figures and the way out."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from orchestrator.core.errors import OrchError
from orchestrator.core.machines import machine
from orchestrator.core.machines.machine import Machine
from orchestrator.execution import execute, phases
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions
from orchestrator.experiment import feasibility, loading, plan, sweepfile
from orchestrator.hosts import doctor
from orchestrator.parts.launch import Requirement
from orchestrator.store.manifests.records import Manifest
from orchestrator.sweep import run_sweep, sweepplan
from tests.helpers import manifests
from tests.helpers.experiments import orch

GIB = 2.0**30
# Root passes every folder by two of its capabilities: without them it is as any other user.
UNPRIVILEGED = """
import ctypes, struct
libc = ctypes.CDLL(None)
header, both = struct.pack("Ii", 0x20080522, 0), bytes(24)
assert libc.capset(ctypes.create_string_buffer(header), ctypes.create_string_buffer(both)) == 0
"""
TWO_CORES = Machine(processors=2, memory=22 * GIB)
ROOMY = Machine(processors=64, memory=512 * GIB)


def experiment(tmp_path: Path, *, hosts: int = 64, scale: int = 100, workload: str = "ddp: {model: vgg16}") -> Path:
    path = tmp_path / "big.yaml"
    path.write_text(
        f"name: big\ntestbed:\n  local: {{hosts: {hosts}, link: 25gbit, scale: {scale}}}\n"
        f"workload:\n  {workload}\nmeasure: {{iterations: 20}}\n"
    )
    return path


def room(path: Path, found: Machine) -> feasibility.Verdict:
    run = plan.build(loading.load_experiment(path)[0])[0]
    nodes = [node.name for node in run.topology.nodes]
    return feasibility.judge(feasibility.need(run, nodes, controller=True), found, scales=True)


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(machine, "local", lambda: TWO_CORES)


def test_64_hosts_on_two_cores_are_refused_with_figures_and_remedy(tmp_path, two_cores):
    for command in (["plan"], ["run", "--results", str(tmp_path / "r")]):
        status, _, err = orch(*command, str(experiment(tmp_path)))
        assert status == 1
        for figure in ("64 ranks", "s of processor time", "on 2 processors", "have 120 s", "at most", "--force"):
            assert figure in err, (command, figure)
        assert len(err.splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_too_little_memory_is_refused_with_figures_and_a_larger_scale_as_remedy(tmp_path):
    small = Machine(processors=64, memory=8 * GIB)
    (told,) = room(experiment(tmp_path, hosts=8, scale=1), small).refused
    assert "8 ranks" in told
    assert "8.0 GiB is free" in told
    assert "a larger scale" in told
    assert room(experiment(tmp_path, hosts=8, scale=100), small) == feasibility.Verdict()


def test_memory_that_is_nearly_used_up_is_told(tmp_path):
    (told,) = room(experiment(tmp_path, hosts=8, scale=100), Machine(processors=64, memory=2.7 * GIB)).warnings
    assert "of the 2.7 GiB of memory that is free" in told


def test_more_busy_ranks_than_processors_are_a_warning(tmp_path):
    path = experiment(tmp_path, hosts=3, scale=1, workload="ddp: {model: resnet50, compute: real, batch: 8}")
    (told,) = room(path, TWO_CORES).warnings
    assert "3 ranks keep about 3.0 processors busy, and there are 2" in told
    assert room(path, ROOMY) == feasibility.Verdict()


@pytest.mark.parametrize("name", ["quickstart.yaml", "salamy/a-iperf.yaml", "salamy/b-websearch.yaml"])
def test_what_is_shown_to_beginners_fits_on_two_cores(name):
    path = Path(__file__).parents[3] / "playbooks/experiments" / name
    assert room(path, Machine(processors=2, memory=4 * GIB)) == feasibility.Verdict()


@pytest.mark.parametrize(
    ("workload", "least", "most"),
    [
        ("ddp: {model: vgg16}", 200e6, 300e6),  # measured by /proc/PID/smaps_rollup: 241 MiB
        ("fsdp: {model: vgg16}", 200e6, 300e6),
        ("p2p: {model: vgg16, strategy: ring}", 200e6, 300e6),
        ("deepspeed: {model: vgg16, zero_stage: 1}", 200e6, 300e6),
        ("horovod: {model: vgg16}", 200e6, 300e6),
        ("tensorflow: {model: vgg16, strategy: multi-worker-mirrored}", 250e6, 400e6),
        ("collective: {operations: [all-reduce], sizes: [1mb]}", 200e6, 300e6),
        ("ptd: {model: gpt2, pipeline: 1, tensor: 1, data: 3, compute_time: 300ms}", 200e6, 300e6),
        ("moe: {model: gpt2, experts: 3, compute_time: 300ms}", 200e6, 300e6),
        ("kungfu: {model: vgg16}", 200e6, 300e6),
    ],
)
def test_every_framework_says_what_its_ranks_take(tmp_path, workload, least, most):
    (run,) = plan.build(loading.load_experiment(experiment(tmp_path, hosts=3, workload=workload))[0])
    ranks = [launch for job in run.jobs for launch in job.launches if launch.rank is not None]
    assert len(ranks) == 3
    for rank in ranks:
        assert least < rank.footprint.memory < most
        assert rank.footprint.start_s > 1


def test_what_a_machine_of_an_inventory_lacks_is_told_by_host(tmp_path):
    path = tmp_path / "e.yaml"
    hosts = {f"n{i}": {"ssh": f"n{i}", "data": {"address": f"10.0.0.{i}/24", "device": "eth1"}} for i in (1, 2)}
    inventory = {"link": "25gbit", "hosts": hosts}
    text = "name: t\nworkload:\n  ddp: {model: vgg16}\nmeasure: {iterations: 20}\n"
    path.write_text(text + yaml.safe_dump({"testbed": {"inventory": inventory}}))
    (run,) = plan.build(loading.load_experiment(path)[0])
    found = feasibility.of_hosts(run, {"n1": ROOMY, "n2": Machine(processors=8, memory=GIB)})
    (told,) = found.refused
    assert told.startswith("n2: 1 rank and")
    assert "1.0 GiB is free" in told
    assert "larger scale" not in told
    assert feasibility.look([run]) == feasibility.Findings()  # of hosts elsewhere nothing is known yet


@pytest.fixture
def on_small_hosts(tmp_path):
    """Asks the check of a run on two hosts of which one is too small; what its manifest then says."""

    def check(*, force: bool) -> tuple[str, ...]:
        path = tmp_path / "e.yaml"
        hosts = {f"n{i}": {"ssh": f"n{i}", "data": {"address": f"10.0.0.{i}/24", "device": "eth1"}} for i in (1, 2)}
        text = "name: t\nworkload:\n  ddp: {model: vgg16}\nmeasure: {iterations: 20}\n"
        path.write_text(text + yaml.safe_dump({"testbed": {"inventory": {"link": "25gbit", "hosts": hosts}}}))
        (run,) = plan.build(loading.load_experiment(path)[0])
        recorded: list[Manifest] = []
        machines = {"n1": ROOMY, "n2": Machine(processors=8, memory=GIB)}
        this = SimpleNamespace(
            plan=run,
            force=force,
            record=recorded.append,
            manifest=manifests.made(),
            watch=SimpleNamespace(notes=[]),
            session=SimpleNamespace(machines=lambda: machines),
        )
        phases.Run._check_room(this)
        return recorded[-1].forced

    return check


def test_hosts_that_are_too_small_end_a_run_unless_it_is_forced(on_small_hosts):
    with pytest.raises(OrchError, match=r"n2: 1 rank and .* 1\.0 GiB is free"):
        on_small_hosts(force=False)
    (told,) = on_small_hosts(force=True)
    assert told.startswith("n2: 1 rank and")


def test_forced_runs_go_on_and_their_manifest_says_so(tmp_path, two_cores, monkeypatch):
    given = []

    def run_planned(_experiment, _run, options, attempt):
        given.append((options, attempt.forced))
        raise OrchError("far enough")

    monkeypatch.setattr(execute, "run_planned", run_planned)
    status, _, err = orch("run", str(experiment(tmp_path)), "--force")
    assert status == 1
    assert "warning: 64 ranks take" in err
    ((options, (told,)),) = given
    assert options.force
    assert told.startswith("64 ranks take")


def test_a_sweep_with_one_point_too_large_is_refused_before_the_first(tmp_path, two_cores):
    experiment(tmp_path, hosts=3)
    path = tmp_path / "s.yaml"
    path.write_text("name: s\naxes:\n  testbed.local.hosts: [3, 64]\nexperiment: big.yaml\n")
    for command in ("plan", "sweep"):
        status, _, err = orch(command, str(path), "--results", str(tmp_path / "r"))
        assert status == 1
        assert "64 ranks take" in err
    assert not (tmp_path / "r").exists()
    definition = sweepfile.load(path, [], local=False)
    keys = list(sweepplan.in_order(definition, repetitions=1))
    options = RunOptions(results=tmp_path / "r", force=True, progress=Progress(io.StringIO()))
    forced = run_sweep.settle(definition, keys, options)
    assert forced[0].startswith("64 ranks take")


def test_a_study_that_is_too_large_is_refused_before_its_first_sweep(tmp_path, two_cores):
    experiment(tmp_path, hosts=64)
    (tmp_path / "s.yaml").write_text("name: s\naxes:\n  workload.ddp.model: [vgg16]\nexperiment: big.yaml\n")
    (tmp_path / "paper.yaml").write_text(
        "name: st\ntitle: t\nshows: x\nfigures: [{title: f}]\nsweeps: {full: [s.yaml]}\n"
    )
    argv = ["study", str(tmp_path), "--results", str(tmp_path / "r")]
    status, _, err = orch(*argv)
    assert status == 1
    assert "64 ranks take" in err
    assert not (tmp_path / "r").exists()


# What is missing


def needs(kind: str, what: str, python: str = "") -> Requirement:
    return Requirement(node="h1", kind=kind, what=what, python=python, remedy=f"get {what}", needed_by="ddp")


def test_what_is_there_is_not_missing():
    assert feasibility.lacking_here([needs("program", "sh"), needs("module", "json"), needs("device", "eth0")]) == []


def test_a_thing_is_told_once_however_many_hosts_need_it():
    wanted = [needs("program", "no-such-program"), needs("module", "no_such_module", sys.executable)]
    others = [
        Requirement(node="h2", kind=n.kind, what=n.what, python=n.python, remedy=n.remedy, needed_by="ddp")
        for n in wanted
    ]
    program, module = feasibility.lacking_here(wanted + others)
    assert program.what == "ddp needs program no-such-program: no program no-such-program on this machine"
    assert program.remedy == "get no-such-program"
    assert module.what == f"ddp needs module no_such_module: {sys.executable}: no such module"


def test_an_interpreter_that_is_not_there(tmp_path):
    python = str(tmp_path / "bin/python")
    (lack,) = feasibility.lacking_here([needs("module", "torch", python)])
    assert lack.what == f"ddp needs module torch: no interpreter {python}"


def test_an_interpreter_that_this_user_may_not_run(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o644)
    (lack,) = feasibility.lacking_here([needs("module", "torch", str(python))])
    assert lack.what == f"ddp needs module torch: this user may not run {python}"


def test_an_environment_in_a_folder_that_is_closed_to_this_user_is_none(tmp_path):
    """Asked by a process of nobody's, where this is root."""
    closed = tmp_path / "closed"
    (closed / "torch/bin").mkdir(parents=True)
    (closed / "torch/bin/python").symlink_to(sys.executable)
    asked = "from workloads.common import environments; print(environments.is_built('torch'))"
    here = Path(__file__).parents[3]

    def answer() -> str:
        argv = [sys.executable, "-c", f"import os, sys; sys.path.insert(0, {str(here)!r})\n{UNPRIVILEGED}\n{asked}"]
        env = {**os.environ, "ORCH_FRAMEWORKS": str(closed)}
        return subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout.strip()

    assert answer() == "True"
    closed.chmod(0o000)
    try:
        assert answer() == "False"
    finally:
        closed.chmod(0o755)


def test_an_interpreter_that_fails(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)  # which the message would name
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    python.chmod(0o755)
    (lack,) = feasibility.lacking_here([needs("module", "torch", str(python))])
    assert lack.what == f"ddp needs module torch: {python} does not run: it is broken"


@pytest.mark.parametrize("workload", ["horovod: {model: resnet50}", "deepspeed: {model: resnet50, zero_stage: 1}"])
def test_a_missing_framework_is_told_before_anything_starts(tmp_path, monkeypatch, workload):
    monkeypatch.setenv("ORCH_FRAMEWORKS", str(tmp_path / "none"))
    path = str(experiment(tmp_path, hosts=3, workload=workload))
    status, out, err = orch("plan", path)
    assert (status, "run 1: point" in out) == (0, True)
    assert f"no interpreter {tmp_path / 'none/torch/bin/python'}" in err
    assert "remedy: orch prepare --only torch" in err
    status, _, err = orch("run", path, "--results", str(tmp_path / "r"))
    assert status == 1
    assert "orch prepare --only torch" in err
    assert not (tmp_path / "r").exists()


def test_a_local_run_is_held_against_this_machine(tmp_path, two_cores):
    hosts = {f"n{i}": {"ssh": f"n{i}", "data": {"address": f"10.0.0.{i}/24", "device": "eth1"}} for i in range(1, 65)}
    path = tmp_path / "e.yaml"
    text = "name: t\nworkload:\n  ddp: {model: vgg16}\nmeasure: {iterations: 20}\n"
    path.write_text(text + yaml.safe_dump({"testbed": {"inventory": {"link": "25gbit", "hosts": hosts}}}))
    assert orch("plan", str(path))[0] == 0
    status, _, err = orch("plan", str(path), "--dry-run")
    assert (status, "64 ranks take" in err) == (1, True)
    assert loading.checked(path, [], local=True)[0].testbed.local is not None


def test_doctor_says_the_same_and_brings_nothing_up(tmp_path, two_cores, monkeypatch):
    monkeypatch.setattr(doctor, "_this_machine", lambda _runtime: 0)
    monkeypatch.setenv("ORCH_FRAMEWORKS", str(tmp_path / "none"))
    status, out, _ = orch("doctor", str(experiment(tmp_path, workload="horovod: {model: vgg16}")))
    assert status == 1
    assert "missing: horovod needs module" in out
    assert "orch prepare --only torch" in out
    assert "warning: 64 ranks keep about" in out
