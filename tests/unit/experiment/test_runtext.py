"""`orch show`: gates by kind, those that failed first, and none lost; tables that fit a terminal."""

from __future__ import annotations

from orchestrator.experiment import runtext
from tests.helpers import manifests


def gate(name, passed, message):
    return {"name": name, "passed": passed, "message": message}


def window(name, *gates):
    return manifests.window(name, gates=list(gates))


def told(*windows, verbose=False, width=None):
    return runtext.gate_lines(windows, verbose=verbose, width=width)


DROPS = [gate("drops", True, f"h{i} dropped {i} packets") for i in (1, 2, 3)]


def test_gates_come_by_kind_those_that_failed_first():
    lines = told(window("w1", *DROPS, gate("load", None, "not known"), gate("drops", False, "h4 dropped 99 packets")))
    assert lines == [
        "  gates of w1: 1 failed, 1 not judged, 3 passed; --verbose lists each",
        "    FAIL drops  h4 dropped 99 packets",
        "    ?    load   not known",
        "    ok   drops  h1..h3 dropped 1..3 packets",
    ]


def test_verbose_lists_each_gate():
    lines = told(window("w1", *DROPS), verbose=True)
    assert lines == ["  gates of w1: 3 passed", *(f"    ok   drops  h{i} dropped {i} packets" for i in (1, 2, 3))]
    assert (
        told(window("w1", *DROPS), window("w2", *DROPS), verbose=True)[-1] == "    ok   drops  w2: h3 dropped 3 packets"
    )


def test_windows_are_named_where_a_gate_is_not_of_all():
    late = gate("late", False, "flows start 20 ms late")
    lines = told(*(window(f"w{i}", *DROPS, *([late] if i in (2, 3, 4) else [])) for i in range(1, 6)))
    assert lines == [
        "  gates of w1..w5: 3 failed, 15 passed; --verbose lists each",
        "    FAIL late   w2..w4: flows start 20 ms late",
        "    ok   drops  h1..h3 dropped 1..3 packets",
    ]


def test_windows_whose_gates_say_other_things_are_apart():
    lines = told(
        window("w1", gate("load", True, "80 of 80 arrived")), window("w2", gate("load", True, "nothing was to arrive"))
    )
    assert lines[1:] == ["    ok   load  w1: 80 of 80 arrived", "    ok   load  w2: nothing was to arrive"]


def test_gates_keep_to_the_width_of_a_terminal():
    lines = told(window("w1", gate("processor", False, "many words " * 30)), width=80)
    assert all(len(line) <= 80 for text in lines for line in text.splitlines())


def test_the_table_of_windows_fits_eighty_columns():
    row = {
        "job": "training",
        "iterations": 100,
        "mean_s": 0.2075,
        "p50_s": 0.1986,
        "p99_s": 0.3414,
        "sent_bytes": 1.0,
        "theory_bytes": 1.0,
    }
    load = {"source": "iperf0", "src": "h1", "dst": "h2", "requested_bps": 8e7, "achieved_bps": 7.9e7}
    windows = [{**manifests.NOT_JUDGED, "name": "w1", "training": [row], "loads": [load]}]
    found = manifests.made(scale=100, repetition=3, windows=windows)
    from orchestrator.core.screen import layout

    text = layout.table(runtext.HEAD, runtext.window_rows(found))
    assert max(map(len, text.splitlines())) <= 80
