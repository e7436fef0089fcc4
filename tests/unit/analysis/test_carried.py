"""Which connections carried a collective, and which of them ended last."""

from __future__ import annotations

from orchestrator.analysis.causes.carried import carried
from tests.helpers.made_ring import BEGAN_NS, HOSTS, MS, Ring, alike


def rows(ring: Ring):
    tables = {name: ring.table(name) for name in ("spans", "capture_flows", "flow_packets")}
    return list(
        carried(
            ring.manifest,
            ring.window,
            spans=tables["spans"],
            captured=tables["capture_flows"],
            packets=tables["flow_packets"],
        )
    )


def ring(**more) -> Ring:
    """Two iterations of two buckets of 20 and 40 ms, while which each host sends 1000 bytes a millisecond."""
    hops = dict.fromkeys(HOSTS, 1000.0)
    return Ring(passes=alike([40.0] * 4, 2), services=alike([20.0, 40.0], 2), hops=hops, **more)


def test_a_row_for_each_collective_and_connection() -> None:
    found = rows(ring())
    assert len(found) == 2 * 2 * 4
    one = next(row for row in found if (row["iteration"], row["what"], row["host"]) == (0, "all-reduce bucket 0", "h2"))
    assert (one["to_host"], one["src"], one["src_port"], one["dst"], one["dst_port"]) == (
        "h1",
        "10.0.0.2",
        1,
        "10.0.0.1",
        2,
    )


def test_all_that_left_meanwhile_is_some_collectives() -> None:
    found = rows(ring())
    for host in HOSTS:
        mine = sum(row["payload_bytes"] for row in found if row["host"] == host and row["iteration"] == 0)
        assert abs(mine - 60_000) <= 2000


def test_collectives_that_are_under_way_together_share_their_bytes() -> None:
    # Bucket 1 begins at 40 ms, when its gradients are there, and waits for bucket 0, which ends at 50.
    found = {row["what"]: row for row in rows(ring()) if (row["iteration"], row["host"]) == (0, "h1")}
    first, second = found["all-reduce bucket 0"], found["all-reduce bucket 1"]
    assert first["alone_bytes"] < first["payload_bytes"] < 20_000
    assert second["alone_bytes"] < second["payload_bytes"]
    assert first["first_ns"] == BEGAN_NS + 30 * MS


def test_the_flow_that_ends_last_is_marked() -> None:
    late = ring()
    late.hops = {"h3": 1000.0}
    found = rows(late)
    assert {row["host"] for row in found} == {"h3"}
    assert all(row["last"] for row in found)


def test_other_traffic_of_the_host_is_no_part_of_it() -> None:
    with_others = rows(ring(others={"h1": 5000.0}))
    assert {(row["src_port"], row["payload_bytes"]) for row in with_others} == {
        (row["src_port"], row["payload_bytes"]) for row in rows(ring())
    }


def test_without_packets_nothing_is_known() -> None:
    silent = ring()
    silent.hops = {}
    assert rows(silent) == []
