"""A stand-in of kubectl, and pods that are namespaces of this machine: no cluster, but real agents, networks and ranks.

It answers `get pods` and `exec` as kubectl does, from a file that lists the pods.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.orch_runs import wait_for

NETWORK = "198.18.7.0/24"
KUBECTL = '''#!{python} -IS
"""Stands in for kubectl: pods are those of a file beside it."""
import json, os, sys
words = [word for word in sys.argv[1:] if not word.startswith(("--namespace=", "--context="))]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pods.json")) as file:
    known = json.load(file)
if words[:2] == ["get", "pods"]:
    chosen = [word for word in words if word.startswith("--selector=")][0][len("--selector="):]
    items = [one["object"] for one in known if "=".join(("app", one["object"]["metadata"]["labels"]["app"])) == chosen]
    print(json.dumps({{"kind": "List", "items": items}}))
    sys.exit()
assert words[:2] == ["exec", "--stdin"] and words[3].startswith("--container=") and words[4] == "--", words
(pod,) = [one for one in known if one["object"]["metadata"]["name"] == words[2]] or [None]
if pod is None:
    sys.exit('Error from server (NotFound): pods "%s" not found' % words[2])
os.execvp(pod["enter"][0] if pod["enter"] else words[5], [*pod["enter"], *words[5:]])
'''


def pod(name: str, *, node: str = "", phase: str = "Running", index: int | None = None, **more: Any) -> dict[str, Any]:
    """A pod as the API describes it, as far as anybody looks; `more` is metadata."""
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lab", "labels": {"app": "train"}, "annotations": annotations, **more},
        "spec": {"nodeName": node or f"node-of-{name}", "containers": [container, {"name": "sidecar"}]},
        "status": {"phase": phase},
    }


def stand_in(folder: Path, pods: list[tuple[dict[str, Any], list[str]]]) -> Path:
    """Write the program into a folder, with pods and the words that lead into each; return where it is."""
    program = folder / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable))
    program.chmod(0o755)
    (folder / "pods.json").write_text(json.dumps([{"object": one, "enter": enter} for one, enter in pods]))
    return program


@contextmanager
def up(folder: Path, count: int) -> Iterator[Path]:
    """So many pods on one network, each with a file system for its own temporary files; gives the program's folder."""
    with _held("switch") as switch:
        _in(switch, "ip", "link", "add", "br0", "type", "bridge")
        _in(switch, "ip", "link", "set", "br0", "up")
        holders: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(count):
                holders.append(_started(f"pod{number}"))
                _plugged(switch, holders[-1], number)
            known = [(pod(f"train-{number}", index=number), _words(one)) for number, one in enumerate(holders)]
            stand_in(folder, known)
            yield folder
        finally:
            for one in holders:
                one.kill()
                one.wait()


def _started(name: str) -> subprocess.Popen[bytes]:
    own = "mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /var/tmp && ip link set lo up && exec sleep infinity"
    holder = subprocess.Popen(["unshare", "--net", "--mount", "--uts", "sh", "-c", f"hostname {name}; {own}"])
    wait_for(lambda: Path(f"/proc/{holder.pid}/comm").read_text() == "sleep\n", what="a pod")
    return holder


@contextmanager
def _held(name: str) -> Iterator[subprocess.Popen[bytes]]:
    holder = _started(name)
    try:
        yield holder
    finally:
        holder.kill()
        holder.wait()


def _words(holder: subprocess.Popen[bytes]) -> list[str]:
    return ["nsenter", f"--target={holder.pid}", "--net", "--mount", "--uts", "--"]


def _in(holder: subprocess.Popen[bytes], *argv: str) -> None:
    subprocess.run([*_words(holder), *argv], check=True)


def _plugged(switch: subprocess.Popen[bytes], holder: subprocess.Popen[bytes], number: int) -> None:
    """Give a pod a device eth0 that leads to the switch."""
    link = ["type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)]
    _in(switch, "ip", "link", "add", f"port{number}", *link)
    _in(switch, "ip", "link", "set", f"port{number}", "master", "br0", "up")
    _in(holder, "ip", "address", "add", f"198.18.7.{number + 1}/24", "dev", "eth0")
    _in(holder, "ip", "link", "set", "eth0", "up")


def path_with(folder: Path) -> str:
    """PATH by which the stand-in is found before any other kubectl."""
    return f"{folder}:{os.environ['PATH']}"
