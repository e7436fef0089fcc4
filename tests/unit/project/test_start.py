"""What a command need not load it does not load: libraries take longer to load than short commands take to answer."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers.night_runs import write_run

# After the command: every module that is neither of Python nor of ours, by the first part of its name.
LOADED = """
import json, runpy, sys
own = set(sys.modules)  # of the installation, not of the command
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
except SystemExit:
    pass
names = {name.partition(".")[0] for name in sys.modules.keys() - own}
print(json.dumps(sorted(names - sys.stdlib_module_names - {"orchestrator", "__main__"})))
"""


def loaded(*argv: str, allowed: tuple[str, ...] = ()) -> set[str]:
    done = subprocess.run([sys.executable, "-c", LOADED, *argv], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1])) - set(allowed)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    write_run(folder, iterations=5)
    return str(folder)


def orch(*argv: str, allowed: tuple[str, ...] = ()) -> set[str]:
    return loaded("orchestrator.cli.main", *argv, allowed=allowed)


def test_help_loads_nothing():
    assert orch("--help") == set()


@pytest.mark.parametrize("command", [["ls"], ["ls", "--where", "load<=8gbit", "--since", "7d"], ["show", "last"]])
def test_ls_and_show_load_what_reads_manifests(results, command):
    assert orch(*command, "--results", results, allowed=("msgspec", "typing_extensions")) == set()


def test_a_query_loads_duckdb_and_no_other_library(results):
    sql = "select avg(seconds) from iterations"
    allowed = ("msgspec", "duckdb", "_duckdb", "typing_extensions")
    assert orch("query", sql, "--results", results, allowed=allowed) == set()


def test_a_query_over_a_compacted_store_needs_no_record_of_manifests(results):
    command = "import sys; from orchestrator.cli.main import main; status = main(sys.argv[1:])\n"
    asked = "print('orchestrator.store.manifests.summaries' in sys.modules, status)"
    loading = []
    for words in (["store", "compact"], ["query", "select avg(seconds) from iterations"]):
        argv = [sys.executable, "-c", command + asked, *words, "--results", results]
        loading.append(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    assert loading == ["True 0", "False 0"]


def test_ls_of_a_store_that_has_an_index_loads_no_whole_manifest_no_threads_and_no_other_command(results):
    assert orch("ls", "--results", results, allowed=("msgspec", "typing_extensions")) == set()  # it makes the index
    command = "import sys; from orchestrator.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    argv = [sys.executable, "-c", command, "ls", "--results", results]
    done = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split())
    assert "orchestrator.store.manifests.summaries" in done
    spared = ("store.manifests.records", "store.compact.catalogue", "parts.rows", "cli.measure", "cli.traffic")
    assert not done & {"concurrent.futures", *(f"orchestrator.{name}" for name in spared)}


def test_what_connects_ssh_to_a_local_host_loads_nothing():
    assert loaded("orchestrator.testbed.local.ssh_proxy", "connect", "/nowhere", "h1") == set()
