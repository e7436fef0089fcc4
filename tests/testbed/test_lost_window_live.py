"""A window that cannot be valid any more ends early, is measured again, and both tries are kept and say why."""

from __future__ import annotations

import json

import pytest

from tests.helpers.orch_runs import light, orch, write

pytestmark = pytest.mark.testbed

SLOWER = """\
import itertools, time
for step in itertools.count():  # each iteration is longer than the one before
    began = time.perf_counter()
    time.sleep(0.01 * (1 + step / 50))
    print(f"step {step} took {time.perf_counter() - began:.6f} s", flush=True)
"""
WANTED = 400  # iterations, which would take 20 s


def test_a_window_that_is_lost_ends_early_and_is_measured_again_so_often_and_no_more(tmp_path):
    (tmp_path / "train.py").write_text(SLOWER)
    command = {
        "argv": ["{python}", "-S", "train.py"],
        "files": [str(tmp_path / "train.py")],
        "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
        "hosts": ["h1", "h2"],
    }
    data = light(
        workload={"command": command},
        traffic=None,
        conditions=None,
        collect=["nic"],
        measure={"warmup": 0, "iterations": WANTED},
        validity={"drift": "5%"},
        lost="again",
    )
    results = tmp_path / "r"
    status, out, err = orch("run", write(tmp_path, data), "--results", results, "--no-report")
    assert status == 3, out + err
    tries = [json.loads(path.read_bytes()) for path in sorted(results.glob("*/*/manifest.json"))]
    assert len(tries) == 2, err
    for manifest in tries:
        (window,) = manifest["windows"]
        assert "drifts by +" in window["lost"]
        assert any(reason.startswith("lost before its end, ") for reason in window["reasons"])
        (job,) = window["iterations"].values()
        assert job["last"] < WANTED / 2
    assert "again, since w1 was lost (try 2 of 2)" in err
    assert tries[0]["salt"] == tries[1]["salt"], "what is measured again has the same random numbers"
