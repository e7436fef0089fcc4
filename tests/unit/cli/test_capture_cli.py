from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.analysis.capture.binning import BIN_BUDGET
from orchestrator.analysis.capture.flowtable import MEMORY
from orchestrator.cli.main import main
from tests.helpers.made_packets import ethernet, pcap
from tests.helpers.odd_packets import NASTY, connection

DATA = Path(__file__).parents[2] / "data" / "pcap"
LOSS = str(DATA / "loss.pcap")


def test_a_summary_in_words(capsys):
    assert main(["capture", LOSS, "--top", "1"]) == 0
    said = capsys.readouterr()
    assert "loss: 247 packets, 228,138 bytes on the wire" in said.out
    assert "2 flows, the largest 1:" in said.out
    assert said.err == ""


def test_json_tables_and_a_page_hold_the_same(tmp_path, capsys):
    (tmp_path / "roce.pcap").write_bytes(NASTY["roce.pcap"])
    page, tables = tmp_path / "page.html", tmp_path / "tables"
    argv = [
        "capture",
        LOSS,
        f"rdma={tmp_path / 'roce.pcap'}",
        "--json",
        "--report",
        str(page),
        "--parquet",
        str(tables),
    ]
    assert main(argv) == 0
    data = json.loads(capsys.readouterr().out)
    assert [point["name"] for point in data["points"]] == ["loss", "rdma"]
    assert [row["queue_pair"] for row in data["queue_pairs"]] == [0x11, 0x12]
    flows = pq.read_table(tables / "flows.parquet").to_pylist()
    assert [row["packets"] for row in flows] == [row["packets"] for row in data["flows"]]
    bins = pq.read_table(tables / "bins.parquet")
    assert bins.schema.metadata[b"bin_width_ns"] == b"1000000"
    assert sum(bins["wire_bytes"].to_pylist()) == sum(row["wire_bytes"] for row in flows)
    assert pq.read_table(tables / "pairs.parquet").num_rows == len(data["pairs"])
    text = page.read_text()
    assert "220,044" in text
    assert "<svg" in text
    assert (tmp_path / "page-figures" / "throughput.pdf").exists()


@pytest.mark.parametrize(("step_ns", "unit"), [(10**9, "kbit/s"), (10**6, "Mbit/s"), (100, "Gbit/s")])
def test_throughput_is_drawn_in_a_unit_that_can_be_read(tmp_path, step_ns, unit):
    frames = [ethernet(bytes(1400)) for _ in range(50)]
    (tmp_path / "x.pcap").write_bytes(pcap(frames, step_ns=step_ns))
    assert main(["capture", str(tmp_path / "x.pcap"), "--report", str(tmp_path / "page.html"), "--bin", "1us"]) == 0
    said = (tmp_path / "page-figures" / "throughput.csv").read_text()
    assert unit in said
    assert {"kbit/s", "Mbit/s", "Gbit/s"} - {unit} == {one for one in ("kbit/s", "Mbit/s", "Gbit/s") if one not in said}


def test_bins_of_small_flows_are_summed_as_the_options_say(tmp_path, capsys):
    argv = ["capture", LOSS, "--bins", "1", "--memory", "4kib", "--parquet", str(tmp_path), "--json"]
    assert main(argv) == 0
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert data["flows"][0]["protocol"] == "others"
    assert sum(pq.read_table(tmp_path / "bins.parquet")["packets"].to_pylist()) == 247
    assert "small flows are summed" in data["notes"][0]
    assert "small flows are summed" in said.err


def test_help_says_what_the_reader_does_by_itself(capsys):
    with pytest.raises(SystemExit):
        main(["capture", "--help"])
    said = capsys.readouterr().out
    assert f"({BIN_BUDGET:,})" in said
    assert f"({MEMORY >> 20} MiB)" in said


def test_damage_is_told_and_ends_nothing(tmp_path, capsys):
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap([ethernet(one) for one in connection()])[:-3])
    assert main(["capture", str(path)]) == 0
    said = capsys.readouterr()
    assert "5 packets" in said.out
    assert "cut.pcap ends inside a record" in said.err


def test_an_empty_capture_has_a_page_too(tmp_path, capsys):
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap([]))
    assert main(["capture", str(path), "--report", str(tmp_path / "page.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flows"] == []


@pytest.mark.parametrize(
    ("argv", "status", "told"),
    [
        ([LOSS, "--bin", "3"], 2, "--bin: '3' is not a duration"),
        ([LOSS, "--bin", "1ns"], 2, "too short"),
        ([LOSS, "--offset", "loss"], 2, "not NAME=TIME"),
        ([LOSS, "--offset", "other=1ms"], 2, "no capture named other"),
        ([LOSS, "--bins", "0"], 2, "--bins must be at least 1"),
        ([LOSS, "--memory", "3"], 2, "--memory: '3' is not a size"),
        (["/does/not/exist.pcap"], 1, "No such file"),
        ([__file__], 1, "is no capture"),
    ],
)
def test_mistakes_are_told_in_a_line(capsys, argv, status, told):
    assert main(["capture", *argv]) == status
    said = capsys.readouterr()
    assert told in said.err
    assert "Traceback" not in said.err
