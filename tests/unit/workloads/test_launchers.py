"""Launchers of others around the ranks of a command: their command lines, and placements that they cannot make."""

from __future__ import annotations

import io
import json
import sys
import zipfile

import pytest

from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import command
from workloads.common.placement import ranks

NODES = tuple(
    Node(
        name=f"h{i}",
        rails=(Rail(address=f"10.0.0.{i}", device="eth0"),),
        python=sys.executable,
        slots=2,
        scheduled="gpu7" if i == 1 else "",
    )
    for i in (1, 2)
)
WHERE = Topology(
    kind="inventory", nodes=NODES, links=tuple(Link(host=n.name, device=n.first.device, rate=1e9) for n in NODES)
)


def made(launcher, hosts=None, **options):
    given = {"argv": ["train"], "iterations": {"pattern": "x"}, "hosts": hosts, "launcher": launcher, **options}
    return command.Config.model_validate(given)


def launches(config):
    job = Job(name="job0", index=0, ranks=ranks(config.hosts, WHERE))
    return {launch.name: launch for launch in command.launches(config, job, WHERE, 1)}


def test_slots_say_how_many_ranks_a_host_has_that_no_workload_names():
    assert [rank.node for rank in ranks(None, WHERE)] == ["h1", "h1", "h2", "h2"]


def test_torchrun_is_started_on_each_host_for_its_own_ranks():
    found = launches(made("torchrun"))
    assert set(found) == {"job0-torchrun-h1", "job0-torchrun-h2", *(f"job0-rank{number}" for number in range(4))}
    second = found["job0-torchrun-h2"]
    started = second.argv[second.argv.index("external.launcher") + 1 :]
    assert started[:3] == (sys.executable, "-m", "torch.distributed.run")
    assert {"--nnodes=2", "--nproc-per-node=2", "--node-rank=1", "--master-addr=10.0.0.1"} <= set(started)
    assert started[-3:] == ("rank.pyz", "mpi.stub", "torchrun")
    assert second.rank is None
    rank = found["job0-rank3"]
    assert json.loads(rank.files["command.json"])["launcher"] == "torchrun"
    assert (rank.env["MPI_NAME"], rank.env["RANK"], rank.env["LOCAL_RANK"]) == ("job0-rank3", "3", "1")
    assert all(found[f"job0-rank{number}"].follow for number in range(4))


def test_mpirun_is_started_once_with_a_daemon_of_ours_on_every_other_host():
    found = launches(made("mpirun", launcher_program="/opt/openmpi/bin/mpirun"))
    assert {"job0-mpirun", "job0-daemon-h2"} <= set(found)
    assert "/opt/openmpi/bin/mpirun" in found["job0-mpirun"].argv
    env = found["job0-rank0"].env
    assert env["OMPI_MCA_btl"] == "self,tcp"
    assert not any("algorithm" in name for name in env), "which the command chooses"


def test_srun_is_one_step_of_all_ranks_on_the_first_host():
    found = launches(made("srun", ["h2", "h1", "h1"]))
    (step,) = [launch for name, launch in found.items() if "rank" not in name]
    assert step.node == "h2"
    assert {"srun", "--overlap", "--nodes=2", "--ntasks=3", "--nodelist=h2,gpu7,gpu7"} <= set(step.argv)
    assert '"/var/tmp/orch-$(id -u)/$ORCH_RUN".*"/$MPI_RANK$SLURM_PROCID/stdout"' in step.argv[-1]
    assert step.env["MPI_RANK"] == "job0-rank"
    with zipfile.ZipFile(io.BytesIO(found["job0-rank2"].files["rank.pyz"])) as archive:
        assert "rank/mpi/stub.py" in archive.namelist()


@pytest.mark.parametrize(
    ("launcher", "hosts", "told"),
    [
        ("torchrun", ["h1", "h2", "h1", "h2"], "numbers the ranks of a host one after the other"),
        ("srun", ["h1", "h2", "h1"], None),
        ("mpirun", ["h1", "h2", "h1", "h2"], None),
        ("torchrun", ["h1", "h1", "h2"], None),
        (None, ["h1", "h2", "h1"], None),
    ],
)
def test_placements_that_a_launcher_cannot_make_are_problems(launcher, hosts, told):
    found = [problem.message for problem in command.problems(made(launcher, hosts), WHERE)]
    assert (told is None and not found) or (len(found) == 1 and told in found[0])


def test_srun_starts_nothing_in_images():
    container = {"image": "lab/t:1", "runtime": "podman"}
    (problem,) = command.problems(made("srun", ["h1", "h2"], container=container), WHERE)
    assert (problem.at, problem.accepted) == (("launcher",), "torchrun or mpirun, or no container")
    assert command.problems(made("torchrun", ["h1", "h2"], container=container), WHERE) == []


def test_a_launchers_program_needs_a_launcher():
    (problem,) = command.problems(made(None, ["h1", "h2"], launcher_program="/opt/torchrun"), WHERE)
    assert problem.at == ("launcher_program",)
