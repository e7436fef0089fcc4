"""Causes from tables that were made from known ones: whom they name, what it costs, and whom they leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.analysis.causes import changes, naming, passes, words
from tests.helpers.made_ring import HOSTS, LINK_BPS, Ring, alike

N = 30
FULL = LINK_BPS / 8e3  # bytes a millisecond
EVEN = [60.0] * 4


def explained(ring: Ring, **options):
    (found,) = naming.of_window(ring, ring.window, **options)
    return found


def split(ring: Ring):
    job = ring.manifest.jobs[0]
    found = passes.passes(ring.table("iterations"), ring.table("spans"), job, ring.window.iterations["a"])
    return passes.split(found)


def part(found, name: str) -> float:
    return sum(one.seconds for one in found.parts if one.name.startswith(name))


def slow_link(host: str = "h3", share: float = 0.25) -> Ring:
    """Every hop sends while a bucket is under way; one at a share of its link's rate, with a full queue."""
    hops = {"h1": 0.2 * FULL, "h2": 0.2 * FULL, "h3": 0.2 * FULL, "h4": 0.2 * FULL, host: share * FULL}
    return Ring(passes=alike(EVEN, N), services=alike([50, 50], N), hops=hops, backlogs={host: 60_000})


def test_a_link_below_its_rate_is_named_with_its_host_and_share() -> None:
    found = explained(slow_link())
    first = found.findings[0]
    assert (first.cause, first.hosts) == ("link-rate", ("h3",))
    # 100 ms of buckets are under way, of which the last 85 or so after the passes: three quarters would go.
    assert first.seconds == pytest.approx(0.75 * 0.085, rel=0.05)
    assert "mbit of 1gbit" in first.evidence[1]
    assert [one.cause for one in found.findings] == ["link-rate"]


@pytest.mark.parametrize("host", ["h1", "h4"])
def test_the_place_follows_the_queue(host: str) -> None:
    assert explained(slow_link(host)).findings[0].hosts == (host,)


def test_a_queue_that_leaves_at_its_links_rate_is_no_slow_link() -> None:
    found = explained(slow_link(share=0.98))
    assert found.findings == ()
    assert part(found, "sending") == pytest.approx(0.085, rel=0.05)


def test_others_in_the_queue_are_named_by_their_name() -> None:
    ring = slow_link(share=0.5)
    ring.others = {"h3": 0.48 * FULL}
    first = explained(ring).findings[0]
    assert (first.cause, first.hosts) == ("load", ("h3",))
    assert "iperf" in first.place


def waiting(**evidence) -> Ring:
    """The network is waited for though links are idle half of the time: services vary, queues are empty."""
    services = alike([60, 60], N)
    services[1] += 40 * (np.arange(N) % 3)
    return Ring(passes=alike(EVEN, N), services=services, hops=dict.fromkeys(HOSTS, 0.4 * FULL), **evidence)


def test_what_is_sent_again_and_was_dropped_by_no_queue_is_loss() -> None:
    first = explained(waiting(again={"h3": 20_000})).findings[0]
    assert (first.cause, first.hosts) == ("loss", ("h2", "h3"))
    assert "2.0% of what h3 sent h2 was sent again" in first.evidence[0]
    assert explained(waiting(again={"h3": 2_000})).findings == ()


def test_a_host_that_is_further_away_than_all_others_is_delayed() -> None:
    first = explained(waiting(rtts={"h3": 5e-3, "h4": 5e-3})).findings[0]  # what h3 sends, and what it receives
    assert (first.cause, first.hosts) == ("delay", ("h3",))
    assert explained(waiting(rtts=dict.fromkeys(HOSTS, 5e-3))).findings == ()


def test_a_receivers_window_is_named_at_the_receiver() -> None:
    first = explained(waiting(waits={"h3": 0.6})).findings[0]
    assert (first.cause, first.hosts) == ("receive-window", ("h2",))


def test_a_window_that_shrinks_is_of_a_receiver_that_does_not_read() -> None:
    first = explained(waiting(waits={"h3": 0.6}, offered=(600_000, 2_000))).findings[0]
    assert (first.cause, first.hosts) == ("slow-reader", ("h2",))
    assert "between 31.9 kB and 570.1 kB" in first.evidence[1]
    assert explained(waiting(waits={"h3": 0.6}, offered=(200_000, 200_000))).findings[0].cause == "receive-window"


@pytest.mark.parametrize(("left", "cause"), [(0, "receive-window"), (3_000, "slow-reader")])
def test_what_a_receiver_leaves_unread_tells_a_slow_reader_from_a_small_window(left: int, cause: str) -> None:
    for offered in ((600_000, 2_000), (200_000, 200_000)):  # which alone would tell the one or the other
        first = explained(waiting(waits={"h3": 0.6}, offered=offered, unread={"h2": left})).findings[0]
        assert (first.cause, first.hosts) == (cause, ("h2",))
        assert f"payload to read in {100 if left else 0}% of the samples" in first.evidence[2]


def test_a_window_that_was_never_large_is_small_whoever_reads() -> None:
    first = explained(waiting(waits={"h3": 0.6}, offered=(4_000, 4_000), unread={"h2": 3_000})).findings[0]
    assert (first.cause, first.hosts) == ("receive-window", ("h2",))


def test_a_host_whose_threads_wait_for_processors_does_not_read_for_their_sake() -> None:
    left = {**dict.fromkeys(HOSTS, 0), "h2": 3_000}
    first = explained(waiting(unread=left, crowded={"h1": 0.2, "h2": 0.9, "h3": 0.3, "h4": 0.2})).findings[0]
    assert (first.cause, first.hosts, first.place) == ("processor", ("h2",), "h2")
    assert "waited 90% of the window for its processors, elsewhere 20%" in first.evidence[0]
    for waits in (dict.fromkeys(HOSTS, 0.9), {"h2": 0.3}):
        assert explained(waiting(unread=left, crowded=waits)).findings[0].cause == "slow-reader"


def test_a_rank_that_computes_longer_while_its_threads_wait_is_slowed_by_its_hosts_processors() -> None:
    slow = {"passes": alike([60, 60, 100, 60], N), "services": alike([10.0], N)}
    first = explained(Ring(**slow)).findings[0]
    assert (first.cause, first.hosts) == ("slow-rank", ("h3",))
    found = explained(Ring(**slow, crowded={"h1": 0.2, "h2": 0.2, "h3": 0.9, "h4": 0.2})).findings
    assert [(one.cause, one.hosts, one.place) for one in found] == [("processor", ("h3",), "h3")]
    assert found[0].share == pytest.approx(first.share)
    assert "waited 90% of the window for its processors" in found[0].evidence[0]
    assert set(first.evidence) < set(found[0].evidence)


def test_payload_left_unread_while_links_are_idle_is_a_slow_readers_though_no_window_is_full() -> None:
    left = {**dict.fromkeys(HOSTS, 0), "h2": 3_000}
    first = explained(waiting(unread=left)).findings[0]
    assert (first.cause, first.hosts, first.place) == ("slow-reader", ("h2",), "h2, on what h3 sends h2")
    assert "in 100% of the samples" in first.evidence[0]
    assert explained(waiting(unread=dict.fromkeys(HOSTS, 3_000))).findings == ()  # all wait for processors
    assert explained(waiting(unread=dict.fromkeys(HOSTS, 0))).findings == ()
    assert explained(waiting(unread=left, samples=40_000)).findings[0].cause == "slow-reader"  # of a long window
    assert explained(waiting(unread=left, samples=3)).findings == ()  # so few may be chance


def test_a_queue_that_drops_though_it_is_short_is_small_even_where_it_is_often_full() -> None:
    # On average its link carries half of its rate, like that of a slow link; in bursts it carries all of it.
    services = alike([50, 50], N)
    services[1] += 40 * (np.arange(N) % 3)
    short = {"hops": dict.fromkeys(HOSTS, FULL), "burst_ms": 10, "backlogs": {"h1": 6_000}, "drops": {"h1": 900}}
    found = explained(Ring(passes=alike(EVEN, N), services=services, **short))
    assert [(one.cause, one.hosts) for one in found.findings] == [("small-queue", ("h1",))]


def test_a_queue_that_took_nothing_is_told_by_its_connections_that_are_stuck() -> None:
    # A queue of 8 ms that is not short, and no loss, retransmission or time-out anywhere: what peers call no cause.
    waits = {"passes": alike(EVEN, N), "services": alike([300.0], N), "hops": dict.fromkeys(HOSTS, 0.1 * FULL)}
    dropping = {"backlogs": {"h2": 1_000_000}, "queued_ms": 1.0, "drops": {"h2": 30}}
    found = explained(Ring(**waits, **dropping, burst_ms=10, stuck={"h2": 0.7}))
    (first,) = found.findings
    assert (first.cause, first.hosts, first.place) == ("small-queue", ("h2",), "h2's link, sending")
    assert first.seconds == pytest.approx(0.7 * 0.3, rel=0.2)
    assert "a timer of 200 ms that counts as no time-out" in first.evidence[1]
    assert explained(Ring(**waits, **dropping, burst_ms=10)).findings == ()  # it drops, and nobody waits for that
    closed = Ring(**waits, **dropping, burst_ms=10, stuck={"h2": 0.7}, offered=(1_000, 1_000))
    assert explained(closed).findings == ()  # the receiver would have taken nothing
    unseen = explained(Ring(**waits, burst_ms=10, stuck={"h2": 0.7}))  # its queue took everything
    assert unseen.findings == ()
    assert words.text(unseen)[1].endswith("of the time the network is waited for and no cause is seen")


def test_two_slow_links_are_both_named_the_slower_one_first() -> None:
    hops = {"h1": 0.25 * FULL, "h2": 0.25 * FULL, "h3": 0.5 * FULL, "h4": 0.25 * FULL}
    ring = Ring(passes=alike(EVEN, N), services=alike([50, 50], N), hops=hops, backlogs={"h1": 60_000, "h3": 60_000})
    found = explained(ring)
    assert [(one.cause, one.hosts) for one in found.findings] == [("link-rate", ("h1",)), ("link-rate", ("h3",))]
    # Time that both take passes only once both are gone: half of it is either's, the rest is the slower one's.
    first, second = (one.seconds / 0.085 for one in found.findings)
    assert (first, second) == (pytest.approx(0.25 + 0.25, rel=0.05), pytest.approx(0.25, rel=0.05))


def test_a_slow_link_and_losses_elsewhere_are_both_named() -> None:
    services = alike([80, 60], N)
    services[1] += 40 * (np.arange(N) % 3)
    slow = {"hops": dict.fromkeys(HOSTS, 0.2 * FULL), "backlogs": {"h1": 60_000}, "queued_ms": 100.0}
    found = explained(Ring(passes=alike(EVEN, N), services=services, again={"h3": 20_000}, **slow))
    assert [(one.cause, one.hosts[0]) for one in found.findings] == [("link-rate", "h1"), ("loss", "h2")]


def test_a_slow_and_a_jittery_rank_are_both_named() -> None:
    random = np.random.default_rng(1)
    own = alike([60, 60, 100, 60], N)
    own[1] += np.where(random.random(N) < 0.5, 80.0, 0.0)
    found = explained(Ring(passes=own, services=alike([10.0], N)))
    assert {(one.cause, one.hosts) for one in found.findings} == {("slow-rank", ("h3",)), ("jittery-rank", ("h2",))}


def test_a_rank_that_stalls_while_its_host_waits_for_a_disk_has_a_slow_disk() -> None:
    after = np.zeros((4, N))
    after[3, ::6] = 400.0
    stalled = {"passes": alike(EVEN, N), "services": alike([10.0], N), "after": after}
    first = explained(Ring(**stalled, disk=dict.fromkeys(range(0, N, 6), 0.35))).findings[0]
    assert (first.cause, first.hosts) == ("slow-disk", ("h4",))
    always = explained(Ring(**stalled, disk=dict.fromkeys(range(N), 0.35))).findings[0]
    assert always.cause == "stall"


def test_two_that_look_alike_are_both_told_with_the_collector_that_tells_them_apart() -> None:
    found = explained(waiting(again={"h3": 40_000}, rtts={"h3": 4e-3, "h4": 4e-3}))
    assert set(found.undecided[:2]) == {"loss", "delay"}
    assert any(line.startswith("unsure   ") for line in words.text(found))


def test_a_slow_rank_costs_what_the_slack_leaves() -> None:
    # The network is busy for 15 ms after the passes of the others: 30 ms more on one rank cost 15 of it.
    quick = Ring(passes=alike(EVEN, N), services=alike([45.0, 0.0], N))
    slow = Ring(passes=alike([60, 60, 90, 60], N), services=alike([45.0, 0.0], N))
    longer = (slow.end_ms - quick.end_ms) / N
    found = explained(slow)
    first = found.findings[0]
    assert (first.cause, first.hosts) == ("slow-rank", ("h3",))
    assert 1e3 * first.seconds == pytest.approx(longer, rel=0.02)
    assert longer < 30


@pytest.mark.parametrize(
    ("own", "slow"), [([60, 60, 90, 0], {"h3"}), ([0, 60, 60, 0], set()), ([60, 0, 0, 0], set()), ([0, 0, 0, 0], set())]
)
def test_ranks_that_serve_and_compute_nothing_are_no_measure_of_a_slow_one(own: list[int], slow: set[str]) -> None:
    with np.errstate(all="raise"):
        found = explained(Ring(passes=alike(own, N), services=alike([10.0], N)))
    assert {host for one in found.findings if one.cause == "slow-rank" for host in one.hosts} == slow


def test_a_rank_that_varies_is_called_jittery() -> None:
    random = np.random.default_rng(1)
    own = alike(EVEN, N)
    own[1] += np.where(random.random(N) < 0.4, 50.0, 0.0)
    found = explained(Ring(passes=own, services=alike([10.0], N)))
    assert (found.findings[0].cause, found.findings[0].hosts) == ("jittery-rank", ("h2",))


def test_a_rank_that_stops_after_its_collectives_stalls() -> None:
    after = np.zeros((4, N))
    after[3, ::6] = 400.0
    found = explained(Ring(passes=alike(EVEN, N), services=alike([10.0], N), after=after))
    assert (found.findings[0].cause, found.findings[0].hosts) == ("stall", ("h4",))
    assert found.findings[0].seconds == pytest.approx(0.4 / 6, rel=0.05)


def test_a_victim_that_gets_its_last_bytes_late_is_not_blamed() -> None:
    # Rank 1 receives from the bad hop: it ends, and starts, later than all others, in every iteration.
    late = np.zeros((4, N))
    late[1] = 30.0
    found = explained(Ring(passes=alike(EVEN, N), services=alike([50.0], N), late=late))
    assert [one for one in found.findings if one.hosts == ("h2",)] == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_accuses_nobody(seed: int) -> None:
    random = np.random.default_rng(seed)
    own = alike(EVEN, N) * random.lognormal(0, 0.06, (4, N))
    services = alike([30.0, 30.0], N) * random.lognormal(0, 0.1, (2, N))
    hops = dict.fromkeys(("h1", "h2", "h3", "h4"), 0.5 * FULL)
    found = explained(Ring(passes=own, services=services, hops=hops))
    assert found.findings == ()
    assert "nothing stands out" in words.text(found)[1]


def test_other_work_on_processors_is_named_only_where_ranks_waited_for_it() -> None:
    random = np.random.default_rng(3)
    own = alike(EVEN, N) + random.exponential(20.0, N)
    calm = explained(Ring(passes=own, services=alike([30.0], N)))
    busy = explained(Ring(passes=own, services=alike([30.0], N), waited=0.4))
    assert [one.cause for one in calm.findings] == []
    assert [one.cause for one in busy.findings] == ["processor"]


@pytest.mark.parametrize("make", [slow_link, lambda: Ring(passes=alike([60, 60, 90, 60], N), services=alike([40], N))])
def test_parts_sum_to_the_iterations_time(make) -> None:
    ring = make()
    found = explained(ring)
    assert sum(one.seconds for one in found.parts) == pytest.approx(found.mean_s)
    assert sum(one.share for one in found.parts) == pytest.approx(1)
    assert found.mean_s == pytest.approx(ring.end_ms / N / 1e3)
    assert all(one.seconds >= -1e-9 for one in found.parts)


def test_one_iteration_is_explained_alone() -> None:
    own = alike(EVEN, N)
    own[0, 7] = 200.0
    ring = Ring(passes=own, services=alike([10.0], N))
    found = explained(ring, iteration=7)
    assert found.iterations == (7,)
    assert found.mean_s == pytest.approx(0.21, abs=0.02)
    assert list(naming.of_window(ring, ring.window, iteration=N)) == []


def test_a_long_window_is_looked_at_in_its_first_part_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr(naming.measured, "MOST_VALUES", 4 * 1000)  # a second of four links
    ring = slow_link()
    found = explained(ring)
    assert len(found.iterations) == 6  # of 145 ms
    assert "the first 6 iterations of 30" in words.text(found)[0]
    assert found.findings[0].seconds == pytest.approx(0.75 * 0.085, rel=0.05)
    assert explained(ring, iteration=25).iterations == (25,)


def test_without_spans_a_job_is_split_by_what_its_iterations_say() -> None:
    ring = Ring(passes=alike(EVEN, N), services=alike([40.0], N))
    ring.rows["spans"] = []
    found = split(ring)
    assert found.network.mean() == pytest.approx(0.04, abs=1e-6)
    assert found.computing.mean() == pytest.approx(0.06, abs=1e-6)


def test_ranks_that_log_whole_iterations_compute_where_no_packet_moves() -> None:
    ring = slow_link()
    ring.rows["spans"] = []
    for row in ring.rows["iterations"]:
        row |= {"forward_s": float("nan"), "backward_s": float("nan"), "wait_s": float("nan")}
    found = explained(ring)
    assert (found.findings[0].cause, found.findings[0].hosts) == ("link-rate", ("h3",))
    assert part(found, "computing") == pytest.approx(0.045, abs=0.01)
    assert sum(one.share for one in found.parts) == pytest.approx(1)


def test_text_has_ten_lines_at_most_and_begins_with_the_verdict() -> None:
    lines = words.text(explained(slow_link()))
    assert len(lines) <= 10
    assert lines[1].startswith("verdict  h3's link, sending is below its rate: ")
    assert lines[-1].startswith("next ")


def test_a_run_beside_itself_did_not_change() -> None:
    found = explained(slow_link())
    (change,) = changes.changed([found], [found])
    assert not change.changed
    assert "nothing changed beyond" in words.change_text(change)[1]


def test_what_changed_is_named() -> None:
    before, after = explained(slow_link(share=0.98)), explained(slow_link(share=0.25))
    slower = Ring(passes=alike(EVEN, N), services=alike([90, 90], N), hops={"h3": 0.2 * FULL}, backlogs={"h3": 60_000})
    (change,) = changes.changed([before], [explained(slower)])
    assert change.changed
    assert change.causes[0].cause == "link-rate"
    assert "slower by" in words.change_text(change)[1]
    assert after.findings[0].cause == "link-rate"
