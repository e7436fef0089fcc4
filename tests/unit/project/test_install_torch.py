"""Which build of PyTorch set-up installs, and from where, with a stub of an interpreter; how a failed build is told."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FRAMEWORKS = ROOT / "playbooks/hosts/frameworks"
OWN = "https://download.pytorch.org/whl/cpu"
PIN = next(line for line in (FRAMEWORKS / "torch.txt").read_text().splitlines() if line.startswith("torch=="))

# An interpreter that writes down from where pip would install what, and has torch as soon as that index has it:
# $HAS lists pairs "index>requirement" of what can be installed; what pip is configured for is the index "default".
PYTHON = """#!/bin/bash
if [ "$1" = -c ]; then
    [ -e "$STATE/torch" ] && cat "$STATE/torch" || exit 1
    exit
fi
wanted=${@: -1} index=${PIP_INDEX_URL:-default}
echo "$index $wanted" >>"$STATE/log"
for one in $HAS; do
    if [ "$one" = "$index>$wanted" ]; then
        [ -e "$STATE/torch" ] && exit
        [[ $wanted = *+cpu ]] && echo "2.13.0+cpu None" >"$STATE/torch" || echo "2.13.0 13.0" >"$STATE/torch"
        exit
    fi
done
echo "$SAID" >&2
exit 1
"""


def install(folder: Path, *has: str, torch: str = "cpu", said: str = "") -> subprocess.CompletedProcess[str]:
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    env = {**os.environ, "STATE": str(folder), "HAS": " ".join(has), "TORCH": torch, "SAID": said}
    for name in ("PIP_INDEX_URL", "TORCH_CPU_INDEX"):
        env.pop(name, None)
    return subprocess.run(
        [str(FRAMEWORKS / "install-torch"), str(python)], env=env, capture_output=True, text=True, check=False
    )


def asked(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_a_build_for_cpus_that_pip_is_configured_for_needs_no_other_index(tmp_path: Path) -> None:
    done = install(tmp_path, f"default>{PIN}+cpu", f"default>{PIN}")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert asked(tmp_path) == [f"default {PIN}+cpu", f"default {PIN}"]


def test_else_it_comes_from_pytorchs_own_index_and_only_it_does(tmp_path: Path) -> None:
    done = install(tmp_path, f"{OWN}>{PIN}+cpu", f"default>{PIN}")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert asked(tmp_path) == [f"default {PIN}+cpu", f"{OWN} {PIN}+cpu", f"default {PIN}"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("WARNING: Retrying (Retry(total=0))\nERROR: No matching distribution found", "it cannot be reached"),
        ("ERROR: No matching distribution found", "ERROR: No matching distribution found"),
    ],
)
def test_where_there_is_none_it_says_why_and_how_much_more_comes(tmp_path: Path, said: str, why: str) -> None:
    done = install(tmp_path, f"default>{PIN}", said=said)
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"torch: no build for CPUs on {OWN} ({why}): taking what pip finds")
    assert "3.6 GB" in line


def test_cuda_that_was_asked_for_and_is_not_there_is_a_failure(tmp_path: Path) -> None:
    assert install(tmp_path, f"default>{PIN}", torch="cuda").returncode == 0
    assert asked(tmp_path) == [f"default {PIN}"]
    (tmp_path / "torch").write_text("2.13.0+cpu None\n")
    done = install(tmp_path, f"default>{PIN}", torch="cuda")
    assert done.returncode == 1
    assert "2.13.0+cpu is there, without CUDA" in done.stderr


def test_another_build_is_a_mistake(tmp_path: Path) -> None:
    done = install(tmp_path, torch="rocm")
    assert done.returncode == 2
    assert "there are cpu and cuda" in done.stderr


def test_all_pins_of_torch_are_the_same() -> None:
    sources = (path for folder in ("orchestrator", "workloads") for path in (ROOT / folder).rglob("*.py"))
    pins = {
        pin for path in (ROOT / "pyproject.toml", *sources) for pin in re.findall(r"torch==[\d.]+", path.read_text())
    }
    assert pins == {PIN}


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "building\nCMake Error at /usr/share/cmake/FindCUDA.cmake:148 (message):\n  Could not find CUDA\n"
            "-- Configuring incomplete, errors occurred!\nsubprocess.CalledProcessError: Command 'cmake' returned\n"
            "error: subprocess-exited-with-error\nnote: This is an issue with the package mentioned above, not pip.\n",
            "CMake Error at /usr/share/cmake/FindCUDA.cmake:148 (message): Could not find CUDA",
        ),
        (
            "a.cc:7:1: error: 'x' was not declared\nmake[2]: *** [a.o] Error 1\nERROR: Failed building wheel for x\n",
            "a.cc:7:1: error: 'x' was not declared",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n\n",
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        ),
        ("something else\n", "something else"),
        ("", "it printed nothing"),
    ],
)
def test_a_failed_build_is_told_by_the_line_that_says_why(tmp_path: Path, log: str, cause: str) -> None:
    (tmp_path / "log").write_text(log)
    done = subprocess.run(
        [str(FRAMEWORKS / "cause"), str(tmp_path / "log")], capture_output=True, text=True, check=True
    )
    assert done.stdout == cause + "\n"


def test_a_build_that_fails_is_one_line_with_its_cause_its_log_and_its_status(tmp_path: Path) -> None:
    python = tmp_path / "python"
    # Tells its version and answers what is asked of an interpreter, has headers, and fails at the virtual environment.
    python.write_text(
        '#!/bin/sh\ncase "$1 $2" in -VV*) echo "Python 3.11.0" ;; *Python.h*) ;; -c*) exec python3 "$@" ;;'
        ' *) echo "venv: no space left" >&2; exit 7 ;; esac\n'
    )
    python.chmod(0o755)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("g++", "make", "cmake", "mpirun", "mpicc", "orted"):
        (programs / name).symlink_to("/bin/true")
    env = {
        **os.environ,
        "ORCH_FRAMEWORKS": str(tmp_path / "made"),
        "PYTHON": str(python),
        "TORCH": "cpu",
        "ORCH_PROGRAMS": str(programs),
    }
    done = subprocess.run(
        [str(FRAMEWORKS.with_name("prepare-frameworks")), "torch"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 7, done.stdout + done.stderr
    (log,) = (tmp_path / "made").glob("torch-*.log")
    assert done.stderr == f"frameworks: building torch failed: venv: no space left (all of it: {log})\n"
    assert "1.1 GB, for CPUs" in done.stdout
    assert not (tmp_path / "made/torch").exists()
