"""`include:` in files: which value wins, where files are found, and where a mistake in one of several stands."""

from __future__ import annotations

import pytest
import yaml

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import documents, loading, opening, paperfile, sweepfile
from tests.helpers.experiments import GOOD, orch

BASE = """\
testbed:
  local: {hosts: 3, link: 1gbit, scale: 10}
workload:
  ddp: {model: resnet50}
traffic:
  - iperf: {from: h1, to: h2, load: 200mbit}
collect: [tcpdump, nic]
measure: {iterations: 10, warmup: 3}
"""


@pytest.fixture
def files(tmp_path):
    def write(**texts):
        for name, text in texts.items():
            path = tmp_path / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_the_file_itself_wins_then_the_last_include_and_what_that_includes_is_lowest(files):
    folder = files(
        own="name: own\ninclude: [one.yaml, sub/two.yaml]\nseed: 1\n",
        one="seed: 2\nrepetitions: 2\nmeasure: {warmup: 2}\n",
        sub__two="include: three.yaml\nseed: 3\nrepetitions: 3\n",
        sub__three=BASE + "repetitions: 4\nvalidity: {drift: ignore}\n",
    )
    found = loading.load_experiment(folder / "own.yaml")[0]
    assert (found.seed, found.repetitions, found.validity.drift) == (1, 3, "ignore")
    assert (found.measure.iterations, found.measure.warmup) == (10, 3)


@pytest.mark.parametrize(
    ("low", "high", "comes_to"),
    [  # the examples of RFC 7396, appendix A, as far as they are of mappings
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "b"}, ["c"], ["c"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_files_are_merged_as_by_rfc_7396(low, high, comes_to):
    assert documents.patched(low, high) == comes_to


def test_null_takes_a_part_away_so_that_another_can_stand_there(files):
    folder = files(own="name: x\ninclude: base.yaml\nworkload: {ddp: null, fsdp: {model: resnet50}}\n", base=BASE)
    assert loading.load_experiment(folder / "own.yaml")[0].workload.name == "fsdp"


def test_a_mistake_is_told_in_the_file_where_it_stands(files):
    folder = files(
        own="name: x\ninclude: base.yaml\nseed: -1\nmeasure:\n  at_most: 5\n",
        base=BASE.replace("warmup: 3", "warmup: -3"),
    )
    with pytest.raises(ConfigError) as caught:
        loading.load_experiment(folder / "own.yaml", ["repetitions=0"])
    told = [line.split(": ")[:2] for line in str(caught.value).splitlines()]
    assert told == [
        ["--set repetitions=0", "repetitions"],
        [f"{folder}/base.yaml:8:27", "measure.warmup"],
        [f"{folder}/own.yaml:3:1", "seed"],
        [f"{folder}/own.yaml:5:3", "measure.at_most"],
    ]


def test_a_mistake_in_a_list_is_told_in_the_file_whose_list_it_is(files):
    folder = files(own="name: x\ninclude: base.yaml\ntraffic:\n  - iperf: {from: h1, to: h9}\n", base=BASE)
    with pytest.raises(ConfigError, match=rf"{folder}/own.yaml:4:5: traffic.0.iperf.load: missing"):
        loading.load_experiment(folder / "own.yaml")


def test_files_that_an_included_file_names_are_beside_it(files):
    command = 'workload:\n  command: {argv: [sh, x.sh], files: [x.sh], iterations: {pattern: "(?P<seconds>.*)"}}\n'
    base = BASE.replace("workload:\n  ddp: {model: resnet50}\n", command)
    folder = files(own="name: x\ninclude: sub/base.yaml\n", sub__base=base)
    (folder / "sub/x.sh").touch()
    found = loading.load_experiment(folder / "own.yaml")[0]
    assert str(found.workload.config.files[0]) == f"{folder}/sub/x.sh"


@pytest.mark.parametrize(
    ("include", "told"),
    [
        ("nothing.yaml", "own.yaml:2:1: include: no file .*/nothing.yaml"),
        ("[base.yaml, nothing.yaml]", "own.yaml:2:22: include.1: no file"),
        ("{a: 1}", "own.yaml:2:1: include: holds a mapping"),
        ("[1]", "own.yaml:2:1: include: holds a list"),
        ("own.yaml", "own.yaml:2:1: include: goes in a circle: .*/own.yaml -> .*/own.yaml;"),
        ("circle.yaml", "circle.yaml:1:1: include: goes in a circle: .*own.yaml -> .*circle.yaml -> .*own.yaml"),
        ("broken.yaml", "broken.yaml:2:1: not YAML"),
        ("linked.yaml", "own.yaml:2:1: include: .*/linked.yaml is a link to .*/secret.yaml; accepted: that path"),
    ],
)
def test_what_cannot_be_included_is_told_with_its_place(files, tmp_path_factory, include, told):
    folder = files(own=f"name: x\ninclude: {include}\n", base=BASE, circle="include: own.yaml\n", broken="a: [\n- {")
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.yaml"
    secret.write_text(BASE)
    (folder / "linked.yaml").symlink_to(secret)
    with pytest.raises(ConfigError, match=told):
        loading.load_experiment(folder / "own.yaml")


def test_a_file_elsewhere_is_included_by_its_own_path(files, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "base.yaml"
    elsewhere.write_text(BASE)
    folder = files(own=f"name: x\ninclude: {elsewhere}\n", sub__own="name: y\ninclude: ../base.yaml\n", base=BASE)
    assert loading.load_experiment(folder / "own.yaml")[0].name == "x"
    assert loading.load_experiment(folder / "sub/own.yaml")[0].name == "y"


def test_many_files_that_include_each_other_end_in_an_error(files):
    texts = {f"f{number}": f"include: [f{number + 1}.yaml, f{number + 1}.yaml]\n" for number in range(6)}
    folder = files(own="name: x\ninclude: f0.yaml\n", f6=BASE, **texts)
    with pytest.raises(ConfigError, match=r"include: .* files; accepted: at most 32"):
        loading.load_experiment(folder / "own.yaml")


def test_a_sweep_and_its_digest_hold_the_text_of_all_files(files):
    sweep = "include: axes.yaml\nname: s\nexperiment: own.yaml\n"
    own = "name: x\ninclude: base.yaml\n"
    folder = files(sweep=sweep, axes="axes: {seed: [1, 2]}\nmode: runs\n", own=own, base=BASE)
    before = opening.open_file(folder / "sweep.yaml", local=False)
    assert isinstance(before, sweepfile.Definition)
    assert [point.resolved["measure"]["warmup"] for point in before.points] == [3, 3]
    files(base=BASE.replace("warmup: 3", "warmup: 4"))
    after = sweepfile.load(folder / "sweep.yaml")
    assert after.digest != before.digest
    assert after.points[0].resolved["measure"]["warmup"] == 4
    files(base=BASE.replace("warmup: 3", "warmup: -4"))
    with pytest.raises(ConfigError, match=f"{folder}/base.yaml:8:27: measure.warmup"):
        sweepfile.load(folder / "sweep.yaml")


def test_studies_and_inventories_include_too(files):
    study = "include: common.yaml\nname: s\ntitle: t\nsweeps: {quick: [q.yaml]}\nfigures: [{title: f}]\n"
    rack = "include: links.yaml\nhosts: {h1: {ssh: a, data: {address: 10.0.0.1/24, device: e}}}\n"
    files(study=study, common="shows: rings\n", links="link: 25gbit\n", rack=rack)
    folder = files(own="name: x\ninclude: base.yaml\ntestbed: {local: null, inventory: rack.yaml}\n", base=BASE)
    assert paperfile.read(folder / "study.yaml").shows == "rings"
    assert loading.load_experiment(folder / "own.yaml")[0].testbed.inventory.link == 25e9
    assert opening.inventory_or_experiment(folder / "rack.yaml").link == 25e9


def test_what_a_run_records_is_the_merged_text(files, monkeypatch):
    folder = files(own="name: x\ninclude: base.yaml\n", base=BASE)
    recorded = yaml.safe_load(loading.resolved_text(loading.load_experiment(folder / "own.yaml")[0]))
    assert "include" not in recorded
    assert recorded["measure"]["warmup"] == 3
    monkeypatch.chdir(folder)
    assert orch("plan", "own.yaml")[0] in (0, 1)
    assert GOOD.count("name: t") == 1
