"""A run that is watched from a second shell, and on a page: what it does is seen while it does it."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request

import pytest

from tests.helpers.orch_runs import ended_or, light, manifest_of, start, wait_for, write

pytestmark = pytest.mark.testbed


def said(url):
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own page
        return answer.read().decode()


def test_a_run_is_watched_from_its_beginning_to_its_verdict(tmp_path):
    results = tmp_path / "r"
    results.mkdir()
    watching = start("watch", "--results", results, "--web")
    run = None
    try:
        url = watching.stdout.readline().strip()
        assert watching.stdout.readline() == f"waiting for a run in {results}\n"
        file = write(tmp_path, light(measure={"warmup": 2, "at_most": "6s"}))
        run = start("run", file, "--results", results, "--no-report")

        def measuring():
            state = json.loads(said(url + "state?0"))
            tables = {table["title"] for table in state.get("tables", ())}
            judged = {gate["name"] for gate in state.get("gates", ())}
            begun = not state.get("progress", "0 ").startswith("0 ")
            return state if begun and {"Hosts", "Loads"} <= tables and "load" in judged else None

        state = wait_for(ended_or(run, measuring), 360, "iterations, loads and hosts on the page")
        assert state is not True, run.communicate()[1]
        assert (state["phase"], state["label"]) == ("window w1", "run 1 of 1")
        assert len(state["curves"][0]["values"]) > 2
        assert [gate["name"] for gate in state["gates"]] == ["iterations", "drift", "load"]
        assert "<h1>orch watch</h1>" in said(url)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            said(url.replace(url.split("/")[3], "guessed"))
        out, err = watching.communicate(timeout=300)
        _, run_err = run.communicate(timeout=300)
    finally:
        for process in filter(None, (run, watching)):
            process.send_signal(signal.SIGINT)
            process.communicate()
    manifest, folder = manifest_of(results)
    assert manifest["outcome"] == "completed", run_err
    assert (watching.returncode, err) == (0, ""), out
    lines = out.splitlines()
    for told in ("  window w1", "    gate load: "):
        assert any(line.startswith(told) for line in lines), out
    assert lines[-1].startswith(f"{manifest['run']}: ")
    assert lines[-1].endswith(f"({folder})")
    assert not list(folder.glob("live.*")), "nothing of it is sealed"
