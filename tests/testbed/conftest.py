from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys

import pytest
from netns_help import processes_of, run_on
from orch_runs import start, wait_for

from orchestrator import lock
from orchestrator.deadline import Deadline
from orchestrator.testbed.netns import LocalSpec, NetnsTestbed, requirements_problems
from tests import machine

_NUMBERS = itertools.count()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test marked `alone` has the machine; others share it, and the local testbeds of each process are its own."""
    alone = item.get_closest_marker("alone") is not None
    with machine.held("machine", shared=not alone), pytest.MonkeyPatch.context() as patch:
        if not alone:
            patch.setenv(lock.OTHER_TESTBED, f"of-tests-{os.getpid()}")
        return (yield)


@pytest.fixture
def on():
    return run_on


@pytest.fixture(scope="session", autouse=True)
def _able():
    """A machine that cannot carry a local testbed fails these tests, and says what would mend it."""
    if problems := requirements_problems():
        told = "\n".join(f"  {what}\n    remedy: {remedy}" for what, remedy in problems)
        pytest.fail(f"no local testbed can run here:\n{told}", pytrace=False)


@pytest.fixture
def up(tmp_path):
    """Bring up a local testbed: `up(4, rate=100e6)`; all are closed at the end."""
    opened = []

    def bring_up(hosts, *, rate=100e6, **more):
        names = tuple(f"h{i}" for i in range(1, hosts + 1)) if isinstance(hosts, int) else tuple(hosts)
        spec = LocalSpec(hosts=names, rates=dict.fromkeys(names, rate), **more)
        number = next(_NUMBERS)
        testbed = NetnsTestbed(spec, f"test-{os.getpid()}-{number}")
        opened.append(testbed)
        testbed.open(tmp_path / f"run{number}", Deadline.after(120))
        return testbed

    yield bring_up
    for testbed in opened:
        testbed.close()
        assert not processes_of(testbed.run_id)


@pytest.fixture
def hosts(tmp_path):
    """Three hosts that are reached by SSH alone; gives the inventory and a way to look at them."""
    holding = start("testbed", "--hosts", 3, "--link", "250mbit")
    config = None
    try:
        while config is None:
            line = holding.stdout.readline()
            assert line, holding.stderr.read()
            if match := re.search(r"ssh -F (\S+) h1", line):
                config = match[1]
        wait_for(lambda: holding.stdout.readline().startswith("up"), 120, "the testbed")

        def on(host, *argv):
            done = subprocess.run(
                ["ssh", "-F", config, host, *argv], capture_output=True, text=True, check=True, timeout=120
            )
            return done.stdout

        yield _inventory(config, tmp_path), on
    finally:
        holding.send_signal(signal.SIGINT)
        holding.communicate(timeout=120)


def _inventory(config, tmp_path):
    return {
        "link": "250mbit",
        "defaults": {"config": config, "python": sys.executable, "work": f"/run/orch/{tmp_path.name}"},
        "hosts": {
            f"h{i}": {"ssh": f"h{i}", "data": {"address": f"198.18.0.{i}/24", "device": "eth0"}} for i in (1, 2, 3)
        },
    }
