"""Fixtures of tests whose hosts are containers: each runtime, of whose containers and images none is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.testbed.local import runtimes
from tests.helpers.container_help import RUNTIMES, own_daemon, own_store, soon

__all__ = ["nothing_left", "runtime", "stores"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Both runtimes with stores of their own, of which nothing is left."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("podman", "docker")}
    with own_store(folders["podman"]):
        if os.geteuid() != 0:
            yield
        else:
            with own_daemon(folders["docker"]):
                yield
    mounted = Path("/proc/self/mounts").read_text()
    assert not [folder for folder in folders.values() if str(folder) in mounted]


@pytest.fixture(autouse=True)
def nothing_left(request):
    """When a test has ended, and its testbeds are down, no container of its runtime is there."""
    yield
    if "runtime" in request.fixturenames:
        assert runtimes.detected(request.node.callspec.params["runtime"]).of_ours(soon()) == {}


@pytest.fixture(params=RUNTIMES)
def runtime(request, stores):
    return request.param
