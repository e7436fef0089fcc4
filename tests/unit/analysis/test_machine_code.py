"""The kept machine code of the capture reader: nothing is loaded but what is whole and what this user or root wrote."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.analysis.capture.stages import compiled
from orchestrator.core import machine_code

CODE = b'{"look": ["symbol", 0, 4]}\n' + bytes(range(256)) * 40
# A process that warms the reader up; its compiler says so, and brings what was compiled before.
WARM = """
import os, pathlib, subprocess
from orchestrator.analysis.capture import flowtable
def compiler(argv, **_):
    print("compiles")
    return subprocess.CompletedProcess(argv, 0, pathlib.Path(os.environ["CODE"]).read_bytes(), b"")
subprocess.run = compiler
flowtable.warm()
print("warm")
"""


@pytest.fixture
def compilations(tmp_path, monkeypatch):
    """How often code was compiled; the user's cache is the only place where it is kept."""
    begun = []

    def run(argv, **_):
        begun.append(argv)
        return subprocess.CompletedProcess(argv, 0, CODE, b"")

    monkeypatch.setattr(compiled.subprocess, "run", run)
    monkeypatch.setattr(compiled.sys, "dont_write_bytecode", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return begun


def file_in(cache: Path) -> Path:
    (found,) = (cache / "orch" / "compiled").glob("*.bin")
    return found


def empty(file):
    file.write_bytes(b"")


def torn(file):
    file.write_bytes(file.read_bytes()[:-100])


def flipped(file):
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def zeroed(file):
    file.write_bytes(bytes(len(file.read_bytes())))


def longer(file):
    file.write_bytes(file.read_bytes() + b"more")


def of_another_processor(file):
    head, _, code = file.read_bytes().partition(b"\n")
    file.write_bytes(head.replace(b"reader-", b"reader-0", 1) + b"\n" + code)


def written_by_anybody(file):
    file.chmod(0o666)


def written_by_a_group(file):
    file.chmod(0o664)


def link(file):
    kept = file.with_suffix(".kept")
    file.rename(kept)
    file.symlink_to(kept)


def fifo(file):
    file.unlink()
    os.mkfifo(file)


def of_another_user(file):
    os.chown(file, 65534, 65534)


SPOILT = [
    empty,
    torn,
    flipped,
    zeroed,
    longer,
    of_another_processor,
    written_by_anybody,
    written_by_a_group,
    link,
    fifo,
]


@pytest.mark.parametrize("spoil", [*SPOILT, of_another_user])
def test_code_that_is_not_what_was_kept_is_compiled_again(tmp_path, compilations, spoil):
    if spoil is of_another_user and os.geteuid():
        pytest.skip("only root can give a file away")
    assert compiled._code("a processor") == CODE
    assert compiled._code("a processor") == CODE
    assert len(compilations) == 1
    spoil(file_in(tmp_path))
    assert compiled._code("a processor") == CODE
    assert len(compilations) == 2
    assert compiled._code("a processor") == CODE
    assert len(compilations) == 2  # and kept again


def test_a_folder_in_the_place_of_the_code_costs_only_the_keeping(tmp_path, compilations):
    compiled._code("a processor")
    file = file_in(tmp_path)
    file.unlink()
    file.mkdir()
    (file / "something").touch()
    assert compiled._code("a processor") == CODE
    assert file.is_dir()
    assert len(compilations) == 2
    assert not list(file.parent.glob(".reader-*"))


def test_a_folder_that_cannot_be_made_costs_only_the_keeping(tmp_path, compilations):
    (tmp_path / "orch").touch()
    assert compiled._code("a processor") == CODE
    assert len(compilations) == 1


def test_a_full_disk_costs_only_the_keeping(tmp_path, compilations, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compiled.os, "fsync", full)
    assert compiled._code("a processor") == CODE
    assert not [file for file in (tmp_path / "orch" / "compiled").iterdir() if file.stat().st_size]


def test_code_of_older_sources_is_removed_but_for_the_newest_of_it(tmp_path, compilations):
    compiled._code("a processor")
    file = file_in(tmp_path)
    older = [file.with_name(f"{file.name[:-20]}{number:016x}.bin") for number in range(5)]
    other = file.with_name("reader-" + "1" * 12 + "-" + "2" * 16 + ".bin")
    for age, path in enumerate([*older, other], start=1):
        path.touch()
        os.utime(path, (1e9 - age, 1e9 - age))
    file.unlink()
    compiled._code("a processor")
    assert set(file.parent.glob("reader-*.bin")) == {file, other, *older[:3]}


def test_of_those_that_begin_at_once_one_compiles(tmp_path, compilations, monkeypatch):
    compiling = compiled.subprocess.run

    def slowly(argv, **more):
        time.sleep(1)
        return compiling(argv, **more)

    monkeypatch.setattr(compiled.subprocess, "run", slowly)
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(compiled._code, ["a processor"] * 4)) == {CODE}
    assert len(compilations) == 1


def test_one_that_compiles_without_end_does_not_stop_others(tmp_path, compilations, monkeypatch):
    monkeypatch.setattr(machine_code, "_WAIT_S", 0.3)
    compiled._code("a processor")
    file = file_in(tmp_path)
    file.unlink()
    with machine_code.compiling_alone([file.parent], file.name[:-20]):
        assert compiled._code("a processor") == CODE
    assert len(compilations) == 2


def test_a_reader_starts_on_code_that_was_cut_short(tmp_path, monkeypatch):
    """By the real compiler's code, which was compiled before: it ends neither in a traceback nor in a signal."""
    processor = compiled._processor()
    code = tmp_path / "code"
    code.write_bytes(compiled._code(processor))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CODE": str(code)}
    with monkeypatch.context() as patch:
        done = subprocess.CompletedProcess((), 0, code.read_bytes(), b"")
        patch.setattr(compiled.subprocess, "run", lambda *_, **__: done)
        patch.setattr(compiled.sys, "dont_write_bytecode", True)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        compiled._code(processor)
    file = file_in(tmp_path)
    whole = file.read_bytes()
    os.truncate(file, len(whole) // 2)
    argv = [sys.executable, "-B", "-c", WARM]
    said = subprocess.run(argv, env=environment, check=False, timeout=300, capture_output=True)
    assert (said.returncode, said.stdout, said.stderr) == (0, b"compiles\nwarm\n", b"")
    assert file_in(tmp_path).read_bytes() == whole
