"""Every mistake in a file or an option: where it is, what is wrong, what would be accepted; and nothing is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.analysis.compare.window_settings import of_windows
from orchestrator.api import running
from orchestrator.core.errors import ConfigError, shortened
from orchestrator.experiment import loading
from tests.helpers.experiments import GOOD, IPERF, LOCAL, WORKLOAD, changed, orch
from tests.helpers.sweep_files import SWEEP

ROOT = Path(__file__).parents[3]

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcde", "bcdef", strict=True)
)
TOP = (
    "accepted: name, testbed, local_run, conditions, workload, jobs, traffic, windows, collect, captures, measure, "
    "repetitions"
)
JOB = "  - name: a\n    workload: {ddp: {model: resnet50}}\n"
INLINE = "inventory: {link: 1gbit, hosts: {h1: {ssh: a, data: {address: 10.0.0.1/24, device: eth0}}, %s}}"

# name -> (the file, where, what the message says)
BAD: dict[str, tuple[str | bytes, str, str]] = {
    # what is no file of ours at all
    "empty": ("", "1:1", "the file is empty; accepted: a mapping with at least name, testbed"),
    "only comments": ("# nothing\n\n# here\n", "1:1", "the file is empty"),
    "an empty document": ("---\n...\n", "2:1", "the file holds nothing; accepted: a mapping"),
    "a list": ("# a\n- b\n", "2:1", "the file holds a list; accepted: a mapping with at least name"),
    "text": ("hello\n", "1:1", "the file holds text"),
    "latin-1": (b"name: t\ntestbed: \xe9\n", "2:10", "not UTF-8: byte 0xe9"),
    "a bad byte behind good ones": ("name: éé".encode() + b"\xff", "1:9", "not UTF-8: byte 0xff"),
    "a bad byte behind a mark": (b"\xef\xbb\xbfna\xffme", "1:3", "not UTF-8: byte 0xff"),
    "UTF-16": (GOOD.encode("utf-16"), "1:1", "UTF-16"),
    "a zero byte": (b"name: t\r\nseed: \x00", "2:7", "U+0000"),
    "a control character": ("name: a\x07", "1:8", "U+0007"),
    "half a surrogate pair": ('name: "\\ud800"\n', "1:7", "surrogate"),
    "half a surrogate pair in a key": ('"\\udfff": 1\n', "1:1", "surrogate"),
    # YAML that is none
    "a tab": ("name: t\ntestbed:\n\tlocal: {}\n", "3:1", "a tab; accepted: spaces"),
    "unclosed brace": (changed("scale: 10}", "scale: 10"), "4:9", "flow mapping (begun at 3:10)"),
    "unclosed quote": (changed("name: t", 'name: "t'), "11:1", "quoted scalar (begun at 1:7)"),
    "undefined alias": (changed("ddp: {model: resnet50}", "*x"), "5:3", "undefined alias 'x'"),
    "two documents": (GOOD + "---\n" + GOOD, "11:1", "a second document begins here; accepted: one"),
    "wrong indentation": (GOOD + "  repetitions: 3\n   seed: 1\n", "12:8", "not YAML"),
    # YAML that goes too far
    "duplicate key": (GOOD + "name: u\n", "11:1", "name: stands twice; first at line 1"),
    "duplicate key below": (changed("hosts: 3,", "hosts: 3, hosts: 4,"), "3:21", "hosts: stands twice"),
    "duplicate by quotes": (GOOD + '"name": u\n', "11:1", "name: stands twice"),
    "anchor in itself": (changed("  ddp: {model: resnet50}", "  &a\n  ddp: *a"), "5:3", "contains itself"),
    "alias bomb": (BOMB, "5:1", "more than 20000 values, all aliases spelled out"),
    "nested too deep": ("a:\n  b: " + "[" * 3000, "2:36", "nested more than 32 deep"),
    "nested too deep by aliases": (
        "a0: &a0 [[[[[[[[x]]]]]]]]\n" + "".join(f"a{i}: &a{i} [[[[[[[[*a{i - 1}]]]]]]]]\n" for i in range(1, 5)),
        "1:16",
        "nested more than 32 deep",
    ),
    "foreign tag": (changed("name: t", "name: !!python/object/apply:os.system [x]"), "1:7", "the tag !!python/object"),
    "binary": (changed("name: t", "name: !!binary aGVsbG8="), "1:7", "the tag !!binary has no place"),
    "set": (changed("[tcpdump, nic]", "!!set {tcpdump}"), "8:10", "the tag !!set"),
    "a tag that does not fit": (changed("iterations: 10", "iterations: !!int ten"), "10:15", "the tag !!int"),
    "a list as key": (changed("name: t", "name: t\n? [a, b]\n: 3"), "2:3", "a key is a list; accepted: a plain word"),
    "a number as key": (GOOD + "3: x\n", "11:1", "3: a key that is no text; accepted: a word, or it in quotes"),
    "nothing as key": (GOOD + "~: x\n", "11:1", "a key that is no text"),
    "merging text": (changed("{from: h1,", "{<<: 3, from: h1,"), "7:17", "<<: accepted: a mapping"),
    "digits without end": (GOOD + f"seed: {'9' * 5000}\n", "11:7", "a number of 5000 digits; accepted: at most 30"),
    # keys
    "unknown key": (GOOD + "repetitons: 3\n", "11:1", f"repetitons: unknown key; did you mean repetitions?; {TOP}"),
    "CRLF": ((GOOD + "repetitons: 3\n").replace("\n", "\r\n"), "11:1", "repetitons: unknown key"),
    "byte order mark": ("\ufeff" + GOOD + "repetitons: 1\n", "11:1", "repetitons: unknown key"),
    "unknown key below": (
        changed("200mbit", "200mbit, strems: 4"),
        "7:46",
        "traffic.0.iperf.strems: unknown key; did you mean streams?; accepted: from, to, load, rail, streams, most_",
    ),
    "on is text": (GOOD + "on: 3\n", "11:1", "on: unknown key"),
    "unknown traffic": (changed("iperf:", "iperff:"), "7:5", "traffic.0.iperff: unknown key; did you mean iperf?"),
    "unknown collector": (changed("nic]", "nicc]"), "8:20", "nicc: unknown key; did you mean nic?; accepted: cpu, "),
    "a key that was renamed": (
        changed("[tcpdump, nic]", "[{tcpdump: {snap: 96}}, nic]"),
        "8:22",
        "collect.0.tcpdump.snap: is called snaplen now; accepted: snaplen",
    ),
    "another one": (GOOD + "  stall: 5s\n", "11:3", "measure.stall: is called stall_timeout now"),
    "one of what --local changes": (GOOD + "dry_run: {scale: 2}\n", "11:1", "dry_run: is called local_run now"),
    "one of a sweep that was renamed": (GOOD + "fresh: 1\n", "11:1", "fresh: unknown key"),
    "one at the top that was renamed": (GOOD + "repeat: 3\n", "11:1", "repeat: is called repetitions now"),
    "one of a workload that was renamed": (
        changed("ddp: {model: resnet50}", "deepspeed: {model: resnet50, stage: 2}"),
        "5:32",
        "workload.deepspeed.stage: is called zero_stage now; accepted: zero_stage",
    ),
    "a word that was renamed": (
        changed("ddp: {model: resnet50}", "p2p: {model: resnet50, strategy: pair-averaging, peers: in-turn}"),
        "5:52",
        "workload.p2p.peers: 'in-turn' is called round-robin now; accepted: round-robin",
    ),
    "dash for underscore": (GOOD + "local-run: {scale: 2}\n", "11:1", "did you mean local_run?"),
    "missing key": (changed("name: t\n", ""), "1:1", "name: missing (its name: a folder"),
    "missing key below": (changed(", load: 200mbit", ""), "7:5", "traffic.0.iperf.load: missing (what it"),
    "missing behind a bare name": (changed("ddp: {model: resnet50}", "ddp"), "4:1", "workload.ddp.model: missing"),
    # values
    "wrong unit": (changed("1gbit", "1gbits"), "3:21", "link: '1gbits' is not a rate; accepted: a number and one of"),
    "no unit": (changed("1gbit", "1000000000"), "3:21", "1000000000 is not a rate; accepted: a number and one of bit"),
    "negative": (changed("1gbit", "-1gbit"), "3:21", "'-1gbit' is not a rate"),
    "base 60": (changed("1gbit", "1:30"), "3:21", "'1:30' is not a rate"),
    "no number": (changed("1gbit", ".nan"), "3:21", "nan is not a rate"),
    "more than a float": (changed("1gbit", "1e400gbit"), "3:21", "'1e400gbit' is not a rate"),
    "a fraction": (changed("hosts: 3", "hosts: 3.5"), "3:11", "testbed.local.hosts: holds 3.5; accepted: a whole num"),
    "a whole fraction": (changed("hosts: 3", "hosts: 3.0"), "3:11", "holds 3.0; accepted: a whole number, or a list"),
    "base 8": (changed("hosts: 3", "hosts: 010"), "3:11", "holds '010'; accepted: a whole number, or a list"),
    "too few hosts": (changed("hosts: 3", "hosts: 1"), "3:11", "testbed.local.hosts: 1 is too small; accepted: 2"),
    "too many hosts": (changed("hosts: 3", "hosts: 65"), "3:11", "65 is too large; accepted: at most 64"),
    "true is no number": (changed("iterations: 10", "iterations: true"), "10:3", "true is not a whole number"),
    "quoted number": (changed("iterations: 10", 'iterations: "10"'), "10:3", "'10' is not a whole number"),
    "infinite": (changed("iterations: 10", "iterations: .inf"), "10:3", "inf is not a whole number"),
    "no iterations": (changed("iterations: 10", "iterations: 0"), "10:3", "0 is too small; accepted: 1 or more"),
    "text for true": (changed("scale: 10", "scale: 10, offloads: yep"), "3:45", "'yep'; accepted: true or false"),
    "a date": (changed("name: t", "name: 2024-01-01"), "1:1", "name: '2024-01-01' is not a name; accepted: a letter"),
    "no date": (changed("name: t", "name: 2024-13-45"), "1:1", "name: '2024-13-45' is not a name"),
    "number as name": (changed("name: t", "name: 12"), "1:1", "name: holds 12; accepted: text (in quotes)"),
    "path as name": (changed("name: t", "name: ../t"), "1:1", "name: '../t' is not a name"),
    "line end in a name": (changed("name: t", 'name: "t\\n"'), "1:1", r"name: 't\n' is not a name"),
    "long value": (changed("name: t", f"name: {'x' * 300}"), "1:1", "... is not a name"),
    "a list for text": (changed("from: h1", "from: [h1]"), "7:13", "from: holds a list; accepted: text"),
    "a mapping for a list": (changed(IPERF, IPERF.replace("- ", "  ")), "6:1", "traffic: holds a mapping; accepted: a"),
    "text for a list": (changed("[tcpdump, nic]", "tcpdump"), "8:1", "collect: holds 'tcpdump'; accepted: a list"),
    "text for a mapping": (changed(f"\n  {LOCAL}", " local"), "2:1", "testbed: holds text; accepted: a mapping of loc"),
    "nothing in a list": (changed("nic]", "~]"), "8:20", "collect.1: holds nothing; accepted: a mapping of cpu, gpu"),
    "share": (GOOD + "validity: {load: 5}\n", "11:12", "validity.load: 5 is not a share; accepted: a number and one"),
    "neither share nor word": (GOOD + "validity: {load: as-acheived}\n", "11:12", "or 'as-achieved'"),
    "duration": (GOOD + "validity: {clock: 1}\n", "11:12", "1 is not a duration; accepted: a number and one of ns"),
    "no time": (changed("iterations: 10", "at_most: 0s"), "10:3", "measure.at_most: '0s' is too small; accepted: more"),
    "choice": (
        changed("resnet50", "resnet50, backend: glo"),
        "5:26",
        "'glo' is not known; did you mean gloo?; accepted:",
    ),
    "unknown model": (changed("resnet50", "resnet51"), "5:9", "no model 'resnet51'; accepted: one of bert-base"),
    "pattern": (GOOD + "conditions:\n  - congestion-control: CUBIC!\n", "12:5", "'CUBIC!' is not what belongs here"),
    # what does not go together
    "host name": (changed("hosts: 3", "hosts: [H1, h2]"), "3:19", "testbed.local.hosts.0: 'H1' is not a host name"),
    "reserved host name": (changed("hosts: 3", "hosts: [h1, switch]"), "3:23", "'switch' is not a host name"),
    "host twice": (changed("hosts: 3", "hosts: [h1, h2, h1]"), "3:27", "hosts.2: 'h1' stands here twice"),
    "one host": (
        changed("hosts: 3", "hosts: [h1]"),
        "3:11",
        "testbed.local.hosts: has 1 entries; accepted: at least 2",
    ),
    "link of no host": (
        changed("1gbit", "1gbit, links: {h9: 1gbit}"),
        "3:42",
        "links.h9: the testbed has no host 'h9'; accepted",
    ),
    "no rate for a link": (changed("1gbit", "1gbit, links: {h2: 1}"), "3:42", "links.h2: 1 is not a rate"),
    "bad host name of a link": (
        changed("1gbit", "1gbit, links: {H: 1gbit}"),
        "3:42",
        "links.H: 'H' is not a host name",
    ),
    "scale 0": (changed("scale: 10", "scale: 0"), "3:34", "testbed.local.scale: 0 is too small; accepted: 1 or more"),
    "negative scale": (changed("scale: 10", "scale: -2"), "3:34", "-2 is too small"),
    "fraction of a scale": (changed("scale: 10", "scale: 1.5"), "3:34", "1.5 is not a whole number"),
    "scale too large": (changed("scale: 10", "scale: 10000"), "3:34", "less than 1mbit; accepted: at most 1000 with"),
    "no link": (changed("1gbit", "0gbit"), "3:21", "testbed.local.link: 0bit is too slow; accepted: 1mbit or more"),
    "scale of a local run": (GOOD + "local_run: {scale: 0}\n", "11:13", "local_run.scale: 0 is too small"),
    "no testbed": (changed(LOCAL, "{}"), "2:1", "testbed: holds nothing; accepted: exactly one of local, inventory"),
    "two testbeds": (
        changed(LOCAL, f"{LOCAL}\n  {INLINE % 'h2: {ssh: b, data: {address: 10.0.0.2/24, device: eth0}}'}"),
        "2:1",
        "testbed: holds 2; accepted: exactly one of local, inventory",
    ),
    "real compute, scaled": (changed("resnet50", "resnet50, compute: real"), "5:26", "scale of 10; accepted: compute"),
    "workload and jobs": (GOOD + "jobs:\n" + JOB, "11:1", "jobs: stands beside workload; accepted: exactly one of"),
    "neither workload nor jobs": (
        changed(WORKLOAD, ""),
        "1:1",
        "the file: nothing trains; accepted: exactly one of wo",
    ),
    "empty workload": (
        changed("ddp: {model: resnet50}", "{}"),
        "4:1",
        "workload: holds nothing; accepted: exactly one",
    ),
    "two workloads": (
        changed("[tcpdump, nic]", "[{tcpdump: {}, nic: {}}]"),
        "8:11",
        "collect.0: holds 2; accepted: ex",
    ),
    "nothing below a part": (changed("ddp: {model: resnet50}", "ddp:"), "5:3", "workload.ddp: nothing stands below it"),
    "traffic and windows": (GOOD + "windows:\n  - name: a\n", "6:1", "traffic: stands beside windows"),
    "no end": (changed("iterations: 10", "warmup: 1"), "9:1", "measure: the window never ends; accepted: iterations"),
    "jobs of one name": (changed(WORKLOAD, "jobs:\n" + JOB + JOB), "7:5", "jobs.1.name: 'a' stands here twice"),
    "windows of one name": (
        changed("traffic:\n" + IPERF, "windows:\n  - name: a\n  - name: b\n  - name: a\n"),
        "9:5",
        "windows.2.name: 'a' stands here twice",
    ),
    "collector twice": (changed("[tcpdump, nic]", "[nic, cpu, nic]"), "8:21", "collect.2: 'nic' stands here twice"),
    # held against the testbed
    "no such host": (
        changed("to: h2", "to: h9"),
        "7:23",
        "iperf.to: the testbed has no host 'h9'; accepted: one of h1",
    ),
    "no such host for a rank": (
        changed("resnet50", "resnet50, hosts: [h1, h7]"),
        "5:38",
        "no host 'h7'; accepted: one",
    ),
    "no such host for a change": (
        GOOD + "conditions:\n  - rate: {host: h9, rate: 1gbit}\n",
        "12:12",
        "conditions.0.rate.host: the testbed has no host 'h9'; accepted: one of h1, h2, h3",
    ),
    "load above the link": (
        changed("200mbit", "2gbit"),
        "7:31",
        "2gbit does not fit the link of h1; accepted: more th",
    ),
    "loads above the link together": (
        changed(IPERF, (IPERF + IPERF.replace("h2", "h3")).replace("200", "600")),
        "6:1",
        "traffic: the loads from h1 add up to 1.2gbit, more than its link carries; accepted: at most 1gbit together",
    ),
    "loads of a window together": (
        changed(
            "traffic:\n" + IPERF,
            "windows:\n  - name: a\n  - name: b\n    traffic:\n"
            + (IPERF + IPERF.replace("h2", "h3")).replace("200", "600").replace("  -", "      -"),
        ),
        "9:5",
        "windows.1.traffic: the loads from h1 add up",
    ),
    # inventories in the file
    "inline address": (
        changed(LOCAL, INLINE % "h2: {ssh: b, data: {address: 10.0.0.2, device: eth0}}"),
        "3:114",
        "testbed.inventory.hosts.h2.data.address: '10.0.0.2' needs its prefix",
    ),
    "inline twins": (
        changed(LOCAL, INLINE % "h2: {ssh: b, data: {address: 10.0.0.1/24, device: eth0}}"),
        "3:114",
        "hosts h1 and h2 have the same data address 10.0.0.1",
    ),
    "no inventory file": (changed(LOCAL, "inventory: nope.yaml"), "3:3", "testbed.inventory: no file nope.yaml; acce"),
    "an inventory's endless name": (changed(LOCAL, f"inventory: {'x' * 5000}"), "3:3", "testbed.inventory: no file"),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(content: str | bytes, *options: str) -> tuple[int, str]:
    """Exit status and complaints of `orch plan` for a file; a file with a mistake leaves no trace.

    Whatever else takes the file tells the same mistakes.
    """
    Path("e.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    given = ("e.yaml", *(f"--set={option}" for option in options))
    status, out, err = orch("plan", *given)
    if status == 2:
        tell_alike(*given, said=err)
    assert "Traceback" not in err
    assert status == 0 or (not out and [path.name for path in Path().iterdir()] == ["e.yaml"])
    return status, err


def tell_alike(file: str, *options: str, said: str) -> None:
    """What `plan` says of a mistaken file is what doctor, run and the Python API say."""
    assert orch("doctor", file, *options) == (2, "", said)
    said = said.replace(" (an experiment), or link and hosts (an inventory)", "")  # which only plan and doctor take
    assert orch("run", file, *options) == (2, "", said)
    settings = {option.partition("=")[2].partition("=")[0] for option in options}
    if not settings:
        with pytest.raises(ConfigError) as caught:
            running.load(file)
        assert f"{caught.value}\n" == said


def test_the_file_that_the_others_differ_from_is_good():
    assert plan(GOOD) == (0, "")


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_has_its_place_and_a_way_out(name):
    content, where, said = BAD[name]
    status, err = plan(content)
    assert status == 2
    assert err.startswith(f"e.yaml:{where}: ")
    assert said in err
    assert len(err.splitlines()) == 1


def test_several_mistakes_are_all_told_in_the_order_of_the_file():
    text = changed("hosts: 3", "hosts: 99").replace("200mbit", "200").replace("iterations: 10", "iterations: 0")
    status, err = plan(text + "repetitons: 1\n")
    assert status == 2
    assert [line.split(" ")[0] for line in err.splitlines()] == [
        "e.yaml:3:11:",
        "e.yaml:7:31:",
        "e.yaml:10:3:",
        "e.yaml:11:1:",
    ]


def test_what_the_testbed_lacks_is_told_for_every_part_at_once():
    text = changed("[tcpdump, nic]", "[tcpdump: {hosts: [h8]}]").replace("to: h2", "to: h9")
    status, err = plan(text + "conditions:\n  - rate: {host: h7, rate: 1gbit}\n")
    assert status == 2
    assert {line.split(" ")[0] for line in err.splitlines()} == {"e.yaml:12:12:", "e.yaml:7:23:", "e.yaml:8:29:"}


def test_anchors_aliases_and_merge_keys_work():
    text = changed(IPERF, "  - iperf: &flow {from: h1, to: h2, load: 200mbit}\n  - iperf: {<<: *flow, to: h3}\n")
    status, out, _ = _planned(text)
    assert status == 0
    assert "traffic iperf1: h1 -> h3 at 200mbit" in out


def _planned(text):
    Path("e.yaml").write_text(text)
    return orch("plan", "e.yaml")


@pytest.mark.parametrize(
    ("second", "places"),
    [
        ("*flow", ["e.yaml:7:29:", "e.yaml:7:29:"]),
        ("{<<: *flow, load: 3mbit}", ["e.yaml:7:29:", "e.yaml:7:29:"]),
        ("{<<: *flow, to: h8}", ["e.yaml:7:29:", "e.yaml:8:24:"]),
        ("{<<: [*flow, {streams: 2}], to: h8}", ["e.yaml:7:29:", "e.yaml:8:40:"]),
    ],
)
def test_a_mistake_in_what_is_aliased_is_where_it_is_written(second, places):
    text = changed(IPERF, f"  - iperf: &flow {{from: h1, to: h9, load: 20mbit}}\n  - iperf: {second}\n")
    status, err = plan(text)
    assert status == 2
    assert [line.split(" ")[0] for line in err.splitlines()] == places


def test_text_that_older_yaml_takes_for_something_else_is_text():
    status, out, _ = _planned(
        changed("hosts: 3", "hosts: [no, on, y]")
        .replace("name: t", "name: off")
        .replace("from: h1, to: h2", "from: no, to: on")
    )
    assert status == 0
    assert "experiment off" in out
    assert "no -> on" in out


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("repetitons=3", "repetitons: unknown key; did you mean repetitions?"),
        ("measure.iteration=3", "measure.iteration: unknown key; did you mean iterations?"),
        ("measure.iterations=none", "measure.iterations: 'none' is not a whole number"),
        ("measure.iterations=", "measure: the window never ends"),
        ("traffic.0.iperf.to=h9", "traffic.0.iperf.to: the testbed has no host 'h9'"),
        ("traffic.7.iperf.to=h3", "traffic is a list and has no entry 7; accepted: 0 to 0, or 1 to add one"),
        ("traffic.iperf.to=h3", "traffic is a list and has no entry iperf; accepted: 0 to 0, or 1 to add one"),
        ("traffic.99999999999999999999=h3", "has no entry 99999999999999999999"),
        ("traffic.²=h3", "has no entry ²"),
        ("name.first=x", "name is text; there is nothing below it"),
        ("measure.iterations.x=1", "measure.iterations is a number; there is nothing below it"),
        ("measure", "not a change; accepted: a key path, '=' and a value"),
        ("=3", "not a change"),
        ("measure..iterations=3", "not a change"),
        ("seed=[", "value:1:2: not YAML"),
        ("seed=" + "9" * 5000, "a number of 5000 digits"),
        ("seed=!!set {a}", "the tag !!set"),
        ("seed=\t\tx: 1", "value:1:"),
        ("testbed=local", "testbed: holds text; accepted: a mapping of local, inventory"),
        ("testbed.local.hosts=0", "testbed.local.hosts: 0 is too small"),
    ],
)
def test_a_mistake_in_an_option_points_at_the_option(option, said):
    status, err = plan(GOOD, option)
    assert status == 2
    assert err.startswith("e.yaml:9:1: " if option == "measure.iterations=" else f"--set {shortened(option)}: ")
    assert said in err
    assert len(err.splitlines()) == 1


LINKS = "local: {hosts: 4, link: 1gbit, links: {h2: 400mbit}, scale: 10}"


@pytest.mark.parametrize(
    ("source", "rate_bps"),
    [
        ("iperf: {from: h1, to: h3, load: 50%}", 0.5e9),
        ("iperf: {from: h1, to: h2, load: 50%}", 0.2e9),
        ("iperf: {from: h2, to: h1, load: 100%}", 0.4e9),
        ("iperf: {from: h1, to: h3, load: 0%}", 0.0),
        ("websearch: {from: [h3, h4], to: h1, load: 30%}", 0.3e9),  # h1's link is the first that is full
        ("websearch: {from: h1, to: [h3, h4], load: 30%}", 0.3e9),  # likewise, as the sender's
        ("websearch: {from: [h1, h3], to: [h2, h4], load: 50%}", 0.4e9),  # h2 gets half of all
    ],
)
def test_a_load_may_be_a_share_of_its_narrowest_link(tmp_path, source, rate_bps):
    path = tmp_path / "e.yaml"
    path.write_text(changed(LOCAL, LINKS).replace("iperf: {from: h1, to: h2, load: 200mbit}", source))
    experiment, _ = loading.checked(path, [], local=False)
    (choice,) = experiment.traffic
    assert choice.config.load == pytest.approx(rate_bps)
    assert "%" not in loading.resolved_text(experiment).partition("traffic:")[2].partition("collect:")[0]


def test_a_share_of_a_real_link_is_of_what_frames_can_fill(tmp_path):
    ends = [f"h{n}: {{ssh: h{n}, data: {{device: e0, address: 10.0.0.{n}/24}}}}" for n in (1, 2)]
    hosts = f"inventory: {{link: 25gbit, hosts: {{{', '.join(ends)}}}}}"
    path = tmp_path / "e.yaml"
    path.write_text(changed(LOCAL, hosts).replace("200mbit", "100%"))
    (choice,) = loading.checked(path, [], local=False)[0].traffic
    assert choice.config.load == 24.609e9


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("120%", "does not fit the link of h"),
        ("-5%", "'-5%' is not a load"),
        ("50", "such as 8gbit, or of the link, such as 50%"),
        ("1e999%", "is not a load"),
    ],
)
def test_a_share_that_no_link_carries_is_a_mistake(tmp_path, load, said):
    path = tmp_path / "e.yaml"
    path.write_text(changed("200mbit", load))
    status, _, err = orch("plan", str(path))
    assert status == 2
    assert f"{path}:7" in err
    assert said in err


def test_a_share_of_the_link_of_a_host_that_is_not_there_is_that_mistake(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(changed("to: h2, load: 200mbit", "to: h9, load: 50%"))
    assert "the testbed has no host 'h9'" in orch("plan", str(path))[2]


def test_an_option_below_a_bare_name_and_behind_a_lists_end():
    status, out, _ = _planned(GOOD)
    assert status == 0
    options = ["--set", "collect.1.nic.every=20ms", "--set", "collect.2=qdisc", "--set", "local_run.scale=5"]
    status, out, _ = orch("plan", "e.yaml", *options)
    assert status == 0
    assert "qdisc_source" in out
    assert "nic_source 0.02 " in out


def test_the_last_of_two_options_counts_and_is_the_one_that_is_told():
    status, err = plan(GOOD, "measure.iterations=x", "measure={iterations: 0}")
    assert status == 2
    assert err.startswith("--set measure={iterations: 0}: measure.iterations: 0 is too small")


INVENTORY = """\
link: 25gbit
hosts:
  a:
    ssh: a.example
    data: {address: 10.0.0.1/24, device: eth0}
  b:
    ssh: b.example
    data: {address: 10.0.0.2/24, device: eth0}
"""
ON_HOSTS = changed(LOCAL, "inventory: beds/rack.yaml").replace("from: h1, to: h2", "from: a, to: b")


def with_inventory(text: str) -> tuple[int, str, str]:
    Path("sub/beds").mkdir(parents=True)
    Path("sub/beds/rack.yaml").write_text(text)
    Path("sub/e.yaml").write_text(ON_HOSTS)
    status, out, err = orch("plan", "sub/e.yaml")
    if status == 2:
        tell_alike("sub/e.yaml", said=err)
    return status, out, err


def test_an_inventory_lies_beside_the_experiment():
    status, out, err = with_inventory(INVENTORY)
    assert (status, err) == (0, "")
    assert "hosts a (10.0.0.1), b (10.0.0.2)" in out


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("", "1:1", "the file is empty; accepted: a mapping with at least link and hosts"),
        (INVENTORY.replace("25gbit", "25"), "1:1", "link: 25 is not a rate"),
        (INVENTORY.replace("    ssh: b.example\n", ""), "6:3", "hosts.b.ssh: missing (host name"),
        (INVENTORY.replace("0.2/24", "0.2"), "8:12", "'10.0.0.2' needs its prefix; accepted: such as 10.0.0.2/24"),
        (INVENTORY.replace("0.2/24", "0.1/24"), "8:12", "hosts a and b have the same data address"),
        (
            INVENTORY + "switch: {name: s, ports: {a: 1x, c: 2x}}\n",
            "9:34",
            "switch.ports.c: the testbed has no host 'c'; accepted",
        ),
        (INVENTORY + "defaults: {prot: 22}\n", "9:12", "defaults.prot: unknown key; did you mean port?"),
        (INVENTORY + "link: 1gbit\n", "9:1", "link: stands twice"),
    ],
)
def test_a_mistake_in_an_inventory_is_where_it_is(text, where, said):
    status, _, err = with_inventory(text)
    assert status == 2
    assert err.startswith(f"sub/beds/rack.yaml:{where}: ")
    assert said in err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("from: h1, to: h2", "from: h1, to: h1", "to: "),
        ("model: resnet50", "model: small_cnn, compute: emulated", "small_cnn"),
        ("load: 200mbit", "load: 12gbit", "12gbit does not fit the link of h1"),
        ("model: resnet50", "model: resnet50, compute: real", "compute"),
        ("model: resnet50", "model: resnet50, hosts: [h1, h9]", "no host 'h9'"),
    ],
)
def test_what_shows_against_the_testbed_is_told_by_doctor_too(old, new, said):
    """As it is told of any other mistake: by `plan`, which checks that all say the same."""
    status, err = plan(changed(old, new))
    assert status == 2
    assert said in err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.yaml", SWEEP.replace("[resnet50, vgg16]", "[resnet50, vgg61]"), "no model 'vgg61'"),
        ("s.yaml", SWEEP.replace("200]", "2000]"), "s.yaml: point "),
        ("s.yaml", f"{SWEEP}mood: windows\n", "did you mean mode?"),
        ("i.yaml", INVENTORY.replace("25gbit", "25"), "i.yaml:1:1: link: 25 is not a rate"),
        ("i.yaml", INVENTORY.replace("0.2/24", "0.1/24"), "hosts a and b have the same data address"),
        ("st.yaml", "name: y\ntitle: t\nshows: x\nfigures: [{title: f}]\nsweeps: {full: [gone.yaml]}\n", "no file"),
        (
            "st.yaml",
            "name: y\ntitel: t\nshows: x\nfigures: [{title: f}]\nsweeps: {full: [s.yaml]}\n",
            "did you mean title?",
        ),
        ("st.yaml", "name: y\ntitle: t\nshows: x\nfigures: [{title: f}]\nsweeps: {full: [s.yaml]}\n", "s.yaml: point "),
    ],
)
def test_a_file_of_another_kind_is_read_as_what_it_is(name, text, said):
    Path("s.yaml").write_text(SWEEP.replace("200]", "2000]"))
    Path(name).write_text(text)
    status, out, err = orch("plan", name)
    assert (status, out) == (2, "")
    assert said in err
    assert orch("doctor", name) == (2, "", err)


@pytest.mark.parametrize(
    ("command", "name", "said"),
    [
        (("run",), "s.yaml", "s.yaml: is a sweep, not an experiment\n  remedy: orch sweep s.yaml"),
        (("run",), "i.yaml", "i.yaml: is an inventory, not an experiment\n  remedy: orch doctor i.yaml"),
        (("run",), "st.yaml", "is a paper, not an experiment\n  remedy: orch study ."),
        (("sweep",), "i.yaml", "i.yaml: is an inventory, not a sweep"),
        (("clean",), "s.yaml", "s.yaml: is a sweep, not an experiment"),
        (("plan",), "i.yaml", "nothing to plan\n  remedy: orch doctor i.yaml"),
        (("plan", "--json"), "st.yaml", "--json: st.yaml is a paper"),
        (("doctor", "--set=a=1"), "i.yaml", "--set a=1: i.yaml is an inventory"),
    ],
)
def test_who_takes_files_of_another_kind_is_said(command, name, said):
    Path("s.yaml").write_text(SWEEP)
    Path("i.yaml").write_text(INVENTORY)
    Path("st.yaml").write_text("name: y\ntitle: t\nshows: x\nfigures: [{title: f}]\nsweeps: {full: [s.yaml]}\n")
    status, out, err = orch(*command, name)
    assert (status, out) == (2, "")
    assert said in err


def test_a_study_is_planned_sweep_by_sweep():
    Path("s.yaml").write_text(SWEEP)
    Path("st.yaml").write_text("name: y\ntitle: t\nshows: x\nfigures: [{title: f}]\nsweeps: {full: [s.yaml]}\n")
    status, out, _ = orch("plan", "st.yaml")
    assert status == 0
    assert "12 measurements" in out or "s:" in out


def test_an_inventory_that_lacks_what_the_experiment_names_is_a_mistake_of_the_experiment():
    status, _, err = with_inventory(INVENTORY.replace("  b:", "  c:"))
    assert status == 2
    assert err.startswith("sub/e.yaml:7:22: traffic.0.iperf.to: the testbed has no host 'b'")


@pytest.mark.parametrize("name", [".", "nothing.yaml", "a\0b", "x" * 5000, ""])
def test_what_is_no_file_is_said(name):
    status, out, err = orch("plan", name)
    assert (status, out) == (2, "")
    assert "cannot be read" in err


def test_what_may_not_be_read_is_said():
    Path("e.yaml").write_text(GOOD)
    Path("e.yaml").chmod(0)
    # As somebody whom rights bind: root reads anything.
    drop = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534);" if os.geteuid() == 0 else ""
    Path.cwd().chmod(0o755)
    program = f"import sys; from orchestrator.experiment import loading; {drop} from pathlib import Path\ntry: loading.load_experiment(Path(sys.argv[1]))\nexcept Exception as error: print(type(error).__name__, error)"  # noqa: E501
    argv = [sys.executable, "-c", program, "e.yaml"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120, check=True)
    assert done.stdout.startswith("ConfigError e.yaml: cannot be read: Permission denied")


def test_what_never_ends_is_not_read_to_its_end():
    status, _, err = orch("plan", "/dev/zero")
    assert status == 2
    assert "larger than 1 MiB" in err


SEALED = ROOT / "tests" / "data" / "sealed" / "tables-1" / "small" / "20261122T095054224-ef056278" / "experiment.yaml"


def test_a_sealed_experiment_is_read_by_the_names_of_today(tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_text(SEALED.read_text().replace("/opt/orch/tests/testbed", str(ROOT / "tests/helpers")))
    assert "  stall: 60s\n" in path.read_text()
    assert loading.sealed(tmp_path).measure.stall_timeout == 60.0
    status, _, err = orch("plan", str(path))
    assert (status, "measure.stall: is called stall_timeout now" in err) == (2, True), err


@pytest.mark.parametrize(
    "names",
    [
        ("workload: {p2p: {peers: in-turn}}", "workload: {p2p: {peers: round-robin}}"),
        ("repeat: 3", "repetitions: 2"),
        ("workload: {deepspeed: {stage: 2, stages: 1}}", "workload: {deepspeed: {zero_stage: 2, pipeline_stages: 1}}"),
        ("jobs: [{workload: {deepspeed: {micro_batches: 2}}}]", "jobs: [{workload: {deepspeed: {microbatches: 2}}}]"),
    ],
)
def test_what_was_set_by_an_older_name_is_the_same_setting(tmp_path, names):
    settings = []
    for name in names:
        (tmp_path / "experiment.yaml").write_text(f"{name}\ntraffic: []\n")
        settings.append(of_windows(SimpleNamespace(path=tmp_path, manifest=SimpleNamespace(windows=()))))
    assert settings[0] == settings[1] != {}
