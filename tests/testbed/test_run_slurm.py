"""Runs in allocations of a real Slurm, whose nodes are hosts of this machine, as a user without root."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.helpers import slurm_help, ways_in
from tests.helpers.orch_runs import ROOT, ended_or, manifest_of, told_of, wait_for
from tests.helpers.skipping import needs_torch

pytestmark = [pytest.mark.testbed, pytest.mark.variants]
PATIENCE_S = slurm_help.PATIENCE_S
PLAYBOOK = "playbooks/experiments/slurm.yaml"


@pytest.fixture(scope="module")
def slurm():
    with slurm_help.cluster() as cluster:
        yield cluster


@pytest.fixture
def nothing_left(slurm):
    """Whether all that came with a test has gone again, from every node."""
    yield
    wait_for(lambda: not slurm.came(), PATIENCE_S, f"the end of {slurm.came()}")


def identity(pid):
    """The user of a process, and what it may do beyond that."""
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["Uid"].split()[1]), lines["CapEff"]


@needs_torch
def test_the_playbook_is_valid_in_an_allocation_without_root_captures_and_ssh(slurm, nothing_left):
    results, work = slurm.folder / "valid", slurm.folder / "work-valid"
    settings = {
        "testbed.slurm.work": work,
        "measure.warmup": 2,
        "measure.iterations": 20,
        "validity.processor": "ignore",
        "validity.drift": "ignore",
    }
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    running = slurm.start(*slurm.allocated("run", PLAYBOOK, *options, "--results", results, "--no-report"))
    wait_for(ended_or(running, told_of(results, event="phase", name="window")), PATIENCE_S, "the window")
    came = slurm.came()
    ranks = [identity(pid) for pid, words in came.items() if " torch.ddp" in words]
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, out + err
    programs = {words.split()[0].rpartition("/")[2] for words in came.values()}
    assert {"srun", "iperf3"} <= programs
    assert not {"ssh", "sudo", "tcpdump"} & programs
    user = slurm_help.USER if os.geteuid() == 0 else os.geteuid()
    assert [uid for uid, _ in ranks] == [user] * 3
    if os.geteuid() == 0:  # without root an ordinary user is root of the hosts, and of nothing else
        assert {int(rights, 16) for _, rights in ranks} == {0}
    manifest, folder = manifest_of(results)
    (window,) = manifest["windows"]
    assert window["valid"]
    (load,) = [gate for gate in window["gates"] if gate["name"] == "load"]
    assert load["passed"]
    assert "iperf0 from h1 to h4, by the counters of its network device: " in load["message"]
    assert {"gap", "load-course"} <= {gate["name"] for gate in window["gates"]}
    assert window["loads"][0]["achieved_bps"] == pytest.approx(50e6, rel=0.05)
    assert manifest["testbed"]["nodes"] == "h1=n1 h2=n2 h3=n3 h4=n4"
    assert "198.18.0.4/24" in (folder / "experiment.yaml").read_text()
    assert not work.exists()


def test_a_run_submits_itself(slurm, nothing_left):
    path, results = slurm.write("batch"), slurm.folder / "batch"
    words = slurm.orch("run", path, "--results", results, "--no-report", *ways_in.options("nodes of a Slurm job"))
    status, said = slurm.done(*words, "--wait")
    assert status == 0, said + "".join(log.read_text() for log in slurm.folder.glob("slurm-*.out"))
    assert re.search(rf"submitted as job \d+; its output: {slurm.folder}/slurm-\d+.out", said)
    manifest, _ = manifest_of(results)
    assert manifest["controller"]["host"] == "n1"
    assert manifest["windows"][0]["valid"]
    status, said = slurm.done(*slurm.orch("ls", "--results", results, "--valid"))
    assert status == 0, said
    assert manifest["run"] in said


@pytest.mark.skipif(os.geteuid() != 0, reason="without root a local testbed's users are root of their hosts")
def test_captures_and_conditions_are_refused_by_name_before_anything_starts(slurm, nothing_left):
    conditions = [{"rate": {"where": "nic", "host": "h1", "rate": "100mbit"}}, {"congestion-control": "cubic"}]
    path, results = slurm.write("refused", collect=["tcpdump", "nic"], conditions=conditions), slurm.folder / "refused"
    status, said = slurm.done(*slurm.allocated("run", path, "--results", results))
    assert status == 2, said
    wrong = [line.partition(": ")[2] for line in said.splitlines() if line.startswith(str(path))]
    assert [line.partition(":")[0] for line in wrong] == [
        "conditions.0.rate",
        "conditions.1.congestion-control",
        "collect.0.tcpdump",
    ]
    assert "needs CAP_NET_ADMIN on h1, which a job of Slurm without root has not" in wrong[0]
    assert "needs CAP_NET_RAW on h1" in wrong[2]
    assert not results.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="jobs of root are root's to submit")
def test_captures_of_a_job_of_root_stay_on_its_nodes_which_reduce_them(slurm, nothing_left, tmp_path):
    path = slurm.write("stay", collect=["tcpdump", "nic"], captures={"stay": True}, traffic=[])
    results = tmp_path / "results"
    words = slurm.allocated("run", path, "--set", f"testbed.slurm.work={tmp_path / 'work'}", "--results", results)
    status, said = slurm.done(*words, "--no-report", root=True)
    assert status == 0, said
    manifest, folder = manifest_of(results)
    assert {one["node"] for one in manifest["stayed"]} == {"h1", "h2", "h3", "h4"}
    assert not list(folder.glob("hosts/**/*.pcap*"))
    for one in manifest["stayed"]:
        there = Path(one["folder"]) / one["path"].removeprefix(f"hosts/{one['node']}/")
        assert there.stat().st_size == one["bytes"]
    assert (folder / "tables/flow_packets.parquet").stat().st_size > 0


def test_outside_of_an_allocation_the_error_says_what_to_do(slurm):
    status, said = slurm.done(*slurm.orch("run", slurm.write("outside")))
    assert status == 1, said
    assert "this is not inside an allocation of Slurm" in said
    assert "salloc -N 4 orch run FILE" in said


def _end(slurm, how):
    """Break what carries a run; what is broken is of the second node where that is of one."""
    came = slurm.came()

    def pids(pattern):
        return [pid for pid, words in came.items() if re.match(pattern, words)]

    if how == "scancel":
        status, said = slurm.done("scancel", "--user", str(slurm_help.USER if os.geteuid() == 0 else 0))
        assert status == 0, said
        return
    patterns = {
        "the controller": r"\S*python\S* -m orchestrator.cli.main run",
        "srun": r"srun .*orch-agents",
        "a slurmstepd": r"slurmstepd: \[\d+\.\d+\]",
    }
    found = pids(patterns[how])
    assert found, f"no process of {how} in {came}"
    os.kill(min(found), signal.SIGKILL)  # srun has a child that looks after it


@pytest.mark.parametrize("how", ["scancel", "the controller", "srun", "a slurmstepd"])
def test_nothing_is_left_where_a_run_is_cut_off(slurm, nothing_left, how):
    name = f"cut-{how.replace(' ', '-')}"
    path, results = slurm.write(name, measure={"warmup": 1, "at_most": "10min"}), slurm.folder / name
    running = slurm.start(*slurm.allocated("run", path, "--results", results, "--no-report"))
    wait_for(ended_or(running, told_of(results, event="phase", name="window")), PATIENCE_S, "the window")
    ranks = [pid for pid, words in slurm.came().items() if "light_rank.py" in words]
    assert len(ranks) == 3
    _end(slurm, how)
    out, err = running.communicate(timeout=PATIENCE_S)
    if how != "the controller":  # it says so, in a line
        assert running.returncode != 0, out + err
        assert "Traceback" not in err
        assert re.search(r"srun|its agent is gone|interrupted", err), err


def test_what_a_cancelled_run_left_is_fetched_in_the_next_allocation(slurm, nothing_left):
    path, results = slurm.write("later", measure={"warmup": 1, "at_most": "10min"}), slurm.folder / "later"
    running = slurm.start(*slurm.allocated("run", path, "--results", results, "--no-report"))
    wait_for(ended_or(running, told_of(results, event="phase", name="window")), PATIENCE_S, "the window")
    _end(slurm, "scancel")
    running.communicate(timeout=PATIENCE_S)
    (left,) = results.glob("*/*.partial")
    work = slurm.folder / "work-later"
    assert list(work.iterdir())
    recover = ("recover", left.name.removesuffix(".partial"), "--results", results)
    status, said = slurm.done(*slurm.allocated(*recover))
    assert (status, "--testbed FILE" in said) == (1, True), said
    status, said = slurm.done(*slurm.allocated(*recover, "--testbed", path))
    assert status == 0, said
    manifest, folder = manifest_of(results)
    assert manifest["outcome"] == "lost"
    assert (folder / "hosts/h1/training-rank0/stdout").read_text()
    assert not work.exists()


def test_the_doctor_looks_at_the_hosts_of_an_allocation(slurm, nothing_left):
    status, said = slurm.done(*slurm.allocated("doctor", slurm.write("doctor")))
    assert status == 0, said
    assert re.search(r"^h4: ok, \d+ requirements met", said, re.MULTILINE)


BOUND = """
import os, time
names = ("SLURM_PROCID", "CUDA_VISIBLE_DEVICES")
print("has", len(os.sched_getaffinity(0)), *(os.environ.get(name) for name in names), flush=True)
while True:
    print("step took 0.1 s", flush=True)
    time.sleep(0.1)
"""


def test_ranks_have_the_processors_and_gpus_of_the_job(slurm, nothing_left):
    """The agents' step is bound to one processor unless it is told otherwise, whatever the job has."""
    argv = ["{python}", "-c", BOUND]
    command = {"argv": argv, "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"}, "hosts": ["h1", "h2"]}
    path = slurm.write(
        "bound",
        workload={"command": command},
        traffic=None,
        collect=None,
        measure={"warmup": 0, "iterations": 2},
        validity={"min_iterations": 2, "drift": "ignore"},
    )
    results = slurm.folder / "bound"
    options = ("--cpus-per-task=2", "--ntasks-per-node=1", "--gpus-per-node=2")
    words = ("run", path, "--results", results, "--no-report")
    status, said = slurm.done(*slurm.allocated(*words, nodes=2, options=options))
    assert status in (0, 3), said
    manifest, folder = manifest_of(results)
    assert [node["gpus"] for node in manifest["topology"]["nodes"]] == [2, 2]
    logged = (folder / "hosts/h1/training-rank0/stdout").read_text()
    assert f"has {len(os.sched_getaffinity(0))} None 0,1\n" in logged


READING = """
import time, psutil
from orchestrator.analysis import capture_engine

def listening():
    found = psutil.Process().net_connections("tcp")
    return {one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN}

before = listening()  # salloc leaves a socket of its own open
with capture_engine.engine("slurm") as workers:
    print("up", sorted(listening() - before), sorted(workers.submit(listening).result()), flush=True)
    workers.submit(time.sleep, 600).result()
"""


def test_workers_of_an_allocation_read_what_this_machine_reads(slurm, nothing_left):
    captures = slurm.folder / "captures"
    captures.mkdir()
    for name in ("a.pcap", "b.pcap", "c.pcap", "d.pcap"):
        shutil.copy(ROOT / "tests/data/pcap/loss.pcap", captures / name)
    said = []
    for words in (
        slurm.orch("capture", captures, "--json"),
        slurm.allocated("capture", captures, "--json", "--engine", "slurm"),
    ):
        running = slurm.start(*words)
        out, err = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0, out + err
        said.append(json.loads(out))
    assert [point["packets"] for point in said[0]["points"]] == [247] * 4
    assert said[0] == said[1]


@pytest.mark.parametrize("how", ["the reader", "Ctrl-C", "srun", "scancel"])
def test_workers_listen_in_their_network_and_nothing_is_left_of_them(slurm, nothing_left, how):
    running = slurm.start("salloc", "--quiet", f"--nodes={slurm_help.NODES}", slurm_help.python(), "-c", READING)
    up = running.stdout.readline()
    assert up.startswith("up "), up + running.stderr.read()
    addresses = set(re.findall(r"\d+\.\d+\.\d+\.\d+", up))
    assert {address for address in addresses if not address.startswith("198.18.")} <= {"127.0.0.1"}, up
    came = slurm.came()

    def kill(pattern, number):
        os.kill(min(pid for pid, words in came.items() if re.match(pattern, words)), number)

    if how == "scancel":
        _end(slurm, how)
    elif how == "srun":
        kill("srun .*orch-dask", signal.SIGKILL)
    else:
        kill(r"\S*python\S* -c \nimport time, psutil", signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
    _, err = running.communicate(timeout=PATIENCE_S)
    if how in ("srun", "scancel"):
        assert "--engine slurm: its workers were lost while they read" in err
    assert not list(Path("/tmp").glob("orch-dask-*"))  # the nodes have this machine's


def test_outside_of_an_allocation_the_engine_says_what_to_do(slurm, nothing_left):
    status, said = slurm.done(*slurm.orch("capture", ROOT / "tests/data/pcap/loss.pcap", "--engine", "slurm"))
    assert (status, "salloc -N 4 orch capture FILES --engine slurm" in said) == (1, True), said


UNDER_SRUN = """
import os, time
told = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURMD_NODENAME", "SLURM_STEP_ID")
print("told", *(os.environ[name] for name in told), flush=True)
while True:
    print("step took 0.1 s", flush=True)
    time.sleep(0.1)
"""


def under_srun(slurm, name, **measure):
    """An experiment of three ranks, on two hosts that are not named in Slurm's order, whom srun tells who they are."""
    command = {
        "argv": ["{python}", "-c", UNDER_SRUN],
        "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
        "hosts": ["h3", "h2", "h2"],
        "launcher": "srun",
    }
    validity = {"min_iterations": 2, "drift": "ignore", "processor": "ignore"}
    return slurm.write(
        name, workload={"command": command}, traffic=None, collect=None, measure=measure, validity=validity
    )


def test_srun_makes_one_step_of_ranks_on_the_hosts_that_the_file_names(slurm, nothing_left):
    path, results = under_srun(slurm, "step", warmup=0, iterations=3), slurm.folder / "step"
    status, said = slurm.done(*slurm.allocated("run", path, "--results", results, "--no-report"))
    assert status == 0, said
    _, folder = manifest_of(results)
    for rank, host, local, node in ((0, "h3", 0, "n3"), (1, "h2", 0, "n2"), (2, "h2", 1, "n2")):
        place = folder / f"hosts/{host}/training-rank{rank}"
        assert re.search(rf"^told {rank} 3 {local} {node} \d+$", (place / "stdout").read_text(), re.MULTILINE)
        assert len((place / "iterations.jsonl").read_text().splitlines()) >= 3


def test_the_end_of_a_step_of_ranks_ends_the_run(slurm, nothing_left):
    path, results = under_srun(slurm, "step-ends", warmup=0, at_most="10min"), slurm.folder / "step-ends"
    running = slurm.start(*slurm.allocated("run", path, "--results", results, "--no-report"))
    wait_for(ended_or(running, told_of(results, event="phase", name="window")), PATIENCE_S, "the window")
    steps = [pid for pid, words in slurm.came().items() if re.match(r"srun .*--distribution=arbitrary", words)]
    assert steps, slurm.came()
    os.kill(min(steps), signal.SIGKILL)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, err
    assert "srun" in err
