"""Names from elsewhere lead below the folder that they belong into, or are refused."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import UnsafePath
from orchestrator.core.paths import safepath

GOOD = [
    "a", "a/b", "training-rank0/stdout", "tcpdump/capture.pcap12", "a b", ".hidden", "...", "..a", "a..",
    "a/..b/c", "-",
    "-rf", "--help", "~", "~root", "$HOME", "$(id)", "`id`", "%2e%2e", "*", "?", "[a]", "{a,b}", "C:", "con",
    "a:b", "a;b",
    "é", "日本語", "\N{SNAKE}", "a\N{NO-BREAK SPACE}b", "x" * 255, "é" * 127, "/".join(["a"] * 2048), "a/" + "b" * 255,
    "%s", "#", "a=b", "@", "'", '"', "<script>", "a|b", "a&b", "a,b", "a+b", "\N{ZERO WIDTH JOINER}",
]  # fmt: skip
BAD = [
    "", ".", "..", "/", "//", "/etc/passwd", "//etc", "../x", "../../x", "a/../b", "a/..", "a/../../b", "./a",
    "a/.", "a/./b",
    "a//b", "a/", "a//", "/a", "..//x", "a/b/../../../c", "\\", "..\\x", "a\\b", "C:\\x", "\\\\host\\share",
    "a/\\", "\0",
    "a\0b", "a/b\0", "\0/..", "\n", "a\nb", "\r", "\t", "a\tb", "\x1b[2J", "a\x1b]0;x\x07", "\x7f", "\x80", "\x9b31m",
    "\x85", "\u2028", "a\u2029b", "\ud800", "a\udcffb", "\udc2e\udc2e/x", "x" * 256, "a/" + "x" * 256, "é" * 128,
    "/".join(["aa"] * 1366), "a/" * 2048 + "b", "x" * 5000, "x" * (1 << 20), "../" * 1000 + "etc/passwd",
    "a/" * 100 + "..",
    None, 3, 1.5, True, b"a", b"../x", ["a"], {"a": 1}, ("a",),
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD, ids=lambda name: ascii(name)[:30])
def test_what_is_a_name_stays_as_it_is(tmp_path, name):
    assert safepath.relative(name) == name
    if len(name) > 4000:
        return  # below this folder it is too long
    path = safepath.under(tmp_path, name)
    assert path.relative_to(tmp_path).as_posix() == name
    assert os.path.realpath(path) == os.path.realpath(tmp_path) + "/" + name


@pytest.mark.parametrize("name", BAD, ids=lambda name: ascii(name)[:30])
def test_what_leads_elsewhere_or_nowhere_is_refused_in_one_short_printable_line(tmp_path, name):
    for take in (
        safepath.relative,
        safepath.segment,
        lambda name: safepath.under(tmp_path, name),
        lambda name: safepath.regular(tmp_path, name),
        lambda name: safepath.appendable(tmp_path, name),
    ):
        with pytest.raises(UnsafePath) as caught:
            take(name)
        assert len(caught.value.message) < 600
        assert caught.value.message.isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a/b", "a/b/c"])
def test_a_segment_is_one_name(name):
    with pytest.raises(UnsafePath, match="more than one name"):
        safepath.segment(name)


@given(st.text(st.sampled_from("a./\\\0\n~"), max_size=12))
def test_what_is_taken_stays_below_the_folder_however_it_is_spelled(name):
    try:
        taken = safepath.relative(name)
    except UnsafePath:
        return
    assert os.path.normpath(f"/folder/{taken}").startswith("/folder/")


@pytest.mark.parametrize("name", ["link/x", "link", "a/link/x", "a/link"])
@pytest.mark.parametrize("there", [True, False], ids=["whole", "dangling"])
def test_no_symbolic_link_is_followed(tmp_path, name, there):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    if there:
        outside.mkdir()
        (outside / "x").write_text("mine")
    (folder / name.removesuffix("/x")).symlink_to(outside)
    with pytest.raises(UnsafePath):
        safepath.under(folder, name)
    with pytest.raises(UnsafePath):
        safepath.regular(folder, name)
    with pytest.raises(UnsafePath):
        safepath.appendable(folder, name)
    assert not there or (outside / "x").read_text() == "mine"
    assert outside.exists() is there


def test_the_folder_itself_may_be_reached_through_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "results").symlink_to("disk")
    with safepath.appendable(tmp_path / "results", "a/b") as file:
        file.write(b"x")
    assert (tmp_path / "disk/a/b").read_bytes() == b"x"


@pytest.mark.parametrize("kind", ["file above", "folder", "fifo"])
def test_what_is_no_file_is_not_written_to(tmp_path, kind):
    if kind == "file above":
        (tmp_path / "a").write_text("")
    elif kind == "folder":
        (tmp_path / "a/b").mkdir(parents=True)
    else:
        (tmp_path / "a").mkdir()
        os.mkfifo(tmp_path / "a/b")
    with pytest.raises(UnsafePath):
        safepath.appendable(tmp_path, "a/b")


def test_a_name_that_is_too_long_where_it_is_to_lie_is_refused(tmp_path):
    name = "/".join(["a"] * 2048)
    for take in (safepath.under, safepath.appendable):
        with pytest.raises(UnsafePath):
            take(tmp_path, name + "/b")


def test_only_a_plain_file_is_one(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("")
    assert safepath.regular(tmp_path, "file") == tmp_path / "file"
    assert safepath.regular(tmp_path, "fifo") is None
    assert safepath.regular(tmp_path, "none") is None
    assert safepath.regular(tmp_path, "file/x") is None


def test_a_fresh_file_takes_the_place_of_what_lay_there(tmp_path):
    kept, planted = tmp_path / "kept", tmp_path / "new"
    kept.write_text("mine")
    planted.symlink_to(kept)
    with safepath.fresh(planted) as file:
        file.write(b"theirs")
    assert kept.read_text() == "mine"
    assert planted.read_bytes() == b"theirs"
    assert stat.S_ISREG(planted.lstat().st_mode)


def test_only_a_plain_file_is_opened(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("none")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(tmp_path / "socket"))
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert safepath.content(tmp_path / "file") == b"x"
    assert safepath.content(tmp_path / "none") is None
    assert safepath.text(tmp_path / "none") == ""
    kinds = {"fifo": "a pipe", "link": "a link", "nowhere": "a link", "folder": "a folder", "socket": "a socket"}
    for name, kind in {**kinds, "sparse": "holes"}.items():
        with pytest.raises(UnsafePath, match=f"'{name}' is refused: .*{kind}"):
            safepath.opened(tmp_path / name)
    with pytest.raises(UnsafePath, match="a device has this name"):
        safepath.opened(Path("/dev/zero"))


def test_a_file_with_fewer_holes_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(safepath, "MOST_HOLES", 1 << 20)
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 16))
        file.seek((1 << 20) - (1 << 16))
        file.write(b"x")
    safepath.opened(tmp_path / "file").close()
