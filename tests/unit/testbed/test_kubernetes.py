"""Pods as hosts: how an experiment names them, what kubectl is asked, what is refused, and agents behind it."""

from __future__ import annotations

import json
import os

import pytest
import yaml
from pydantic import ValidationError

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import ConfigError, TestbedError, TransportError
from orchestrator.experiment import fitting, loading, testbeds
from orchestrator.experiment.experiment import TestbedChoice, on_this_machine, resolved_data
from orchestrator.experiment.testbeds import Named
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.data_plane import HostFacts
from orchestrator.testbed.inventory import Data
from orchestrator.testbed.kubernetes import kubectl, survey
from orchestrator.testbed.kubernetes.kubectl import Kubectl
from orchestrator.testbed.kubernetes.spec import KubernetesSpec, Pods
from orchestrator.testbed.kubernetes.testbed import KubernetesTestbed
from tests.helpers import pods
from tests.helpers.pods import pod


def spec(**more) -> KubernetesSpec:
    return KubernetesSpec.model_validate({"label": "app=train", "device": "eth0", **more})


def listed(*items) -> bytes:
    return json.dumps({"items": items}).encode()


def running(*items, **more):
    return kubectl.running(listed(*items), label="app=train", **more)


def facts(number: int, **more) -> HostFacts:
    data = Data(address=f"10.0.0.{number}/16", device="eth0")
    return HostFacts(**{"data": data, "mtu": 9000, "speed": 100e9, "gpus": 8, "rights": (), **more})


def learned(count: int = 3, **more) -> Pods:
    found = running(*(pod(f"train-{number}", index=number) for number in range(count)))
    said = {one.name: facts(place, **more) for place, one in enumerate(found, 1)}
    return survey.summed_up(spec(), found, said)


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """An experiment in pods; what they say is told, not asked."""

    def read(*, rights=(), **more):
        monkeypatch.setattr(survey, "learn", lambda _: learned(rights=rights))
        data = {
            "name": "e",
            "testbed": {"kubernetes": {"label": "app=train", "device": "eth0"}},
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
        ({"device": None}, "holds neither network nor device; accepted: exactly one of network, device"),
        ({"label": "-A"}, "not a label selector; accepted: one such as job-name=train"),
        ({"label": "a=b\n"}, "not a label selector"),
        ({"namespace": "Lab"}, "not a name in Kubernetes; accepted: at most 63 small letters"),
        ({"container": "a/b"}, "not a name in Kubernetes"),
        ({"context": "--kubeconfig=x"}, "not the name of a context"),
    ],
)
def test_a_mistake_says_what_would_be_accepted(wrong, told):
    with pytest.raises(ValidationError, match=told):
        spec(**wrong)


def test_pods_of_a_daemon_set_are_in_the_order_of_their_machines_names():
    owned = [{"kind": "DaemonSet", "name": "orch"}]
    found = running(
        pod("orch-7bz2k", node="n10", ownerReferences=owned),
        pod("orch-x2c4d", node="n2", ownerReferences=owned),
        pod("orch-b9d7q", node="n1", ownerReferences=owned),
    )
    assert [one.node for one in found] == ["n1", "n2", "n10"]


def test_pods_are_in_the_order_of_their_indexes_else_of_the_numbers_in_their_names():
    assert [one.name for one in running(pod("b", index=1), pod("a", index=2), pod("c", index=0))] == ["c", "b", "a"]
    assert [one.name for one in running(pod("t-10"), pod("t-9"), pod("t-1"))] == ["t-1", "t-9", "t-10"]
    assert [one.name for one in running(pod("b", index=0), pod("a"))] == ["a", "b"]  # not all have one
    labelled = [pod(name, labels={"apps.kubernetes.io/pod-index": place}) for name, place in (("a", "1"), ("b", "0"))]
    assert [one.name for one in running(*labelled)] == ["b", "a"]


def test_what_a_pod_is_said_to_have():
    (one,) = running(pod("a", node="n7"), pod("done", phase="Succeeded"))
    assert (one.namespace, one.node, one.container, one.gpus) == ("lab", "n7", "main", 8)
    (other,) = running(pod("a"), container="sidecar")
    assert (other.container, other.gpus) == ("sidecar", 0)


@pytest.mark.parametrize(
    ("items", "told", "hint"),
    [
        ([], "no pod has the label app=train", "create them, or correct `label`"),
        ([pod("a", phase="Failed")], "all 1 pods of app=train have ended", "create them"),
        ([pod("a"), pod("b", phase="Pending")], "pod b is Pending", "kubectl wait --for=condition=Ready"),
        ([pod("a", deletionTimestamp="2026-01-01T00:00:00Z")], "pod a is being deleted", "wait until it is gone"),
        ([pod("a", node="n"), pod("b", node="n")], "pods a and b share the machine n", "podAntiAffinity"),
    ],
)
def test_pods_that_can_be_no_testbed_are_named(items, told, hint):
    with pytest.raises(TestbedError, match=told) as error:
        running(*items)
    assert hint in error.value.hint


def test_a_container_that_a_pod_has_not_is_named():
    with pytest.raises(TestbedError, match="pod a has no container 'x'") as error:
        running(pod("a"), container="x")
    assert error.value.hint == "it has main, sidecar"


@pytest.mark.parametrize("said", [b"", b"[]", b'{"items": [{}]}', b'{"items": 1}', b"\xff", b"[" * 5000])
def test_what_kubectl_prints_is_not_believed_to_be_right(said):
    with pytest.raises(TestbedError, match="kubectl's list of pods cannot be read"):
        kubectl.running(said, label="app=train")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ('pods is forbidden: User "x" cannot list resource "pods" in API group ""', "a Role and its RoleBinding"),
        ('error: context "x" does not exist', "correct `context`"),
        ("The connection to the server localhost:8080 was refused", "set KUBECONFIG"),
        ("The connection to the server 10.0.0.1:6443 was refused", "kubectl cluster-info"),
        ("error: You must be logged in to the server (Unauthorized)", "kubectl auth can-i list pods"),
        ("nothing that is known", "see kubectl --namespace=lab get pods"),
    ],
)
def test_why_kubectl_fails_is_told_with_what_to_do(tmp_path, monkeypatch, said, hint):
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", pods.path_with(tmp_path))
    with pytest.raises(TestbedError, match="kubectl failed") as error:
        Kubectl(namespace="lab").pods("app=train")
    assert said in error.value.tail
    assert hint in error.value.hint


def test_without_kubectl_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TestbedError, match="no program kubectl here"):
        Kubectl().pods("app=train")


def test_hosts_that_have_one_address_are_refused():
    found = running(pod("a"), pod("b"))
    with pytest.raises(TestbedError, match=r"pods a and b have the same address 10.0.0.1/16 on eth0"):
        survey.summed_up(spec(), found, {"a": facts(1), "b": facts(1)})


def test_a_link_that_no_device_tells_is_asked_for():
    with pytest.raises(TestbedError) as error:
        learned(speed=None)
    assert error.value.hint == "say it: `kubernetes: {link: 25gbit}`"


def test_what_a_container_may_not_do_is_refused_with_the_security_context_that_would(experiment):
    path = experiment(collect=["tcpdump", "nic"])
    with pytest.raises(ConfigError) as error:
        loading.checked(path, [], local=False)
    assert "collect.0.tcpdump: needs CAP_NET_RAW on h1, which its container has not" in str(error.value)
    assert "capabilities: {add: [NET_RAW, NET_ADMIN, SYS_NICE]}" in str(error.value)
    granted = experiment(collect=["tcpdump"], rights=("CAP_NET_RAW of tcpdump",))
    assert loading.checked(granted, [], local=False)[0].collect


def test_a_delay_is_refused_before_the_run_where_root_may_not_change_rules_of_packets(experiment):
    conditions = [{"delay": {"host": "h2", "time": "2ms"}}]
    with pytest.raises(ConfigError, match="needs CAP_NET_ADMIN on h2, which its container has not"):
        loading.checked(experiment(conditions=conditions, rights=("root",)), [], local=False)
    able = experiment(conditions=conditions, rights=("root", "CAP_NET_ADMIN"))
    assert loading.checked(able, [], local=False)[0].conditions


def test_a_plan_is_the_same_in_any_pods_and_its_record_says_which_they_were(experiment, tmp_path, monkeypatch):
    one, _ = loading.checked(experiment(), [], local=False)
    kept = tmp_path / "experiment.yaml"
    kept.write_text(loading.resolved_text(one))
    assert yaml.safe_load(kept.read_text())["testbed"]["kubernetes"]["pods"]["hosts"]["h2"]["pod"] == "train-1"
    assert "pods" not in resolved_data(one)["testbed"]["kubernetes"]
    monkeypatch.setattr(survey, "learn", lambda _: pytest.fail("nobody is to be asked"))
    assert fitting.topology_of(loading.sealed(tmp_path)) == fitting.topology_of(one)


def test_on_this_machine_there_are_as_many_hosts_as_the_file_says(experiment):
    testbed = {"kubernetes": {"label": "app=train", "device": "eth0", "link": "25gbit"}}
    asked, _ = loading.load_experiment(experiment(testbed=testbed, local_run={"hosts": 4}))
    assert on_this_machine(asked).testbed.local.names == ("h1", "h2", "h3", "h4")


def test_a_run_is_recovered_from_the_pods_that_it_was_in_and_from_no_others(monkeypatch):
    topology = testbeds.place(TestbedChoice(kubernetes=spec(pods=learned()))).topology
    now = learned()
    renamed = {name: host.model_copy(update={"pod": f"new-{host.pod}"}) for name, host in now.hosts.items()}
    named = Named(TestbedChoice(kubernetes=spec()), "e.yaml")
    monkeypatch.setattr(survey, "learn", lambda _: now)
    assert [named.lacks(node) for node in topology.nodes] == ["", "", ""]
    assert named.made(topology).topology.nodes == topology.nodes
    monkeypatch.setattr(survey, "learn", lambda _: now.model_copy(update={"hosts": renamed}))
    why = named.lacks(topology.node("h1"))
    assert why.startswith("e.yaml: there is no pod train-0 of address 10.0.0.1 any more")
    assert why.endswith("`orch recover --without h1`")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A pod that is this machine itself, behind a stand-in of kubectl."""
    pods.stand_in(tmp_path, [(pod("train-0"), [])])
    monkeypatch.setenv("PATH", pods.path_with(tmp_path))
    return spec(work=str(tmp_path / "work"), python="python3")


def test_an_agent_runs_in_a_pod_and_ends_with_its_channel(here):
    testbed = KubernetesTestbed(here, learned(1))
    deadline = Deadline.after(60)
    channel = testbed.connect("h1", deadline)
    client = AgentClient(testbed.topology.node("h1"), channel, run="r", holder={}, on_event=lambda _: None)
    client.hello(deadline)
    assert client.run(["cat"], deadline, stdin=b"x" * 1000).stdout == "x" * 1000
    client.remove(deadline)
    client.close(deadline)
    testbed.close()
    with pytest.raises(ProcessLookupError):
        os.kill(channel.pid, 0)


def test_a_pod_that_is_gone_says_so_when_its_agent_is_greeted(here):
    facts_of_another = learned(2)
    testbed = KubernetesTestbed(here, facts_of_another)
    deadline = Deadline.after(60)
    node = testbed.topology.node("h2")
    client = AgentClient(node, testbed.connect("h2", deadline), run="r", holder={}, on_event=lambda _: None)
    with pytest.raises(TransportError, match="its agent did not start") as error:
        client.hello(deadline)
    client.close(deadline)
    assert 'pods "train-1" not found' in error.value.tail
    assert "kubectl get pods" in error.value.hint


def test_words_for_kubectl_name_the_cluster_the_pod_and_its_container():
    words = Kubectl(context="lab@east", namespace="n").exec_argv("p", "c", ["python3", "-V"])
    assert words[:3] == ["kubectl", "--context=lab@east", "--namespace=n"]
    assert words[3:] == ["exec", "--stdin", "p", "--container=c", "--", "python3", "-V"]
