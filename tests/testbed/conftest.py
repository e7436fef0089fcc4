from __future__ import annotations

import itertools
import os

import pytest

from orchestrator.core import lock
from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed, requirements_problems
from tests.helpers import machine
from tests.helpers.cable import plugged
from tests.helpers.netns_help import processes_of, run_on
from tests.helpers.rack import rack

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
def pair(tmp_path):
    """Two namespaces with a cable between them."""
    with plugged(tmp_path) as made:
        yield made


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
    with rack(tmp_path) as up:
        yield up.inventory(), up.on
