"""Processors and memory of a machine, from files as Linux writes them."""

from __future__ import annotations

import math
import os

import pytest

from orchestrator.core.machines import machine
from orchestrator.core.machines.machine import Machine

STATUS = "Name:\tpython3\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8,10-11\nMems_allowed_list:\t0\n"
MEMINFO = "MemTotal:       24684100 kB\nMemFree:        19653708 kB\nMemAvailable:   20000000 kB\n"
PLAIN = {machine.STATUS: STATUS, machine.MEMORY: MEMINFO, machine.GROUPS: "0::/\n"}
SLICE = "/sys/fs/cgroup/user.slice"
JOB = f"{SLICE}/job.scope"
IN_JOB = {**PLAIN, machine.GROUPS: "0::/user.slice/job.scope\n"}


def seen(files: dict[str, str]) -> Machine:
    return machine.look(lambda paths: {path: files.get(path) for path in paths})


def test_affinity_and_available_memory_without_limits():
    assert seen(PLAIN) == Machine(processors=7, memory=20000000 * 1024)


@pytest.mark.parametrize("group", [JOB, SLICE])
def test_the_quota_of_any_group_above_counts(group):
    assert seen({**IN_JOB, f"{group}/cpu.max": "150000 100000\n"}).processors == 1.5


def test_a_group_without_a_quota_limits_nothing():
    files = {f"{JOB}/cpu.max": "max 100000\n", f"{JOB}/memory.max": "max\n", f"{JOB}/memory.current": "5\n"}
    assert seen({**IN_JOB, **files}) == seen(PLAIN)


def test_memory_that_a_group_leaves_with_what_of_its_cache_can_go():
    files = {
        f"{SLICE}/memory.max": "4000000000\n",
        f"{SLICE}/memory.current": "3000000000\n",
        f"{SLICE}/memory.stat": "anon 2200000000\ninactive_file 500000000\nactive_file 100000000\n",
    }
    assert seen({**IN_JOB, **files}).memory == 1.6e9


def test_groups_of_version_1():
    files = {
        **PLAIN,
        machine.GROUPS: "4:memory:/docker/abc\n3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n",
        # in a container the host's path is not there, only the mount's own root
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000000\n",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1500000000\n",
        "/sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 200000000\ntotal_active_file 0\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    assert seen(files) == Machine(processors=0.5, memory=0.7e9)


def test_version_1_without_limits():
    files = {
        **PLAIN,
        machine.GROUPS: "4:memory:/a\n2:cpu:/a\n",
        "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1\n",
        "/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n",
        "/sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
    }
    assert seen(files) == seen(PLAIN)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {machine.STATUS: "Cpus_allowed_list: many\n"},
        {machine.MEMORY: "MemAvailable:\n"},
        {machine.GROUPS: "nonsense\n"},
    ],
)
def test_nobody_is_refused_for_what_cannot_be_understood(files):
    assert seen(files) == Machine(processors=math.inf, memory=math.inf)


def test_this_machine():
    found = machine.local()
    assert 0 < found.processors <= (os.cpu_count() or 0)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found.memory <= total
