"""Files of a megabyte that are made to cost time, memory or a screen: refused in a moment, in one short line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from orchestrator.cli.main import main
from orchestrator.experiment import documents, yamltext
from orchestrator.experiment.documents import MOST_BYTES
from orchestrator.experiment.yamltext import MOST_NODES

FULL = MOST_BYTES - 16
MANY = "more than 20000 values"
REFUSED = {
    "a flat flow list": (b"a: [" + b"x," * (FULL // 2) + b"x]\n", "1:39999", MANY),
    "a flat block list": (b"a:\n" + b"- x\n" * (FULL // 4), "19999:3", MANY),
    "a flat mapping": (b"".join(b"k%d: 1\n" % number for number in range(90_000)), "10000:8", MANY),
    "lists in a list": (b"a: [" + b"[]," * (FULL // 3) + b"x]\n", "1:59996", MANY),
    "aliases": (b"a: [&a x," + b"*a," * (FULL // 3) + b"x]\n", "1:59998", MANY),
    "tags": (b"a: [" + b"!x x," * (FULL // 5) + b"x]\n", "1:99990", MANY),
    "nested flow": (b"[" * FULL, "1:33", "nested more than 32 deep"),
    "nested mappings": (b"{a: " * (FULL // 4), "1:126", "nested more than 32 deep"),
    "nested blocks": (b"- " * (FULL // 2) + b"x\n", "1:65", "nested more than 32 deep"),
    "a long key": (b"? " + b"x" * FULL + b"\n", "1:3", "a key of 1048560 characters"),
    "a long number for a key": (b"? " + b"1" * FULL + b"\n", "1:3", "a key of 1048560 characters"),
    "a long tag": (b"a: !" + b"x" * FULL + b" x\n", "1:4", "has no place here"),
    "a long alias": (b"a: *" + b"x" * FULL + b"\n", "1:4", "undefined alias"),
    "documents": (b"---\n" * (FULL // 4), "2:1", "a second document"),
}
ASK = """
import json, resource, sys
from pathlib import Path
from orchestrator.experiment import documents
from orchestrator.core.errors import ConfigError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    documents.load(Path(sys.argv[1]), needs="all")
    said = ""
except ConfigError as error:
    said = str(error)
print(json.dumps([said, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_with_its_place_in_one_short_line_before_it_has_cost_much(tmp_path, what):
    content, place, said = REFUSED[what]
    path = tmp_path / "evil.yaml"
    path.write_bytes(content)
    done = subprocess.run([sys.executable, "-c", ASK, str(path)], capture_output=True, text=True, check=True)
    told, more_kib = json.loads(done.stdout)
    assert told.startswith(f"{path}:{place}: ")
    assert said in told
    assert told.count("\n") == 0
    assert len(told) < len(str(path)) + 400
    assert more_kib < 40 << 10, "a flat list took 340 MiB before it was refused"


@pytest.mark.parametrize("kind", ["experiment", "sweep", "inventory"])
def test_every_kind_of_file_is_read_so(tmp_path, kind, capsys):
    begin = {"experiment": b"name: e\ntraffic: [", "sweep": b"axes: [", "inventory": b"hosts: ["}[kind]
    path = tmp_path / "evil.yaml"
    path.write_bytes(begin + b"x," * (FULL // 2 - 10) + b"x]\n")
    assert main(["doctor" if kind == "inventory" else "plan", str(path)]) == 2
    assert MANY in capsys.readouterr().err


def test_composing_ends_with_the_first_value_too_many(monkeypatch):
    made = []
    compose = yamltext._Loader.compose_node
    monkeypatch.setattr(yamltext._Loader, "compose_node", lambda self, *at: made.append(1) or compose(self, *at))
    with pytest.raises(documents.ConfigError):
        documents.parse(REFUSED["a flat flow list"][0], name="x", needs="all")
    assert len(made) == MOST_NODES + 1
