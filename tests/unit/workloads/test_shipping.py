"""Programs of ranks as an archive: all that a program imports is in it, and hosts' own Pythons understand it."""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

import workloads.rank
from tests.helpers.machine import PATIENCE_S
from tests.unit.agents.test_old_python import ABLE, LEAST
from workloads.common import shipping

FOLDER = Path(workloads.rank.__file__).parent
PROGRAMS = sorted(
    ".".join(path.relative_to(FOLDER).with_suffix("").parts)
    for path in FOLDER.glob("*/*.py")
    if "\ndef main() -> None:\n" in path.read_text()
)
ANYWHERE = ("external.command", "external.nccl_tests", "mpi.mpirun", "mpi.daemon", "mpi.rsh_agent", "mpi.stub")
OF_TENSORFLOW = [name for name in PROGRAMS if name.startswith("tensorflow.") or name == "horovod.on_tensorflow"]


def sources(*programs: str) -> dict[str, str]:
    """The modules in an archive, by their dotted names."""
    with zipfile.ZipFile(io.BytesIO(shipping.packed(*programs))) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    return {name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): text for name, text in texts.items()}


def test_there_is_a_program_for_each_framework():
    assert {name.partition(".")[0] for name in PROGRAMS} == {
        "deepspeed",
        "external",
        "horovod",
        "mpi",
        "tensorflow",
        "torch",
    }


@pytest.mark.parametrize("program", PROGRAMS)
def test_whatever_a_program_imports_of_the_package_is_in_its_archive(program):
    texts = sources(program)
    packages = {name for name in texts if any(other.startswith(f"{name}.") for other in texts)}
    assert f"rank.{program}" in texts
    for name, text in texts.items():
        inside = name if name in packages else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level:
                imported = importlib.util.resolve_name("." * node.level + (node.module or ""), inside)
                assert imported in texts, (name, imported)
                if imported in packages:
                    assert all(f"{imported}.{alias.name}" in texts for alias in node.names), (name, imported)


def test_nothing_else_is_in_it():
    texts = sources("external.command")
    assert not [name for name in texts if name.startswith(("rank.torch", "rank.compute", "rank.mpi.d"))]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_small_enough_to_be_sent_to_many_hosts(program):
    """A link of 10 Mbit/s takes 4 s for 128 of them, at most."""
    assert len(shipping.packed(program)) < 40_000


def test_equal_modules_make_equal_archives():
    shipping.packed.cache_clear()
    first = shipping.packed("torch.ddp")
    shipping.packed.cache_clear()
    assert shipping.packed("torch.ddp") == first


@pytest.mark.parametrize("python", ABLE)
def test_programs_for_any_host_are_imported_by_every_python_that_an_agent_runs_on(python, tmp_path):
    for name, content in shipping.files(*ANYWHERE).items():
        (tmp_path / name).write_bytes(content)
    imports = "import importlib, sys; sys.path[0] = 'rank.pyz'; [importlib.import_module(n) for n in sys.argv[1:]]"
    names = [f"rank.{name}" for name in ANYWHERE]
    done = subprocess.run([python, "-B", "-c", imports, *names], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("python", ABLE)
def test_the_archive_is_run_by_its_name_and_leaves_nothing_behind(python, tmp_path):
    """From a folder that is not the archive's, by its whole path: so mpirun starts a stub."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / shipping.ARCHIVE).write_bytes(shipping.packed("mpi.stub"))
    env = {**os.environ, "PMIX_RANK": "0", "MPI_RANK": f"nobody{os.getpid()}", "MPI_MEET_S": "0"}
    done = subprocess.run(
        [python, "-u", str(tmp_path / shipping.ARCHIVE), "mpi.stub"],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"nobody{os.getpid()}0 did not come to be registered")
    assert not list(home.iterdir())


@pytest.mark.parametrize("name", ANYWHERE)
def test_programs_for_any_host_keep_to_the_grammar_of_the_oldest(name):
    for text in sources(name).values():
        ast.parse(text, feature_version=LEAST)


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_programs_on_tensorflow_keep_to_python_3_9(name):
    """Its environment may be of that version; `zip` has no `strict` there."""
    for text in sources(name).values():
        tree = ast.parse(text, feature_version=(3, 9))
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "strict"]
