"""`orch verify` of namespaces: claims are measured there and hold, and the file without names has none."""

from __future__ import annotations

import getpass
import json
import re
import socket

import pytest

from tests.helpers.orch_runs import orch

pytestmark = pytest.mark.testbed

ONLY = ("agents", "clocks", "runs", "load-at50", "undo")


def test_claims_are_measured_and_hold(tmp_path):
    page, file, results = tmp_path / "page.html", tmp_path / "anonymous.json", tmp_path / "results"
    asked = [word for name in ONLY for word in ("--only", name)]
    status, out, err = orch(
        "verify", "--quick", *asked, "--wait", "5min", "--results", results, "-o", page, "--anonymous", file
    )
    assert file.exists(), out + err
    data = json.loads(file.read_text())
    told = {one["name"]: one for one in data["claims"]}
    assert tuple(told) == ONLY
    assert {one["verdict"] for one in told.values()} <= {"held", "not judged"}, out + err
    assert {one["code"] for one in told.values()} <= {"", "disturbed"}, out + err  # a busy machine decides that
    assert {name: told[name]["verdict"] for name in ("agents", "undo")} == {"agents": "held", "undo": "held"}, out + err
    assert status == 0, out + err
    figures = {one["what"]: one["value"] for one in told["undo"]["figures"]}
    assert figures["changes"] >= 3
    assert figures["left"] == 0
    assert {path.name.rpartition(".")[2] for path in results.glob("verify-undo/*")} != {"partial"}  # it was recovered
    text = file.read_text()
    private = ("h1", "h2", "h3", str(tmp_path), socket.gethostname(), getpass.getuser())
    assert [name for name in private if re.search(rf"\b{re.escape(name)}\b", text)] == []
    assert "claims held, 0 broken" in page.read_text()
