"""What the running kernel tells of its types: offsets that every kernel has, and what it does not know."""

from __future__ import annotations

import pytest

from orchestrator.agents import kernel_types
from orchestrator.agents.kernel_types import KernelTypes


@pytest.fixture(scope="module")
def running():
    return kernel_types.running()


@pytest.mark.parametrize(
    ("path", "offset"),
    [
        ("list_head.prev", 8),
        ("sk_buff.prev", 8),  # in a structure without a name, in a union without one
        ("sk_buff.dev", 16),
        ("gnet_stats_queue.backlog", 4),
    ],
)
def test_a_field_is_where_the_kernel_has_it(running, path, offset):
    assert running.field(path) == offset


def test_a_field_of_a_field_is_behind_it(running):
    of = running.field("Qdisc.qstats")
    assert running.field("Qdisc.qstats.backlog") == of + 4
    assert running.field("Qdisc.qstats.drops") == of + 8


def test_a_function_has_a_number_and_a_type_is_no_function(running):
    assert running.function("bpf_cast_to_kern_ctx") > 0
    for name in ("sk_buff", "no_such_function"):
        with pytest.raises(OSError, match=f"the kernel does not know {name}"):
            running.function(name)


def test_what_the_kernel_lacks_is_named(running):
    with pytest.raises(OSError, match="the kernel's sk_buff has no no_such_field"):
        running.field("sk_buff.no_such_field")
    with pytest.raises(OSError, match="does not know no_such_type"):
        running.field("no_such_type.field")


@pytest.mark.parametrize("data", [b"", b"\x9f\xeb", b"\0" * 100])
def test_what_is_no_btf_is_refused(data):
    with pytest.raises(OSError, match="not in the format BTF"):
        KernelTypes(data)
