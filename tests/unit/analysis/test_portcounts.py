"""Captured bytes against the interface's counters, over bursts, silence and every model that can be trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.analysis.traffic import trust
from orchestrator.analysis.windows import device_counters
from orchestrator.parts import samplers
from orchestrator.validity.gates import capture_nic
from orchestrator.validity.window import PortBytes
from tests.helpers.gate_windows import judged
from workloads.models import catalog


def test_counters_sampled_seldom_do_not_fail_a_short_window_of_bursts():
    second = 10**9
    begin = 1_795_000_000 * second
    packets = pa.table(
        {
            "node": ["h1"] * 10,
            "port": ["eth0"] * 10,
            "direction": ["in"] * 10,
            "bin_ns": [begin + at * second // 100 for at in range(80, 90)],
            "wire_bytes": [10**7] * 10,
            "captured_bytes": [10**7] * 10,
            "packets": [10**4] * 10,
            "frames": [10**4] * 10,
        }
    )
    at = [begin + at * second for at in range(4)]
    counters = nic_counters(at, received=[0.0, 1e8, 1e8, 1e8])
    inward = received_at_h1(packets, counters, (begin + second // 2, begin + 3 * second // 2))
    assert (inward.captured, inward.counted) == (1e8, 1e8)  # from the sample before the window to the one after it
    (told,) = judged(capture_nic, port_bytes=(inward,))
    assert told.passed


def nic_counters(at, *, received, size=1000):
    """Counters of eth0 at h1 as the collector keeps them: of those that stand still the turning points alone."""
    made = [
        ("eth0", "rx_bytes", np.array(received)),
        ("eth0", "rx_packets", np.array(received) / size),
        ("", "sampler.nic.late_s", np.arange(len(at)) * 1e-6),
    ]
    rows = [
        {"node": "h1", "port": port, "counter": counter, "time_ns": at[k], "value": float(values[k])}
        for port, counter, values in made
        for k in np.flatnonzero(samplers.turning_points(values))
    ]
    return pa.Table.from_pylist(rows)


def received_at_h1(packets, counters, span_ns):
    planned = trust.Planned(node="h1", port="eth0", state="complete", why="", counts=None)
    return device_counters.port_bytes(packets, counters, (planned,), span_ns)[0]


@pytest.mark.parametrize(("captured", "passed"), [(1.0, True), (0.5, False)])
def test_a_training_that_is_silent_most_of_the_time_still_has_to_be_captured_whole(captured, passed):
    ms, begin, bursts = 10**6, 1_795_000_000 * 10**9, 40
    share, bins = int(10**6 * captured), [begin + (500 * k + 250 + 10 * (k % 3)) * ms for k in range(bursts)]
    packets = pa.table(
        {
            "node": ["h1"] * bursts,
            "port": ["eth0"] * bursts,
            "direction": ["in"] * bursts,
            "bin_ns": bins,
            "wire_bytes": [share] * bursts,
            "captured_bytes": [share] * bursts,
            "packets": [share // 1000] * bursts,
            "frames": [share // 1000] * bursts,
        }
    )
    at = [begin + k * 10 * ms for k in range(500 * bursts // 10 + 1)]
    counters = nic_counters(at, received=np.searchsorted(bins, at) * 1e6)
    inward = received_at_h1(packets, counters, (begin, begin + 500 * bursts * ms))
    assert inward.counted == bursts * 1e6
    (told,) = judged(capture_nic, port_bytes=(inward,))
    assert told.passed is passed


def test_a_counter_is_read_where_nothing_is_on_its_way():
    ms, begin = 10**6, 1_795_000_000 * 10**9
    bins = [begin + at * ms for at in range(0, 2000, 10) if at % 100 < 40]  # 40 ms of every 100
    packets = pa.table(
        {
            "node": ["h1"] * len(bins),
            "port": ["eth0"] * len(bins),
            "direction": ["in"] * len(bins),
            "bin_ns": bins,
            **{name: [10**6] * len(bins) for name in ("wire_bytes", "captured_bytes")},
            **{name: [1000] * len(bins) for name in ("packets", "frames")},
        }
    )
    at = [begin + k * 10 * ms for k in range(200)]
    counters = nic_counters(at, received=np.searchsorted(bins, at) * 1e6)
    inward = received_at_h1(packets, counters, (begin + 520 * ms, begin + 1520 * ms))  # both ends within a burst
    assert (inward.edges, inward.captured) == (0.0, inward.counted)


SCALE, LINK_BPS, RANKS = 100, 250e6, 4


def training(model, *, iterations, missing, every_ns, random):
    """A rank's port over a window and a second around it: silent while it computes, then gradients at the link's rate.

    `missing` is the share of what arrived that the capture lacks.
    """
    data = catalog.load(model)
    sent = data.parameters * 4 * 2 * (RANKS - 1) / RANKS / SCALE * 1514 / 1448
    busy_s = sent * 8 / LINK_BPS
    period_s = (data.compute_s or 0.2) * catalog.FORWARD_SHARE + busy_s
    begin = 1_795_000_000 * 10**9
    step = 10**7
    at = np.arange(0, (iterations * period_s + 4) * 1e9, step)
    phase = at / 1e9 % period_s
    share = np.clip((period_s - phase) / 0.01, 0, 1) * np.clip((phase + 0.01 - (period_s - busy_s)) / 0.01, 0, 1)
    arrived = (share * LINK_BPS / 8 * 0.01).astype(int)
    kept = arrived - random.binomial(arrived, missing) if missing else arrived
    full = kept > 0
    rows = {name: kept[full].tolist() for name in ("wire_bytes", "captured_bytes")}
    rows |= {name: (kept[full] // 1514).tolist() for name in ("packets", "frames")}
    count = int(full.sum())
    packets = pa.table(
        {
            "node": ["h1"] * count,
            "port": ["eth0"] * count,
            "direction": ["in"] * count,
            "bin_ns": (begin + at[full]).astype(np.int64).tolist(),
            **rows,
        }
    )
    read = np.arange(random.integers(every_ns), at[-1], every_ns)
    grown = np.interp(read, np.r_[at, at[-1] + step], np.r_[0, np.cumsum(arrived)])
    counters = nic_counters((begin + read).astype(np.int64).tolist(), received=grown, size=1514)
    window = (begin + 15 * 10**8, begin + 15 * 10**8 + int(iterations * period_s * 1e9))
    return received_at_h1(packets, counters, window)


@pytest.mark.parametrize("model", catalog.names())
def test_a_twentieth_of_the_bytes_is_missed_in_every_model(model):
    random = np.random.default_rng(5)
    large = catalog.load(model).parameters > 10**9
    for iterations, every_ns in ((5, 10**8),) if large else ((20, 10**7), (20, 10**8), (100, 10**7)):
        for missing in (0.0, 0.05):
            inward = training(model, iterations=iterations, missing=missing, every_ns=every_ns, random=random)
            (told,) = judged(capture_nic, port_bytes=(inward,))
            assert told.passed is (missing == 0.0), (iterations, every_ns, missing, told.message)


@pytest.mark.parametrize(("metered", "passed"), [(True, True), (False, False)])
@pytest.mark.parametrize("cut", [True, False])
def test_a_meter_sees_packets_before_a_queue_that_may_cut_them(metered, passed, cut):
    counted = (66_000, 1.04e8) if cut else (2000, 1e8)
    port = PortBytes(
        node="h1",
        port="eth0",
        direction="out",
        captured=1e8,
        packets=2000,
        frames=66_000,
        wire=1.04e8,
        counted_packets=counted[0],
        counted=counted[1],
        metered=metered,
    )
    (told,) = judged(capture_nic, port_bytes=(port,))
    assert told.passed is (passed or not cut), told.message
    (short,) = judged(capture_nic, port_bytes=(replace(port, counted=1.2e8),))
    assert not short.passed
