"""What CI adds: a second try for tests that failed, red for what is skipped because something is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helpers import skipping

ROOT = Path(__file__).parents[3]
TWICE = ROOT / ".ci/pytest-twice"

PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert False\n"
FLAKY = """
import os, pathlib
def test_flaky():
    mark = pathlib.Path(__file__).with_name("tried")
    before = mark.read_text().split() if mark.exists() else []
    mark.write_text(" ".join([*before, str(os.getpid())]))
    assert before
"""
SKIPPED = """
import pytest
@pytest.mark.skipif(True, reason="dropping rights needs root")
def test_root(): pass
@pytest.mark.skipif(True, reason="tshark is not installed")
def test_marked(): pass
def test_called(): pytest.skip("torchvision is not installed")
@pytest.mark.xfail(run=False)
def test_not_run(): pass
"""
NOT_COLLECTED = "import pytest\npytest.importorskip('no_such_module')\n"


def project(folder: Path, *texts: str) -> Path:
    (folder / "pytest.ini").write_text("[pytest]\n")
    for number, text in enumerate(texts):
        (folder / f"test_{number}.py").write_text(text)
    return folder


def start(argv: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ORCH"))}
    ours = {
        "VENV": sys.prefix,
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "xdist.plugin",
    }
    return subprocess.run(
        argv, cwd=folder, env={**keep, **ours, **env}, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("options", [[], ["-n", "2", "--dist", "worksteal"]], ids=["serial", "parallel"])
def test_a_test_that_passes_at_its_second_try_is_told_and_not_red(tmp_path: Path, options: list[str]) -> None:
    log = tmp_path / "flaky.log"
    done = start([str(TWICE), *options], project(tmp_path, PASSES, FLAKY), FLAKY_LOG=str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    assert log.read_text() == "FLAKY: test_1.py::test_flaky\n"
    assert "FLAKY: test_1.py::test_flaky" in done.stdout
    first, second = (tmp_path / "tried").read_text().split()
    assert first != second, "the second try is in a process of its own"


def test_a_test_that_fails_twice_is_red(tmp_path: Path) -> None:
    done = start([str(TWICE)], project(tmp_path, PASSES, FLAKY, FAILS))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FLAKY" not in done.stdout


@pytest.mark.parametrize(("text", "status"), [("import no_such_module\n", 2), ("", 5)], ids=["broken", "empty"])
def test_what_is_no_failed_test_gets_no_second_try(tmp_path: Path, text: str, status: int) -> None:
    done = start([str(TWICE)], project(tmp_path, text))
    assert done.returncode == status
    assert "one more try" not in done.stdout


def test_skips_for_lack_of_an_installation_fail_where_all_tests_have_to_run(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-p", "tests.helpers.skipping", "-rA"]
    project(tmp_path, SKIPPED)
    assert start(argv, tmp_path).returncode == 0
    done = start(argv, tmp_path, ORCH_TESTS="all")
    assert done.returncode == 1
    assert "1 failed, 1 skipped, 1 xfailed, 1 error" in done.stdout
    assert "tshark is not installed (ORCH_TESTS=all" in done.stdout


def test_a_module_that_is_skipped_as_a_whole_fails_too(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-p", "tests.helpers.skipping"]
    project(tmp_path, PASSES, NOT_COLLECTED)
    assert start(argv, tmp_path).returncode == 0
    done = start(argv, tmp_path, ORCH_TESTS="all")
    assert done.returncode == 2
    assert "could not import 'no_such_module'" in done.stdout


def test_work_beside_a_command_ends_with_it_and_its_status_is_kept(tmp_path: Path) -> None:
    done = start([str(ROOT / ".ci/beside-load"), "sh", "-c", "cat /proc/$PPID/task/$PPID/children; exit 3"], tmp_path)
    assert done.returncode == 3, done.stderr
    beside = [int(pid) for pid in done.stdout.split()]
    assert len(beside) == 3, "two and the command"
    assert not any(Path(f"/proc/{pid}").exists() for pid in beside)


def flaky(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The script in a checkout of its own, with a cache of its own."""
    script = folder / "checkout/.ci/flaky"
    script.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / ".ci/flaky", script)
    (folder / "checkout/tests").mkdir(exist_ok=True)
    return start([str(script), *words], folder, XDG_CACHE_HOME=str(folder / "cache"))


def judged(folder: Path, *tests: str) -> tuple[int, str]:
    (folder / "log").write_text("".join(f"FLAKY: {test}\n" for test in tests))
    done = flaky(folder, "judge", str(folder / "log"))
    assert not done.stderr
    return done.returncode, done.stdout


ONE, OTHER = "tests/unit/test_a.py::test_one[x y]", "tests/unit/test_a.py::test_other"


def test_a_test_that_needs_its_second_try_twice_in_ten_runs_is_red(tmp_path: Path) -> None:
    assert judged(tmp_path, ONE) == (0, "")
    assert judged(tmp_path, OTHER) == (0, "")
    status, said = judged(tmp_path, ONE)
    assert status == 1
    assert "tests/unit/test_a.py::test_one[x_y] needed its second try at" in said


def test_after_nine_runs_without_it_a_test_may_need_it_again(tmp_path: Path) -> None:
    for tests in ((ONE,), *[()] * 9, (ONE,)):
        assert judged(tmp_path, *tests) == (0, "")
        lines = (tmp_path / "cache/orch/ci/flaky.tsv").read_text().splitlines()  # as if an hour had passed each time
        lines[1:] = [f"2026-01-01T{hour:02}:00:00\t{line.partition(chr(9))[2]}" for hour, line in enumerate(lines[1:])]
        for place in ("cache/orch/ci", "checkout/tests"):
            (tmp_path / place / "flaky.tsv").write_text("\n".join(lines) + "\n")
    assert judged(tmp_path, ONE)[0] == 1


def test_many_at_once_are_red(tmp_path: Path) -> None:
    assert judged(tmp_path, *(f"tests/t.py::test_{n}" for n in range(5))) == (0, "")
    status, said = judged(tmp_path, *(f"tests/u.py::test_{n}" for n in range(6)))
    assert status == 1
    assert "6 tests needed their second try, more than 5" in said


def test_runs_of_a_clone_that_is_gone_are_taken_into_the_history(tmp_path: Path) -> None:
    judged(tmp_path, ONE)
    (tmp_path / "checkout/tests/flaky.tsv").unlink()
    assert "1 runs taken into tests/flaky.tsv" in flaky(tmp_path, "record").stdout
    assert "test_one[x_y]" in (tmp_path / "checkout/tests/flaky.tsv").read_text()
    assert judged(tmp_path, ONE)[0] == 1


def test_runs_of_ci_on_this_machine_are_in_the_history() -> None:
    if skipping.in_ci():
        return  # they are committed by whoever works here next
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orch/ci/flaky.tsv"
    known = (ROOT / "tests/flaky.tsv").read_text()
    lacking = [line for line in cache.read_text().splitlines() if line not in known] if cache.exists() else []
    assert not lacking, "`.ci/flaky record` takes them in: commit tests/flaky.tsv"


@pytest.mark.parametrize(
    ("message", "accepted"),
    [
        ("store: verify every digest where a reader passes\n\nThe name holds it.", True),
        ("cli, docs: say it\n", True),
        ("# a comment of git's\nci: fail\n", True),
        ("Merge branch 'x'\n", True),
        ("Verify digests\n", False),
        ("store: " + "x" * 66, False),
        ("store:\n", False),
        ("", False),
    ],
)
def test_the_subject_of_a_commit_is_an_area_and_what_changes(tmp_path: Path, message: str, accepted: bool) -> None:
    (tmp_path / "message").write_text(message)
    done = start([str(ROOT / ".ci/subject"), str(tmp_path / "message")], tmp_path)
    assert (done.returncode == 0) == accepted
    assert bool(done.stderr) != accepted


def test_the_workflow_of_the_repository_carries_out_the_same_script() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert job["steps"][-1]["run"] == "bash .ci/run"
    assert {image.partition(":")[0] for image in job["strategy"]["matrix"]["image"]} == {"debian", "ubuntu"}
    assert job["timeout-minutes"] == 90


def run_folder(results: Path, *failed: str, outcome: str = "completed") -> None:
    gates = [{"name": name, "required": True, "passed": name not in failed} for name in ("load", "processor", "drift")]
    folder = results / f"run{len(list(results.iterdir()))}"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"outcome": outcome, "windows": [{"gates": gates}]}))


@pytest.mark.parametrize(
    ("runs", "accepted"),
    [
        ([("processor",), ()], True),
        ([("drift",), (), ()], True),
        ([("drift",), ("processor",)], True),
        ([("drift", "processor")], True),
        ([("drift",), ("drift",)], False),
        ([("processor", "load")], True),
        ([("processor",), ("load",)], False),
        ([], False),
    ],
)
def test_a_quickstart_is_accepted_only_where_the_machine_alone_made_it_invalid(
    tmp_path: Path, runs: list[tuple[str, ...]], accepted: bool
) -> None:
    for failed in runs:
        run_folder(tmp_path, *failed)
    done = start([str(ROOT / ".ci/only-the-machine"), str(tmp_path)], tmp_path)
    assert (done.returncode == 0) == accepted == ("what else this machine had to do" in done.stdout)


def test_a_quickstart_whose_runs_are_valid_is_accepted_without_a_word(tmp_path: Path) -> None:
    run_folder(tmp_path)
    done = start([str(ROOT / ".ci/only-the-machine"), str(tmp_path)], tmp_path)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_quickstart_that_failed_is_not_accepted_for_the_machine(tmp_path: Path) -> None:
    run_folder(tmp_path, "processor")
    run_folder(tmp_path, "processor", outcome="failed")
    assert start([str(ROOT / ".ci/only-the-machine"), str(tmp_path)], tmp_path).returncode == 1
