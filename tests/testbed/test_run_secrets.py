"""A secret reaches the ranks, and nothing that a run leaves or shows has it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import secrets
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.orch_runs import orch, start, wait_for, write

pytestmark = pytest.mark.testbed

SCRIPT = """
import hashlib, os, time
for name in ("PLAIN_TOKEN", "FILE_TOKEN"):
    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest())
for step in range(10**6):
    time.sleep(0.02)
    print(f"step {step} took 0.02 s")
"""


@pytest.fixture
def tokens(tmp_path, monkeypatch):
    plain, kept = f"sk-{secrets.token_hex(20)}", f"p4ss/{secrets.token_hex(20)}"
    monkeypatch.setenv("TOKEN_OF_THE_CONTROLLER", plain)
    (tmp_path / "token").write_text(kept + "\n")
    return plain, kept


def experiment(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = {
        "argv": ["{python}", "train.py"],
        "files": [str(tmp_path / "train.py")],
        "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
        "env_from": {"PLAIN_TOKEN": "TOKEN_OF_THE_CONTROLLER", "FILE_TOKEN": str(tmp_path / "token")},
    }
    return {
        "name": "secret",
        "testbed": {"local": {"hosts": 3, "link": "1gbit"}},
        "conditions": [{"congestion-control": "cubic"}],
        "workload": {"command": command},
        "collect": ["tcpdump", "nic"],
        "measure": {"warmup": 1, "iterations": 150, "at_most": "60s"},
    }


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every byte below a folder: of what is compressed what it holds, too."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield from opened(str(path), path.read_bytes())


def opened(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if name.endswith(".gz"):
        yield f"{name} unpacked", gzip.decompress(data)
    elif name.endswith(".zst"):
        yield f"{name} unpacked", pa.CompressedInputStream(io.BytesIO(data), "zstd").read()
    elif name.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(data))
        yield f"{name} as rows", json.dumps(table.to_pylist(), default=str).encode()
        yield f"{name}'s metadata", str(table.schema.metadata).encode()
    elif name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.namelist():
                yield from opened(f"{name}/{entry}", archive.read(entry))


def command_lines() -> Iterator[tuple[str, bytes]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield str(path), path.read_bytes()
        except OSError:
            continue


def having(found, tokens) -> list[str]:
    return [name for name, data in found for token in tokens if token.encode() in data]


def running(results: Path):
    def ready() -> bool:
        return any(b"step 10 " in path.read_bytes() for path in results.glob("*/*.partial/hosts/*/*/stdout"))

    return ready


def test_a_secret_reaches_the_ranks_and_nothing_else(tmp_path, tokens):
    results, path = tmp_path / "results", write(tmp_path, experiment(tmp_path))
    process = start("run", path, "--results", results, "--set", "repetitions=1")
    try:
        wait_for(running(results), 360, "the ranks' first steps")
        while_it_ran = [*command_lines(), *contents(results)]
    finally:
        out, err = process.communicate(timeout=300)
    assert process.returncode in (0, 3), out + err
    (manifest,) = results.glob("*/*/manifest.json")
    hashes = {hashlib.sha256(token.encode()).hexdigest() for token in tokens}
    for rank in range(3):
        said = (manifest.parent / f"hosts/h{rank + 1}/training-rank{rank}/stdout").read_text()
        assert hashes == {line.split()[1] for line in said.splitlines() if "_TOKEN " in line}

    archive = tmp_path / "run.zip"
    assert orch("export", "zip", manifest.parent.name, "--results", results, "-o", archive)[0] == 0
    shown = [orch("plan", path), orch("plan", path, "--json"), orch("show", "last", "--results", results)]
    texts = [("output", (out + err).encode()), *(("shown", (o + e).encode()) for _, o, e in shown)]
    left = [*contents(results), *opened(str(archive), archive.read_bytes()), *texts]
    assert len(left) > 50
    assert having(while_it_ran, tokens) == []
    assert having(left, tokens) == []
    launches = [launch for launch in json.loads(manifest.read_bytes())["launches"] if launch["job"]]
    assert {launch["env_from"]["PLAIN_TOKEN"] for launch in launches} == {"TOKEN_OF_THE_CONTROLLER"}
