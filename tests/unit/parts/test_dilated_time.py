"""Time of a dilated run is divided back by the units of columns, and by nothing else."""

from __future__ import annotations

import numpy as np

from orchestrator.parts.dilated_time import DividedTime
from orchestrator.parts.rows import DESCRIBED
from orchestrator.parts.schema.column import unit

BEGAN = 1_700_000_003_141_592_653
TIME = DividedTime(began_ns=BEGAN, dilation=10)


def test_instants_keep_their_order_and_a_tenth_of_their_distance():
    assert TIME.instant(BEGAN + 50_000_000_000) - TIME.instant(BEGAN) == 5_000_000_000
    assert TIME.instant(BEGAN) >= BEGAN
    assert TIME.instant(BEGAN) - BEGAN < 10_000_000_000


def test_bins_whose_width_was_multiplied_begin_at_multiples_of_their_width():
    for width in (1_000_000, 10_000_000):
        begin = (BEGAN + 7_123_456_789) // (10 * width) * (10 * width)
        assert TIME.instant(begin) % width == 0


def test_every_column_of_every_table_is_divided_by_its_unit():
    for table, described in DESCRIBED.items():
        columns = {name: [None, 1000.0 if one.type == "float64" else BEGAN] for name, one in described.columns.items()}
        if table == "counters":
            columns["counter"] = ["processor.busy_s", "rx_bytes"]
            columns["value"] = [50.0, 50.0]
        found = TIME.columns(table, columns)
        for name, values in columns.items():
            expected = {"s": 100.0, "bit/s": 10000.0, "ns": BEGAN // 10, "ns since the epoch": TIME.instant(BEGAN)}.get(
                unit(name), values[1]
            )
            if (table, name) == ("counters", "value"):
                assert found[name] == [5.0, 50.0]
            else:
                assert found[name][1] == expected, (table, name)


def test_arrays_are_divided_as_lists_are():
    found = TIME.columns("packets", {"bin_ns": np.array([BEGAN, BEGAN + 100]), "wire_bytes": np.array([1, 2])})
    assert found["bin_ns"].tolist() == [TIME.instant(BEGAN), TIME.instant(BEGAN + 100)]
    assert found["wire_bytes"].tolist() == [1, 2]


def test_without_dilation_columns_are_the_same():
    columns = {"time_ns": [BEGAN]}
    assert DividedTime(began_ns=BEGAN, dilation=1).columns("counters", columns) is columns
