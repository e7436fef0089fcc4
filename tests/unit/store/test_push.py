"""A store that is pushed is read elsewhere as it is here: in folders, in memory, and in an S3 that counts requests."""

from __future__ import annotations

import json
import shutil
import uuid
import zipfile
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from orchestrator.core.errors import StoreError
from orchestrator.store import query, rundir, stores
from orchestrator.store.compact import compacting
from orchestrator.store.compact.catalogue import BLOCK, FOLDER, File, block_digest
from orchestrator.store.elsewhere import pushing, reading
from orchestrator.store.elsewhere.buckets import Bucket
from orchestrator.store.elsewhere.ranges import Blocks
from orchestrator.store.manifests import coding
from orchestrator.store.manifests import manifest as manifests
from tests.helpers.experiments import orch
from tests.helpers.killed_at import killed_at
from tests.helpers.night_runs import write_night, write_run
from tests.helpers.s3_server import serving
from tests.helpers.sealed_run import make_run

FILES = ("tables/iterations.parquet", "experiment.yaml")


def sealed(run: Path) -> Path:
    """The run, with what its manifest records of its files."""
    folder = rundir.RunFolder(run, rundir.opened(run).manifest)
    folder.hash_files()
    folder.save(folder.manifest)
    return run


def ask(results, *argv, status=0):
    code, out, err = orch(*argv, "--results", str(results))
    assert code == status, err
    return out if status == 0 else err


def rows(results, sql, *more):
    return sorted(ask(results, "query", sql, "--json", *more).splitlines())


def push(results, url, *more):
    return ask(results, "store", "push", url, *more).splitlines()[-1].removeprefix(f"{url}: ")


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compacting, "today", lambda: "2026-11-25")


@pytest.fixture
def results(tmp_path):
    """Two nights of two runs each."""
    for night in range(2):
        for run in write_night(tmp_path / "results", night, repetitions=2, iterations=20):
            sealed(run)
    return tmp_path / "results"


def a_bucket() -> str:
    """A new one: the servers of a process share what they hold."""
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(name)
    return name


@pytest.fixture(params=["file", "memory", "s3"])
def url(request, tmp_path, monkeypatch):
    if request.param == "file":
        yield f"file://{tmp_path}/bucket/results"
    elif request.param == "memory":
        yield "memory://bucket/results"
        fsspec.filesystem("memory").rm("/bucket", recursive=True)
    else:
        with serving() as server:
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            yield f"s3://{a_bucket()}/results"


@pytest.fixture
def place(tmp_path):
    return f"file://{tmp_path}/bucket/results"


ITERATIONS = "select * from all_iterations"
RUNS = "select * exclude path from runs"


def test_a_store_elsewhere_is_read_like_one_here(tmp_path, url):
    results = tmp_path / "results"
    for number in (1, 2, 3):
        sealed(make_run(results / "resnet-load", repetition=number, iterations=25))
    push(results, url)
    there, mine = stores.opened(url), stores.opened(str(results))
    with query.opened(there, there.every(), query.names()) as a, query.opened(mine, mine.every(), query.names()) as b:
        for name in query.names():
            sql = f"select *{' exclude path' if name == 'runs' else ''} from {name}"  # noqa: S608
            one, other = (sorted(map(repr, side.sql(sql).fetchall())) for side in (a, b))
            assert one == other, name
    listed = [json.loads(line)["run"] for line in ask(url, "ls", "--json").splitlines()]
    assert listed == [json.loads(line)["run"] for line in ask(results, "ls", "--json").splitlines()]
    for more in (("--where", "repetition=2"), ("--experiment", "nothing")):
        assert rows(url, ITERATIONS, *more) == rows(results, ITERATIONS, *more), more
    assert ask(url, "show", "abc2") == ask(results, "show", "abc2").replace(str(results), f"{shown(url)}")
    ask(url, "report", "abc1", "-o", str(tmp_path / "page.html"))
    assert "resnet-load" in (tmp_path / "page.html").read_text()
    ask(url, "export", "zip", "abc1", "-o", str(tmp_path / "run.zip"))
    (run,) = (results / "resnet-load").glob("*abc1")
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        files = {f"{run.name}/{path.relative_to(run)}" for path in run.rglob("*") if path.is_file()}
        assert set(archive.namelist()) == files
    rows_of = ask(url, "export", "all_iterations", "-o", str(tmp_path / "i.parquet"))
    assert rows_of.endswith("rows of 3 runs\n")


def shown(url):
    return reading.Elsewhere.opened(url).cache / "runs"


@pytest.mark.parametrize("url", ["file", "memory"], indirect=True)
def test_what_is_there_is_not_sent_again(results, url):
    assert push(results, url).startswith("4 runs and ")
    assert push(results, url) == "0 runs and 0 compacted files sent, 0 bytes"
    sealed(write_run(results, night=1, repetition=3, iterations=20))
    assert push(results, url).startswith("1 runs and 5 compacted files sent")
    assert rows(url, ITERATIONS) == rows(results, ITERATIONS)
    bucket = Bucket.opened(url)
    names = {name.removeprefix(f"{FOLDER}/") for name in bucket.sizes(FOLDER)}
    there = next(iter(reading.catalogues(bucket).values()))
    assert {name for name in names if "/" in name} == there.names(), "what is named no more has gone"


@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_a_run_that_changed_here_changes_there(results, url):
    push(results, url)
    run = sorted(results.glob("nightly/*"))[1]
    manifests.save(run / "manifest.json", replace(rundir.opened(run).manifest, stage="changed"))
    assert push(results, url).startswith("1 runs and ")
    assert rows(url, RUNS) == rows(results, RUNS)
    assert '"stage": "changed"' in ask(url, "show", run.name, "--json")


@pytest.mark.parametrize("url", ["file", "memory"], indirect=True)
def test_runs_that_are_gone_here_stay_there(results, url):
    push(results, url)
    before = rows(url, ITERATIONS), rows(url, RUNS)
    gone, _, _, other = sorted(results.glob("nightly/*"))
    shutil.rmtree(gone)
    for turn in range(2):
        push(results, url)
        assert (rows(url, ITERATIONS), rows(url, RUNS)) == before, turn
    shutil.rmtree(other)
    sealed(write_run(results, night=2, iterations=20))
    push(results, url)
    assert set(before[0]) < set(rows(url, ITERATIONS))
    assert len(rows(url, RUNS)) == 5
    assert "nightly" in ask(url, "show", gone.name)


def test_several_stores_in_one_place_are_one(results, tmp_path, place):
    other = tmp_path / "other"
    for run in write_night(other, 5, repetitions=2, iterations=20, name="weekly"):
        sealed(run)
    shutil.copytree(results / "nightly", other / "nightly")  # and what both have counts once
    push(results, place)
    push(other, place)
    push(results, place)
    assert rows(place, ITERATIONS) == rows(other, ITERATIONS)
    assert rows(place, RUNS) == rows(other, RUNS)


def test_captures_can_stay_here(results, tmp_path, place):
    run = min(results.glob("nightly/*"))
    (run / "hosts/h1").mkdir(parents=True)
    (run / "hosts/h1/a.pcap").write_bytes(b"x" * 1000)
    sealed(run)
    push(results, place, "--without-captures")
    assert not [*(tmp_path / "bucket").rglob("*.pcap")]
    assert "nightly" in ask(place, "show", run.name)
    assert "cannot be read" in ask(place, "export", "zip", run.name, "-o", str(tmp_path / "r.zip"), status=1)


def test_wherever_a_push_is_killed_a_reader_sees_whole_runs_and_the_next_push_goes_on(results, tmp_path, place):
    compacting.compact(results)
    step, seen = 0, set()
    while killed_at(step := step + 3, lambda: pushing.push(results, place, captures=True)):
        try:
            store = reading.Elsewhere.opened(place)
        except StoreError as error:
            assert "no store was pushed there" in error.message  # noqa: PT017 - either is right
            continue
        every = stores.named(store, [])
        seen.add(len(every))
        assert sorted(query.select(store, store.every(), ITERATIONS).rows) == sorted(here(results, ITERATIONS))
        for entry in every:
            folder = store.brought(entry, want=lambda _: True)
            assert all((folder / file).exists() for file in FILES)
    assert step > 10
    push(results, place)
    assert rows(place, ITERATIONS) == rows(results, ITERATIONS)
    assert len(rows(place, RUNS)) == 4


def here(results, sql):
    store = stores.opened(str(results))
    return query.select(store, store.every(), sql).rows


def test_a_manifest_follows_the_files_of_its_run_and_the_catalogue_is_the_last(results, place, monkeypatch):
    written = []
    for what in ("send", "write"):
        whole = getattr(Bucket, what)
        monkeypatch.setattr(
            Bucket,
            what,
            lambda *given, whole=whole: (
                whole(*given),
                written.append(next(one for one in given[1:] if isinstance(one, str))),
            ),
        )
    push(results, place)
    for run in results.glob("nightly/*"):
        mine = [name for name in written if name.startswith(f"nightly/{run.name}/")]
        assert mine[-1].endswith("/manifest.json")
        assert len(mine) == 3
    assert written[-1].startswith(f"{FOLDER}/catalogue-")
    assert max(place for place, name in enumerate(written) if name.startswith("nightly")) < len(written) - 1


def requested(server, sql, url, cold):
    if cold:
        shutil.rmtree(reading.Elsewhere.opened(url).cache, ignore_errors=True)
    before = len(server.requests)
    found = rows(url, sql)
    return found, len(server.requests) - before


def test_requests_are_in_proportion_to_days_and_not_to_runs(tmp_path, monkeypatch):
    sql = "select max(seconds) s, count(*) n from iterations"
    with serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket, taken = a_bucket(), {}
        for days, runs in ((1, 1), (1, 6), (3, 2)):
            results = tmp_path / f"{days}-{runs}"
            for day in range(days):
                for run in write_night(results, day, repetitions=runs, iterations=5):
                    sealed(run)
            url = f"s3://{bucket}/{days}-{runs}"
            push(results, url)
            found, taken[days, runs] = requested(server, sql, url, cold=True)
            assert found == rows(results, sql)
            again, fewer = requested(server, sql, url, cold=False)
            assert again == found
            assert fewer == 2, "the catalogues, and nothing that was read before"
    assert taken[1, 1] == taken[1, 6] == 3
    assert taken[3, 2] == 5


def test_nights_of_a_bucket_are_told_as_they_are_here(results, url):
    push(results, url)
    assert ask(url, "history", "nightly", "--json") == ask(results, "history", "nightly", "--json")
    assert "no night of weekly" in ask(url, "history", "weekly", status=1)


class Asked:
    """A bucket with a file of a few blocks, which writes down what it is asked for."""

    content = bytes(range(256)) * (5 * BLOCK // 256) + b"the last block is short"

    def __init__(self):
        self.wanted = []

    def ranges(self, wanted):
        self.wanted += wanted
        return [self.content[start:end] for _, start, end in wanted]


def test_neighbouring_blocks_are_one_request_and_none_is_fetched_twice(tmp_path):
    bucket, size = Asked(), len(Asked.content)
    digests = "".join(block_digest(Asked.content[at : at + BLOCK]) for at in range(0, size, BLOCK))
    names = [f"iterations/2026-11-{day}-{'0' * 16}.parquet" for day in (18, 19)]
    files = {
        name: File(name=name, bytes=size, rows=1, runs=(), stamps=coding.raw([]), blocks=digests) for name in names
    }
    a, b = names
    blocks = Blocks(bucket, FOLDER, files, tmp_path)
    assert blocks.read(a, BLOCK + 7, 3 * BLOCK + 1) == Asked.content[BLOCK + 7 : 3 * BLOCK + 1]
    assert bucket.wanted == [(f"{FOLDER}/{a}", BLOCK, 4 * BLOCK)]
    assert blocks.read(a, 0, size) == Asked.content
    assert bucket.wanted[1:] == [(f"{FOLDER}/{a}", 0, BLOCK), (f"{FOLDER}/{a}", 4 * BLOCK, size)]
    blocks.tails([a, b])
    assert bucket.wanted[3:] == [(f"{FOLDER}/{b}", 5 * BLOCK, size)]
    assert blocks.read(a, 2 * BLOCK, 2 * BLOCK + 9) == Asked.content[:9]
    assert len(bucket.wanted) == 4


# What is no store of ours


def spoilt(place, edit):
    """Have somebody who may write into the bucket change its catalogue."""
    (path,) = Path(place.removeprefix("file://")).glob(f"{FOLDER}/catalogue-*.json")
    about = json.loads(path.read_text())
    edit(about)
    path.write_text(json.dumps(about))


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


EDITS = {
    "a run that leads out": lambda about: about["runs"].append({"folder": "../evil", "manifest": "0" * 64}),
    "a run of one segment": lambda about: about["runs"].append({"folder": "evil", "manifest": "0" * 64}),
    "a file that leads out": lambda about: about["tables"]["iterations"][0].update(name="../../evil.parquet"),
    "a store that leads out": lambda about: about.update(store="../../evil"),
    "a run that is not there": lambda about: about["tables"]["iterations"][0].update(runs=[10**6]),
    "a size below zero": lambda about: about["tables"]["iterations"][0].update(bytes=-1),
    "another format": lambda about: about.update(format=99),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_catalogue_that_is_none_of_ours_is_refused_in_a_line(results, tmp_path, place, edit):
    push(results, place)
    spoilt(place, EDITS[edit])
    before = everything(tmp_path)
    told = ask(place, "ls", status=1)
    assert "catalogue-" in told
    assert "Traceback" not in told
    assert {path for path in everything(tmp_path) - before if "evil" in path} == set()


@pytest.mark.parametrize("size", [1, 10**15])
def test_rows_of_a_file_that_is_not_as_large_as_its_catalogue_says_do_not_count(results, place, size):
    push(results, place)
    spoilt(place, lambda about: [file.update(bytes=size) for file in about["tables"]["iterations"]])
    code, out, err = orch("query", ITERATIONS, "--json", "--results", place)
    assert "Traceback" not in err
    assert (
        (sorted(out.splitlines()), "is damaged" in err) == (rows(results, ITERATIONS), True) if code == 0 else not out
    )


def test_a_manifest_or_a_file_that_was_changed_there_is_refused(results, tmp_path, place):
    push(results, place)
    there = Path(place.removeprefix("file://"))
    run = min(there.glob("nightly/*"))
    table = run / "tables/iterations.parquet"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    assert "is not what was sealed" in ask(place, "report", run.name, "-o", str(tmp_path / "p.html"), status=1)
    (run / "manifest.json").write_text((run / "manifest.json").read_text() + " ")
    shutil.rmtree(tmp_path / "cache")
    assert "not what its catalogue says" in ask(place, "show", run.name, status=1)


@pytest.mark.parametrize("name", ["../../../evil", "/evil", "tables/../../evil", "a\\b"])
def test_a_file_of_a_run_whose_name_leads_out_is_refused(results, tmp_path, place, name):
    run = min(results.glob("nightly/*"))
    manifest = rundir.opened(run).manifest
    artifact = {"path": name, "bytes": 4, "sha256": "0" * 64}
    about = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**about, "artifacts": [artifact]}))
    code, _, err = orch("store", "push", place, "--results", str(results))
    assert code == 1
    assert "is refused" in err
    bucket = Path(place.removeprefix("file://"))
    there = bucket / run.relative_to(results)
    there.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "manifest.json", there)
    digest = rundir.sha256(run / "manifest.json")
    spoilt(place, lambda seen: seen["runs"].append({"folder": str(run.relative_to(results)), "manifest": digest}))
    before = everything(tmp_path)
    told = ask(place, "export", "zip", manifest.run, "-o", str(tmp_path / "r.zip"), status=1)
    assert "Traceback" not in told
    assert {path for path in everything(tmp_path) - before if "evil" in path} == set()


def test_a_link_in_the_cache_is_not_followed(results, tmp_path, place):
    push(results, place)
    run = min(results.glob("nightly/*"))
    mine = tmp_path / "mine"
    mine.mkdir()
    folder = shown(place) / run.relative_to(results)
    folder.mkdir(parents=True)
    (folder / "tables").symlink_to(mine)
    assert "symbolic link" in ask(place, "report", run.name, "-o", str(tmp_path / "p.html"), status=1)
    assert not [*mine.iterdir()]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nothing://a/b", "Protocol not known"),
        ("file:///no/such/store", "no store was pushed there"),
        ("s3://bucket/results", "cannot be read"),
    ],
)
def test_a_store_that_cannot_be_reached_is_said(url, told, monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_DEFAULT_REGION": "x",
    }.items():
        monkeypatch.setenv(name, value)
    status, _, err = orch("ls", "--results", url)
    assert status == 1
    assert told in err
    assert "Traceback" not in err


def test_nothing_is_measured_into_a_store_elsewhere(capsys):
    with pytest.raises(SystemExit):
        orch("run", "e.yaml", "--results", "s3://bucket/results")
