"""Hosts of Slurm as an experiment says them: what is learned of an allocation, and how its agents are started."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from orchestrator.cli.main import main
from orchestrator.cli.options import ORCH
from orchestrator.core.errors import AgentError, ConfigError, TestbedError
from orchestrator.experiment import fitting, loading, plan
from orchestrator.experiment.experiment import on_this_machine, resolved_data
from orchestrator.remote.transport.bootstrap import agent_argv
from orchestrator.testbed import data_plane
from orchestrator.testbed.inventory import Data
from orchestrator.testbed.slurm import job, survey, testbed
from orchestrator.testbed.slurm.spec import SlurmSpec, topology
from tests.helpers import allocations
from tests.helpers.allocations import found

ROOT = Path(__file__).parents[3]
ADDRESSES = json.dumps(
    [
        {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
        {"ifname": "eno1", "addr_info": [{"family": "inet", "local": "192.168.1.7", "prefixlen": 24}]},
        {
            "ifname": "ens1f0",
            "addr_info": [
                {"family": "inet6", "local": "fe80::1", "prefixlen": 64},
                {"family": "inet", "local": "10.0.3.7", "prefixlen": 16},
            ],
        },
        {"ifname": "ens1f1", "addr_info": [{"family": "inet", "local": "10.1.3.7", "prefixlen": 16}]},
    ]
)


def spec(**more) -> SlurmSpec:
    return SlurmSpec.model_validate(more or {"network": "10.0.0.0/16"})


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """An experiment of this text in an allocation; what hosts say is told, not asked."""

    def read(*, rights=(), **more):
        allocations.entered(monkeypatch, rights=rights)
        data = {
            "name": "e",
            "testbed": {"slurm": {"network": "10.0.0.0/16"}},
            "workload": {"ddp": {"model": "resnet50", "hosts": ["h1", "h2"]}},
            "measure": {"iterations": 20},
            **more,
        }
        path = tmp_path / "e.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    return read


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"link": "25gbit"}, "holds neither network nor device; accepted: exactly one of network, device"),
        ({"network": "10.0.0.0/16", "device": "eth0"}, "holds both network and device"),
        ({"network": "10.0.0.1/16"}, "not an IPv4 network; accepted: one such as 10.0.0.0/16"),
        ({"device": "a/b"}, "not a network device's name"),
        ({"network": "10.0.0.0/16", "work": "tmp"}, "not a folder of its own"),
    ],
)
def test_a_mistake_says_what_would_be_accepted(wrong, told):
    with pytest.raises(ValidationError, match=told):
        spec(**wrong)


@pytest.mark.parametrize(
    ("asked", "device", "address"),
    [
        ({"network": "10.0.0.0/16"}, "ens1f0", "10.0.3.7/16"),
        ({"network": "192.168.0.0/16"}, "eno1", "192.168.1.7/24"),
        ({"device": "ens1f1"}, "ens1f1", "10.1.3.7/16"),
    ],
)
def test_the_data_plane_is_found_by_its_network_or_its_device(asked, device, address):
    assert data_plane.data_of(spec(**asked), ADDRESSES, node="n1") == Data(address=address, device=device)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"network": "10.0.0.0/8"},
            "it has more than one address in 10.0.0.0/8: ens1f0 10.0.3.7/16, ens1f1 10.1.3.7/1",
        ),
        ({"network": "172.16.0.0/12"}, "it has no address in 172.16.0.0/12"),
        ({"device": "ib0"}, "it has no device ib0 with an IPv4 address"),
    ],
)
def test_a_host_without_the_data_plane_is_named(asked, told):
    with pytest.raises(TestbedError, match=told) as error:
        data_plane.data_of(spec(**asked), ADDRESSES, node="gpu013")
    assert error.value.node == "gpu013"


@pytest.mark.parametrize("said", ["x", "{}", "[1]", '[{"ifname": "a", "addr_info": [{"family": "inet"}]}]'])
def test_what_a_host_says_is_not_believed_to_be_right(said):
    if said == "{}":
        with pytest.raises(TestbedError, match="it has no address"):
            data_plane.data_of(spec(), said, node="n1")
    else:
        with pytest.raises(AgentError, match="says nothing that can be read"):
            data_plane.data_of(spec(), said, node="n1")


def test_hosts_are_those_of_the_allocation_in_rank_order():
    made = topology(spec(), allocations.made())
    assert made.kind == "slurm"
    assert [node.name for node in made.hosts] == ["h1", "h2", "h3", "h4"]
    assert [node.address for node in made.hosts] == ["10.0.0.13", "10.0.0.9", "10.0.0.14", "10.0.0.15"]
    assert [host.node for host in allocations.made().hosts.values()] == ["gpu13", "gpu9", "gpu14", "gpu15"]
    assert (made.mtu, made.link("h2").rate, made.node("h1").gpus, made.rights) == (9000, 100e9, 8, ())


def test_links_are_what_the_file_says_else_what_devices_say():
    said = survey.summed_up(spec(network="10.0.0.0/16", link="25gbit"), "1", {"n1": found(1, speed=None)})
    assert said.hosts["h1"].link == 25e9
    with pytest.raises(TestbedError, match="ens1f0 does not say how fast it is") as error:
        survey.summed_up(spec(), "1", {"n1": found(1, speed=None)})
    assert (error.value.node, error.value.hint) == ("n1", "say it: `slurm: {link: 25gbit}`")


def test_hosts_that_differ_in_what_a_testbed_has_once_are_refused():
    with pytest.raises(TestbedError, match="no common MTU: 9000 on n1, 1500 on n2"):
        survey.summed_up(spec(), "1", {"n1": found(1), "n2": found(2, mtu=1500)})


def test_rights_are_those_that_every_host_grants():
    both = {"n1": found(1, rights=("root", "CAP_NET_RAW")), "n2": found(2, rights=("CAP_NET_RAW",))}
    assert survey.summed_up(spec(), "1", both).rights == ("CAP_NET_RAW",)


def test_what_needs_root_is_refused_by_name_with_its_place(experiment):
    conditions = [{"congestion-control": "cubic"}]
    path = experiment(collect=["tcpdump", "nic"], conditions=conditions)
    with pytest.raises(ConfigError) as error:
        loading.checked(path, [], local=False)
    first, second = str(error.value).splitlines()
    assert first.startswith(f"{path}:")
    assert "conditions.0.congestion-control: needs CAP_NET_ADMIN on h1, which a job of Slurm without root" in first
    assert "collect.0.tcpdump: needs CAP_NET_RAW on h1" in second
    granted = experiment(collect=["tcpdump"], rights=("CAP_NET_RAW of tcpdump",))
    assert loading.checked(granted, [], local=False)[0].collect


def test_a_plan_is_the_same_in_any_allocation_and_its_record_says_which_it_was(experiment):
    one, _ = loading.checked(experiment(), [], local=False)
    data = yaml.safe_load(loading.resolved_text(one))
    assert data["testbed"]["slurm"]["allocation"]["hosts"]["h2"]["node"] == "gpu9"
    assert "allocation" not in resolved_data(one)["testbed"]["slurm"]
    run = plan.build(one)[0]
    assert run.nodes() == ("h1", "h2")
    assert {need.what for need in run.requirements if need.kind == "speed"} == {"100000 Mbit/s on ens1f0"}


def test_a_sealed_run_is_read_outside_of_its_allocation(experiment, tmp_path, monkeypatch):
    one, _ = loading.checked(experiment(), [], local=False)
    kept = tmp_path / "experiment.yaml"
    kept.write_text(loading.resolved_text(one))
    monkeypatch.delenv("SLURM_JOB_ID")
    monkeypatch.setattr(survey, "learn", lambda _: pytest.fail("nobody is to be asked"))
    again = loading.sealed(tmp_path)
    assert fitting.topology_of(again) == fitting.topology_of(one)
    assert loading.checked(kept, [], local=False)[0] == again  # `orch plan` of it, anywhere


def test_outside_of_an_allocation_the_error_says_how_to_get_one(experiment, monkeypatch, capsys):
    path = experiment()
    monkeypatch.undo()
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main(["plan", str(path)]) == 1
    said = capsys.readouterr().err
    assert "this is not inside an allocation of Slurm" in said
    assert "orch run FILE --sbatch --nodes 4" in said


def test_on_this_machine_there_are_as_many_hosts_as_the_file_says():
    asked, _ = loading.load_experiment(
        ROOT / "playbooks/experiments/slurm.yaml", ["local_run.hosts=4", "testbed.slurm.link=25gbit"]
    )
    local = on_this_machine(asked).testbed.local
    assert (local.names, local.link, local.scale) == (("h1", "h2", "h3", "h4"), 25e9, 100)
    without, _ = loading.load_experiment(ROOT / "playbooks/experiments/slurm.yaml", ["local_run={}"])
    with pytest.raises(ConfigError, match="on slurm are known there alone"):
        on_this_machine(without)


@pytest.mark.parametrize(
    ("config_text", "ports"),
    [
        ("SrunPortRange           = 60001-60003\n", range(60001, 60004)),
        ("SrunPortRange           = 0-0\n", (0,)),
        ("SrunPortRange           = (null)\n", (0,)),
    ],
)
def test_agents_call_where_the_site_lets_srun_listen(config_text, ports):
    assert list(job.srun_ports(f"Something = 1\n{config_text}")) == list(ports)


def test_options_of_the_job_are_none_of_the_agents_step(monkeypatch):
    for name in ("SLURM_NTASKS_PER_NODE", "SRUN_CPUS_PER_TASK", "SBATCH_EXCLUSIVE", "SLURM_CONF", "KEPT"):
        monkeypatch.setenv(name, "8")
    assert {"SLURM_CONF", "KEPT"} <= job.environment().keys()
    assert not {"SLURM_NTASKS_PER_NODE", "SRUN_CPUS_PER_TASK", "SBATCH_EXCLUSIVE"} & job.environment().keys()


def test_the_command_of_the_agents_step():
    argv = testbed.srun_argv(
        job.SlurmJob("42", ("n1", "n2", "n3")), ("n1", "n3"), agent_argv("python3"), name="orch-agents"
    )
    assert argv[:4] == ["srun", "--jobid=42", "--job-name=orch-agents", "--nodes=2"]
    assert {"--ntasks=2", "--overlap", "--mem=0", "--cpu-bind=none", "--nodelist=n1,n3"} < set(argv)


def test_a_batch_script_holds_words_as_they_are():
    text = job.script([*ORCH, "run", "a file.yaml", "--set", "name='$(id)'"])
    assert text.startswith("#!/bin/sh\nexec ")
    assert text.endswith("""orchestrator.cli.main run 'a file.yaml' --set 'name='"'"'$(id)'"'"''\n""")


def test_a_run_of_other_hosts_is_not_submitted(capsys):
    quickstart = str(ROOT / "playbooks/experiments/quickstart.yaml")
    assert main(["run", quickstart, "--sbatch", "--nodes", "4"]) == 2
    assert "testbed: --sbatch: its hosts are not those of an allocation" in capsys.readouterr().err


def test_a_node_is_reached_where_slurm_reaches_it(monkeypatch):
    for printed, address in (("NodeName=n1 NodeAddr=10.0.0.1 NodeHostName=x", "10.0.0.1"), ("NodeName=n1", "n1")):
        monkeypatch.setattr(job, "ask", lambda *_, printed=printed: printed)
        assert job.address("n1") == address


def test_a_port_that_is_taken_is_passed_over():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert job.free_port("127.0.0.1", (port, 0)) != port
        with pytest.raises(TestbedError, match="none is free at"):
            job.free_port("127.0.0.1", (port,))
