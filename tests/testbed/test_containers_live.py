"""Hosts that are containers: of our image or the user's, reached as namespaces are, and gone with their controller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TestbedError
from orchestrator.core.machines.machine import own_kernel
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.local import containers, host_image, runtimes
from orchestrator.testbed.local.local_spec import Containers
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed
from tests.helpers import ways_in
from tests.helpers.container_fixtures import nothing_left, runtime, stores
from tests.helpers.container_help import PATIENCE_S, import_image, program_image, soon
from tests.helpers.netns_help import processes_of
from tests.helpers.orch_runs import ROOT, manifest_of, measured, nothing_is_left, orch, write

__all__ = ["nothing_left", "runtime", "stores"]

pytestmark = pytest.mark.testbed

CAPABILITIES = 0x808435FB  # those of runtimes.CAPABILITIES, as the kernel writes them


def spec(runtime, hosts=("h1", "h2"), **more):
    return LocalSpec(hosts=hosts, rates=dict.fromkeys(hosts, 1e8), containers=Containers(runtime=runtime, **more))


def test_hosts_of_our_image_have_this_machines_programs_and_networks_of_their_own(up, on, runtime, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "set").write_text("seen\n")
    containers = Containers(runtime=runtime, mounts=(str(tmp_path / "data"),))
    testbed = up(3, containers=containers)
    for node in testbed.topology.nodes:
        assert on(testbed, node.name, "hostname").strip() == node.name
    said = on(testbed, "h3", f"ip -o -4 addr show dev eth0; tc qdisc; getent hosts h1; cat {tmp_path}/data/set")
    assert "198.18.0.3/24" in said
    assert "rate 100Mbit" in said
    assert "198.18.0.1" in said
    assert said.endswith("seen\n")
    on(testbed, "h3", "echo hi > /run/orch/f")
    assert (testbed.local_folder("h3") / "f").read_text() == "hi\n"
    assert on(testbed, "h1", f"{sys.executable} -c 'import sys; print(sys.prefix)'").strip() == sys.prefix
    on(testbed, "h1", f"! touch /usr/file && ! touch {tmp_path}/data/file && touch /tmp/file")


def test_a_host_may_change_its_network_and_nothing_of_this_machine(up, on, runtime):
    testbed = up(2, containers=Containers(runtime=runtime))
    rights = on(testbed, "h1", "grep CapBnd /proc/self/status")
    assert int(rights.split()[1], 16) == CAPABILITIES
    on(
        testbed,
        "h1",
        "sysctl -qw net.ipv4.tcp_ecn=1 && ip link set eth0 mtu 1400 && tc qdisc replace dev eth0 root pfifo",
    )
    assert on(testbed, "h2", "sysctl -n net.ipv4.tcp_ecn").strip() != "1"
    on(testbed, "h1", "! sysctl -qw kernel.panic=1 2>/dev/null && ! mount -t tmpfs none /mnt 2>/dev/null")


def test_what_is_started_on_a_host_is_told_how_it_ends_and_reads_what_it_is_sent(up, runtime):
    testbed = up(2, containers=Containers(runtime=runtime))
    config = testbed.ssh_proxy().folder / "ssh_config"

    def ssh(command, text=""):
        return subprocess.run(
            ["ssh", "-F", config, "h1", *command],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            cwd=ROOT,
        )

    assert ssh(["cat; echo wrong >&2; exit 3"], "sent").stdout == "sent"
    assert (ssh(["exit 3"]).returncode, ssh(["kill -9 $$"]).returncode) == (3, 128 + 9)
    assert ssh(["echo wrong >&2"]).stderr == "wrong\n"
    assert ssh([], "hostname\n").stdout.strip() == "h1"
    assert (
        ssh(
            ["for i in 1 2 3; do setsid sh -c 'sleep 0.1 & exit' & done; wait; sleep 0.5; ps -e -o stat="]
        ).stdout.count("Z")
        == 0
    )


def test_an_agent_works_there(up, runtime):
    testbed = up(2, containers=Containers(runtime=runtime))
    channel = testbed.connect("h2", soon())
    client = AgentClient(testbed.topology.node("h2"), channel, run="a-run", holder={}, on_event=lambda _: None)
    try:
        assert client.hello(soon()).boot == own_kernel(), "a container's clock is this machine's"
        assert [entry.name for entry in testbed.local_folder("h2").iterdir()] == ["a-run.h2"]
    finally:
        client.close(soon())


HELD = """
import sys
from pathlib import Path
from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed
from orchestrator.testbed.local.local_spec import Containers
spec = LocalSpec(hosts=("h1", "h2"), rates={"h1": 1e8, "h2": 1e8}, containers=Containers(runtime=sys.argv[1]))
NetnsTestbed(spec, sys.argv[2]).open(Path(sys.argv[3]), Deadline.after(120))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(runtime, tmp_path):
    """A controller that holds a testbed up, and the id of its run."""
    run = f"held-{os.getpid()}-{tmp_path.name}"
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, runtime, run, str(tmp_path / "run")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "open\n"
        yield process, run
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("after_s", [0.3, *(pytest.param(s, marks=pytest.mark.variants) for s in (0.05, 0.8))])
def test_kill_9_in_the_midst_of_the_start_leaves_no_container(runtime, tmp_path, after_s):
    run = f"early-{os.getpid()}-{after_s}"
    argv = [sys.executable, "-c", HELD, runtime, run, str(tmp_path / "run")]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)  # where it is then does not matter: nothing may be left from any point on
        process.kill()
    soon().poll(lambda: not mentioning(run), every_s=0.1, waiting_for="the end of what was being started")
    soon().poll(none_of(runtime, run), every_s=0.1, waiting_for="the end of its containers")
    soon().poll(lambda: not processes_of(run), every_s=0.1, waiting_for="the end of its switch")


def mentioning(word):
    """Processes with this word on their command line: a runtime at work for a run, or what holds its container."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [path] if word.encode() in path.read_bytes() else []
    return found


def none_of(runtime, run):
    return lambda: not runtimes.detected(runtime).of_ours(soon(), run)


def test_kill_9_of_the_controller_ends_its_containers(runtime, held):
    process, run = held
    names = runtimes.detected(runtime).of_ours(soon(), run)
    assert sorted(names) == [f"orch-{run}-h1", f"orch-{run}-h2"]
    process.kill()
    process.wait()
    soon().poll(none_of(runtime, run), every_s=0.1, waiting_for="the end of its containers")
    soon().poll(lambda: not processes_of(run), every_s=0.1, waiting_for="the end of its switch")


def test_what_a_dead_controller_could_not_end_orch_clean_removes_and_leaves_the_living_alone(runtime, held, up, strays):
    process, run = held
    found = runtimes.detected(runtime)
    (first, *_) = found.of_ours(soon(), run)
    stopped = int(found.ask("inspect", "--format", "{{.State.Pid}}", first, deadline=soon()))
    alive = up(2, containers=Containers(runtime=runtime))
    os.kill(stopped, signal.SIGSTOP)
    process.kill()
    process.wait()
    soon().poll(lambda: len(found.of_ours(soon(), run)) == 1, every_s=0.1, waiting_for="the end of the other one")
    assert containers.left_behind(found, soon()) == {first: run}
    status, out, err = orch("clean")
    assert (status, f"localhost: removed {runtime}'s container {first} of run {run}" in out) == (0, True), out + err
    assert len(found.of_ours(soon(), alive.run_id)) == 2


def refused(specification, folder):
    testbed = NetnsTestbed(specification, f"refused-{os.getpid()}")
    with pytest.raises(TestbedError) as caught:
        testbed.open(folder, Deadline.after(PATIENCE_S))
    testbed.close()
    return caught.value


def test_an_image_that_is_not_here_is_told_and_not_fetched(runtime, tmp_path):
    error = refused(spec(runtime, image="localhost/no-such:1"), tmp_path)
    assert f"{runtime} has no image localhost/no-such:1 here" in error.message
    assert f"{runtime} pull localhost/no-such:1" in error.hint


def test_a_folder_that_is_not_there_is_told(runtime, tmp_path):
    error = refused(spec(runtime, mounts=(f"{tmp_path}/none",)), tmp_path)
    assert f"no folder {tmp_path}/none on this machine" in error.message


def test_an_image_without_a_python_is_told_with_its_remedy(runtime, tmp_path):
    image = import_image(runtime, program_image(["sh"]), "localhost/orch-test-bare:1")
    error = refused(spec(runtime, image=image), tmp_path)
    assert error.node == "h1"
    assert "Python, 3.8 or later" in error.hint


def test_a_daemon_that_does_not_run_is_told_with_its_remedy(up, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    if os.geteuid() != 0:
        assert "run with sudo" in refused(spec("docker"), tmp_path).hint
        return
    error = refused(spec("docker"), tmp_path)
    assert "docker does not answer" in error.message
    assert "start it" in error.hint


@pytest.mark.variants
def test_the_quickstart_is_valid_on_containers(runtime, tmp_path):
    told = yaml.safe_load((ROOT / "playbooks/experiments/quickstart.yaml").read_text())
    shorter = {"repetitions": 1, "measure": {"warmup": 2, "iterations": 20, "at_most": "60s"}}
    as_readme_says = [word.replace("podman", runtime) for word in ways_in.options("containers of this machine")]
    path = write(tmp_path, {**told, **shorter})
    summary, results = measured(path, tmp_path / "results", *as_readme_says, "--no-report", borne={"load", "launch"})
    (run,) = summary["runs"]
    clocks = [clock["before"] for clock in manifest_of(results)[0]["clocks"].values()]
    assert {(clock["offset_ns"], clock["uncertainty_ns"]) for clock in clocks} == {(0, 0)}, "one kernel, one clock"
    nothing_is_left(run["run"])


def test_our_image_is_made_once_and_goes_when_it_is_asked_to(runtime, strays):
    status, out, err = orch("prepare", "--image", runtime)
    assert status == 0, err
    (image,) = [word.rstrip(",") for word in out.split() if "orch-host" in word]
    assert orch("prepare", "--image", runtime)[1] == out
    status, out, err = orch("clean", "--data")
    assert f"localhost: removed {runtime}'s image {image}" in out, out + err


def test_nothing_secret_of_this_machine_is_in_our_image():
    archive = host_image.host_tree().archive()
    assert b"etc/passwd\0" in archive
    for name in ("etc/shadow", "etc/gshadow", "etc/ssh/ssh_host_ed25519_key", "etc/sudoers", "etc/machine-id"):
        assert name.encode() + b"\0" not in archive
