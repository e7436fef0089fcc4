"""A real cluster of Kubernetes on this machine (`KUBERNETES_BIN=FOLDER`): a run in its pods, and one that is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.bench import local
from tests.bench.commands import INVALID, ROOT, CommandError, call
from tests.bench.figure import Figure, Settings
from tests.helpers import kubernetes
from tests.helpers.kubernetes import Cluster
from tests.helpers.orch_runs import light, ring, wait_for

MACHINES = 3
UNDONE_GOAL_S = 5.0


def measure(settings: Settings) -> Iterator[Figure]:
    """The first run is with captures, a delay and cross traffic; of the second, orch is killed in the window."""
    binaries = Path(os.environ.get("KUBERNETES_BIN", ""))
    if lacks := kubernetes.missing(binaries):
        raise CommandError(
            f"KUBERNETES_BIN={binaries}: no {', '.join(lacks)}: tests/helpers/kubernetes.py says what for"
        )
    began = time.monotonic()
    with local.machine_to_ourselves(), kubernetes.up(settings.scratch / "cluster", binaries, MACHINES) as cluster:
        yield Figure(what=f"{MACHINES} machines of Kubernetes ready", unit="s", values=(time.monotonic() - began,))
        cluster.apply(_daemon_set())
        cluster.kubectl("rollout", "status", "daemonset/orch", "--timeout=180s")
        path = settings.scratch / "run.yaml"
        path.write_text(yaml.safe_dump(_experiment()))
        done = call(_orch(cluster, path), ok=(0, INVALID), within_s=300, cwd=ROOT, env=_environment(cluster))
        (run,) = json.loads(done.stdout)["runs"]
        yield Figure(
            what="a run in pods, from the command to its end", unit="s", values=(done.seconds,), note=run["stage"]
        )
        path.write_text(yaml.safe_dump(_experiment(workload=ring(0.1, hosts=["h1", "h2"]), measure=_LONG)))
        undone = _killed(cluster, path)
        yield Figure(
            what="pods as they were, after kill -9 of orch",
            unit="s",
            values=(undone,),
            against="goal",
            reference=(UNDONE_GOAL_S,),
        )


_LONG = {"warmup": 2, "iterations": 2000, "at_most": "200s"}


def _experiment(**changes: Any) -> dict[str, Any]:
    python = os.path.realpath(sys.executable)  # the ranks need no packages, and pods see no links to it
    return light(
        testbed={"kubernetes": {"label": "app=orch", "device": "eth0", "link": "250mbit", "python": python}},
        conditions=[{"delay": {"host": "h2", "time": "1ms"}}],
        traffic=[{"iperf": {"from": "h1", "to": "h3", "load": "20mbit", "streams": 2}}],
        collect=["tcpdump", "nic", "tcp"],
        **changes,
    )


def _daemon_set() -> dict[str, Any]:
    labels = {"app": "orch"}
    pod = kubernetes.pod_spec(capabilities=["NET_RAW", "NET_ADMIN", "SYS_NICE"])
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "orch"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def _orch(cluster: Cluster, path: Path) -> list[str]:
    words = ["run", str(path), "--results", str(path.parent / "results"), "--no-report", "--json"]
    return [*cluster.entering(), sys.executable, "-m", "orchestrator.cli.main", *words]


def _environment(cluster: Cluster) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(cluster.kubeconfig())}


def _killed(cluster: Cluster, path: Path) -> float:
    """Kill orch in its window, and return the seconds until no pod has a process, a queue or a rule of the run."""
    said = path.with_suffix(".err")
    with said.open("wb") as err:
        run = subprocess.Popen(
            _orch(cluster, path), cwd=ROOT, env=_environment(cluster), stdout=subprocess.DEVNULL, stderr=err
        )
    try:
        wait_for(lambda: b"window: iteration" in said.read_bytes() or run.poll() is not None, what="a window")
        pods = cluster.kubectl("get", "pods", "--selector=app=orch", "--output=name").split()
        if not all(_left(cluster, pod) for pod in pods):
            raise CommandError("the run that is to be killed left no trace in its pods while it lasted")
    finally:
        run.kill()
        run.wait()
    began = time.monotonic()
    wait_for(lambda: not any(_left(cluster, pod) for pod in pods), what="pods as they were")
    return time.monotonic() - began


def _left(cluster: Cluster, pod: str) -> bool:
    """Whether a pod has anything of a run: processes beside those that wait and look, or rules for packets."""
    look = "cat /proc/[0-9]*/comm; iptables -t mangle -S PREROUTING"
    told = cluster.kubectl("exec", pod, "--", "sh", "-c", look).splitlines()
    return bool(set(told) - {"sleep", "sh", "cat", "-P PREROUTING ACCEPT"})
