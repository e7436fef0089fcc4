"""What is measured to verify a testbed: each experiment fits every kind of testbed, and hosts that lack something."""

from __future__ import annotations

import os
import signal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from orchestrator.core import lock
from orchestrator.core.errors import ConfigError
from orchestrator.core.exitcodes import Exit
from orchestrator.execution.run_options import RunOptions
from orchestrator.experiment import plan, testbeds
from orchestrator.experiment.experiment import TestbedChoice
from orchestrator.parts.launch import Requirement
from orchestrator.remote.agent_client import Finding
from orchestrator.testbed.inventory import Inventory
from orchestrator.verify import experiments, undoing, verifying
from orchestrator.verify.claims import HostSeen
from orchestrator.verify.experiments import FULL, QUICK
from orchestrator.verify.survey import Survey
from tests.helpers import orch_runs


def inventory(hosts, **more):
    return TestbedChoice(
        inventory=Inventory.model_validate(
            {
                "link": "100gbit",
                "hosts": {
                    f"n{i}": {
                        "ssh": f"n{i}",
                        "data": {"address": f"10.0.0.{i}/24", "device": "ens1", **({"rdma": "mlx5_0"} if more else {})},
                        **more,
                    }
                    for i in range(1, hosts + 1)
                },
            }
        )
    )


def work(choice, tmp_path):
    topology = testbeds.place(choice).topology
    options = RunOptions(results=tmp_path)
    return verifying._Work(choice, topology, options, until=float("inf"), file="x.yaml"), topology


@pytest.mark.parametrize(
    ("choice", "not_there"),
    [
        (verifying.testbed_of("local"), set()),
        (inventory(4), set()),
        (inventory(20, gpus=8), set()),
        (inventory(2), {"tensorflow-ps"}),  # a server and one worker
    ],
    ids=["local", "rack", "gpus", "two"],
)
def test_every_measurement_can_be_planned(choice, not_there, tmp_path):
    made, topology = work(choice, tmp_path)
    refused = set()
    for one in experiments.measurements(topology, FULL):
        try:
            run = plan.single(made._experiment(one.data), 1)
        except ConfigError:
            refused.add(one.name)
        else:
            assert run.windows
            assert set(run.nodes()) <= {host.name for host in topology.hosts[: experiments.MOST_HOSTS]}
    assert refused <= not_there


def test_a_host_alone_is_asked_and_nothing_runs():
    assert list(experiments.measurements(testbeds.place(inventory(1)).topology, FULL)) == []


def test_nccl_runs_where_hosts_have_gpus_and_over_rdma_where_rails_have_it():
    names = {one.name for one in experiments.measurements(testbeds.place(inventory(3, gpus=1)).topology, QUICK)}
    assert {experiments.NCCL_TCP, experiments.NCCL_RDMA} <= names
    names = {one.name for one in experiments.measurements(testbeds.place(inventory(3)).topology, QUICK)}
    assert not {experiments.NCCL_TCP, experiments.NCCL_RDMA} & names


def test_those_that_are_compared_are_run_in_turn():
    topology = testbeds.place(verifying.testbed_of("local")).topology
    order = [one.name for one in experiments.in_order(list(experiments.measurements(topology, QUICK)))]
    assert order[-6:] == [experiments.BARE, experiments.COLLECTED] * 3
    assert len(set(order[:-6])) == len(order) - 6


def lacking(made, topology, name, needed_by, what):
    """Have the survey find that h1 lacks this, for a measurement."""
    need = Requirement(node="h1", kind="program", what=what, remedy=f"install {what}", needed_by=needed_by)
    (one,) = (one for one in experiments.measurements(topology, QUICK) if one.name == name)
    made._planned[name] = made._experiment(one.data)
    made._survey = Survey(hosts=(HostSeen(host="h1"), HostSeen(host="h2")), facts={}, lacking={})
    made._look_at(one, [Finding(need, found=False, detail="")])
    return made._ran[name]


def test_what_a_host_lacks_is_why_a_measurement_is_not_made(tmp_path):
    made, topology = work(verifying.testbed_of("local"), tmp_path)
    ran = lacking(made, topology, experiments.LOAD, "iperf", "iperf3")
    assert (ran.code, ran.lack) == ("lacking", ("iperf3",))
    assert ran.why == "h1 lacks iperf3; remedy: install iperf3"


def test_a_meter_that_hosts_cannot_have_is_left_out_alone(tmp_path):
    made, topology = work(verifying.testbed_of("local"), tmp_path)
    ran = lacking(made, topology, experiments.CAPTURES, experiments.METER, "programs in the kernel")
    assert ran.code == ""
    names = [choice.name for choice in made._planned[experiments.CAPTURES].collect]
    assert names == ["tcpdump", "nic"]


def test_nothing_runs_after_the_time_is_over(tmp_path):
    choice = verifying.testbed_of("local")
    made = verifying._Work(
        choice, testbeds.place(choice).topology, RunOptions(results=tmp_path), until=0.0, file="local"
    )
    made._ran["load"] = verifying.Ran()
    made.measure("load")
    assert made._ran["load"].code == "out of time"


def test_a_signal_between_runs_leaves_a_page(tmp_path, monkeypatch):
    """While the testbed is somebody else's no run goes on, which would take the signal."""
    monkeypatch.setenv(lock.OTHER_TESTBED, f"test-{os.getpid()}")
    options = ("--only", "agents", "--only", "runs", "--wait", "10min", "--results", str(tmp_path))
    page = tmp_path / "page.html"
    with lock.machine(lock.local_testbed(), {}):
        process = orch_runs.start("verify", "--quick", *options, "-o", page, cwd=tmp_path)
        with process:
            assert any("waiting" in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=120)
    assert process.returncode == Exit.INTERRUPTED
    assert "interrupted: 0 claims held, 0 broken, 2 not judged" in out
    assert "interrupted: 0 claims held" in page.read_text()


def test_a_claim_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="--only clock: no such claim; accepted: agents, clocks"):
        verifying.chosen(["clock"])


QDISC = {"kind": "fq", "handle": "1:", "dev": "ens1", "root": True, "refcnt": 2, "options": {"limit": 10}}


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ([QDISC], True),
        ([{**QDISC, "refcnt": 3}, {**QDISC, "dev": "docker0"}], True),
        ([{**QDISC, "kind": "tbf"}], False),
        ([{**QDISC, "options": {"limit": 11}}], False),
        ([], False),
        (None, False),
    ],
)
def test_a_setting_that_is_not_as_it_was_is_told_from_what_counts(now, same):
    assert (undoing.settings([QDISC], ["ens1"]) == undoing.settings(now, ["ens1"])) is same


def test_counters_of_devices_are_those_of_the_kernel_the_driver_and_rdma_alone():
    names = [
        "rx_bytes",
        "ethtool.rx_discards_phy",
        "rdma.np_cnp_sent",
        "sampler.nic.late_s",
        "cpu.user_s",
        "gpu.power_w",
    ]
    matched = pc.match_substring_regex(pa.array(names), verifying.OF_DEVICES)
    assert [name for name, one in zip(names, matched.to_pylist(), strict=True) if one] == names[:3]
