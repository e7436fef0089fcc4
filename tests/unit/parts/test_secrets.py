"""What looks like a secret is refused where it would be recorded; what env_from brings is recorded by name alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from orchestrator.core import secret_looks
from orchestrator.core.errors import ConfigError
from orchestrator.execution import provenance
from orchestrator.experiment import loading, plan
from orchestrator.parts import secret_env
from orchestrator.parts.launch import Launch
from orchestrator.store.manifests.coding import encoded
from tests.helpers.experiments import orch
from workloads.rank.external.command import with_values

# Put together here, so that nothing that scans this file takes them for real ones.
TOKENS = [
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2c3" * 6,
    "glpat-" + "a1B2" * 5,
    "xoxb-" + "1234567890-abcdef",
    "sk-" + "proj-" + "a1B2" * 8,
    "hf_" + "a1B2" * 9,
    "AIza" + "a1B2c" * 7,
    "eyJ" + "hbGciOiJI" + ".eyJ" + "zdWIiOiIx" + ".abc",
    "-----BEGIN " + "RSA PRIVATE KEY-----\nabc\n",
    "http://user:hunter2@proxy:3128",
]


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "WANDB_API_KEY",
        "OPENAI_KEY",
        "DB_PASSWD",
        "apiKey",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "my.secret",
        "SSH_KEY_PASSPHRASE",
        "MYSQL_PWD",
        "DB_PASS",
        "SSHPASS",
        "GITHUB_PAT",
        "REDIS_AUTH",
        "AZURE_STORAGE_SAS",
        "dbPassword",
        "authToken",
        "--api-key",
        "--token",
        "--db-pass",
        "NEW_PASSWORD",
        "MODEL_SECRET",
        "AccountKey",
    ],
)
def test_names_of_secrets(name):
    assert secret_looks.name_looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_IB_HCA",
        "OMP_NUM_THREADS",
        "TOKENIZERS_PARALLELISM",
        "MONKEY",
        "MAX_TOKENS",
        "KEYBOARD",
        "PWD",
        "SECRETARY",
        "HF_HOME",
        "CUDA_VISIBLE_DEVICES",
        "OLDPWD",
        "SSH_AUTH_SOCK",
        "--tokenizer",
        "monkey",
        "keyboard",
        "passes",
        "--eos-token",
        "--pad_token",
        "FORWARD_PASS",
        "BYPASS",
        "COMPASS",
        "--author",
        "AUTHORITY",
        "--pattern",
        "PATH",
        "PATIENCE",
        "--key-dim",
        "--num-key-value-heads",
        "--token-file",
        "--sort-key",
        "public_key",
        "passive",
        "--tokens-per-second",
        "PASSWORD_FILE",
        "seconds_per_token",
        "TURKEY",
        "hockey",
        "spat",
        "oauthor",
    ],
)
def test_names_of_other_things(name):
    assert not secret_looks.name_looks_secret(name)


@pytest.mark.parametrize("token", TOKENS)
def test_values_of_secrets(token):
    assert secret_looks.value_looks_secret(token)
    assert secret_looks.value_looks_secret(f"Bearer {token}")
    assert token not in secret_looks.masked(f"--flag {token}")


@pytest.mark.parametrize(
    "value",
    ["=mlx5_0:1", "sk-learn", "http://proxy:3128", "/opt/a:/opt/b", "hf_cache", "eyJ", "task-0123456789-abcdefghij"],
)
def test_values_of_other_things(value):
    assert not secret_looks.value_looks_secret(value)


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("workload.ddp.env.HF_TOKEN=hunter2", "workload.ddp.env.HF_TOKEN=***"),
        ("--set=workload.ddp.env.HF_TOKEN=hunter2", "--set=***"),
        ("workload.ddp.env={HF_TOKEN: hunter2}", "workload.ddp.env=***"),
        ('workload.ddp.env={"HF_TOKEN": "hunter2"}', "workload.ddp.env=***"),
        ("measure.iterations=50", "measure.iterations=50"),
        ("exp.yaml", "exp.yaml"),
        ("traffic.0.iperf={from: h1, to: h2, load: 1gbit}", "traffic.0.iperf={from: h1, to: h2, load: 1gbit}"),
        ("workload.ddp.env_from=[HF_TOKEN]", "workload.ddp.env_from=[HF_TOKEN]"),
        (f"x={TOKENS[1]}", "x=***"),
        ("workload.command.argv=[x.py, --api-key, hunter2]", "workload.command.argv=***"),
        ("MYSQL_PWD=hunter2", "MYSQL_PWD=***"),
        ("-DDB_PASS=hunter2", "-DDB_PASS=***"),
        ("--password=hunter2", "--password=***"),
        ("train --api-key hunter2 --lr 0.1", "train --api-key *** --lr 0.1"),
        ("Authorization: Basic aHVudGVyMg", "Authorization:***"),
        ("Bearer a1b2c3d4e5", "Bearer ***"),
        (
            "https://x.blob.core.windows.net/c?sv=1&sig=a%2Fb&se=2",
            "https://x.blob.core.windows.net/c?sv=1&sig=***&se=2",
        ),
        ("--eos-token=</s>", "--eos-token=</s>"),
        ("--key /etc/host.pem --lr 1", "--key /etc/host.pem --lr 1"),
        ("require_auth=true", "require_auth=true"),
        ("the bearer of instruments", "the bearer of instruments"),
    ],
)
def test_command_lines_are_recorded_without_secrets(word, shown):
    assert secret_looks.masked(word) == shown


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("train --api-key hunter2 --lr 1", "train --api-key *** --lr 1"),
        ("train --token hunter2", "train --token ***"),
        ("train --token --lr 1", "train --token --lr 1"),
        ("train --password=hunter2 -p x", "train --password=*** -p x"),
        ("train --tokenizer gpt2 --eos-token </s> --passes 3", "train --tokenizer gpt2 --eos-token </s> --passes 3"),
        ("train --auth none --token-file ~/t --monkey x", "train --auth none --token-file ~/t --monkey x"),
        ("orch run e.yaml --set api_key=hunter2", "orch run e.yaml --set api_key=***"),
    ],
)
def test_words_behind_an_option_are_masked_with_it(words, shown):
    assert " ".join(secret_looks.masked_all(words.split())) == shown


# Experiments


WORKLOADS = {
    "ddp": {"model": "resnet50"},
    "fsdp": {"model": "resnet50"},
    "p2p": {"model": "resnet50", "strategy": "ring"},
    "deepspeed": {"model": "resnet50", "zero_stage": 1},
    "horovod": {"model": "resnet50"},
    "tensorflow": {"model": "resnet50", "strategy": "multi-worker-mirrored"},
    "kungfu": {"model": "resnet50"},
    "collective": {"operations": ["all-reduce"], "sizes": ["1mb"]},
    "ptd": {"model": "gpt2", "data": 3, "compute_time": "300ms"},
    "moe": {"model": "gpt2", "experts": 3, "compute_time": "300ms"},
    "chakra": {"traces": str(Path(__file__).parents[3] / "playbooks/recordings/resnet50-ddp")},
    "command": {"argv": ["{python}", "/opt/x.py"], "iterations": {"pattern": "step"}},
}


@pytest.fixture
def written(tmp_path):
    """Writes an experiment; its path, for the command line."""

    def write(name: str = "ddp", **more) -> str:
        path = tmp_path / "e.yaml"
        data = {
            "name": "t",
            "testbed": {"local": {"hosts": 3, "link": "1gbit", "scale": 10}},
            "workload": {name: {**WORKLOADS[name], **more}},
            "measure": {"iterations": 10},
        }
        path.write_text(yaml.safe_dump(data))
        return str(path)

    return write


def test_every_workload_is_tried():
    from orchestrator.parts import registry

    assert set(WORKLOADS) == set(registry.parts_of("workload"))


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("env", [{"HF_TOKEN": "hunter2"}, {"HF_TOKEN": 22172}, {"PLAIN": "sk-" + "hunter2" * 4}])
def test_a_secret_in_env_is_refused_and_not_shown(written, name, env):
    status, out, err = orch("plan", written(name, env=env))
    assert (status, out) == (2, "")
    (variable,) = env
    assert f"workload.{name}.env.{variable}: by its" in err
    assert f"env_from: [{variable}]" in err
    assert "hunter2" not in err
    assert "22172" not in err


@pytest.mark.parametrize(
    "option",
    ["workload.ddp.env.HF_TOKEN=hunter2", "workload.ddp.env={HF_TOKEN: hunter2}", "workload.ddp.env.X_KEY=[hunter2"],
)
def test_a_secret_by_set_is_refused_and_not_shown(written, option, tmp_path):
    for command in (["plan"], ["run", "--results", str(tmp_path / "r")]):
        status, out, err = orch(*command, written(), "--set", option)
        assert (status, out) == (2, "")
        assert "hunter2" not in err
        assert "***" in err
    assert not (tmp_path / "r").exists()


def test_a_secret_as_an_axis_is_refused_and_not_shown(written, tmp_path):
    written()
    path = tmp_path / "s.yaml"
    path.write_text("name: s\naxes:\n  workload.ddp.env.HF_TOKEN: [hunter2]\nexperiment: e.yaml\n")
    status, out, err = orch("plan", str(path), "--results", str(tmp_path / "r"))
    assert (status, out) == (2, "")
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--api-key", "hunter2"], 3),
        (["--password=hunter2"], 2),
        (["-c", "x --token hunter2"], 3),
        (["https://ada:hunter2@h/"], 2),
        (["Authorization: Basic hunter2"], 2),
    ],
)
def test_a_secret_by_the_option_ahead_is_refused(written, words, place):
    status, _, err = orch("plan", written("command", argv=["{python}", "x.py", *words]))
    assert status == 2
    assert f"argv.{place}: this looks like a secret" in err
    assert "{env:NAME}" in err
    assert "hunter2" not in err


def test_words_of_a_command_take_what_env_from_brings(written, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    argv = ["{python}", "-m", "x", "--tokenizer", "gpt2", "--api-key", "{env:WANDB_API_KEY}", "--x={{env:Y}}"]
    path = written("command", argv=argv, env_from=["WANDB_API_KEY"])
    status, out, err = orch("plan", path)
    assert (status, err) == (0, "")
    assert "hunter2" not in out
    assert [with_values(word) for word in argv[5:]] == ["--api-key", "hunter2", "--x={env:Y}"]
    status, _, err = orch("plan", written("command", argv=argv))
    assert status == 2
    assert "argv.6: env_from brings no WANDB_API_KEY; accepted: env_from: [WANDB_API_KEY] beside argv" in err


@pytest.mark.parametrize("env", [{"MYSQL_PWD": "hunter2"}, {"DB_PASS": "hunter2"}])
def test_more_names_of_env_are_refused(written, env):
    status, _, err = orch("plan", written(env=env))
    assert (status, "hunter2" in err) == (2, False)


@pytest.mark.parametrize("option", [[], ["--set", "api_key=hunter2"]])
def test_a_variable_of_a_file_is_no_place_for_a_secret(written, option):
    path = Path(written("command", argv=["{python}", "x.py", "$api_key"]))
    default = "''" if option else "hunter2"
    path.write_text(path.read_text() + f"vars: {{api_key: {default}}}\n")
    status, out, err = orch("plan", str(path), *option)
    assert (status, out, "hunter2" in err) == (2, "", False)
    assert "vars.api_key: this looks like a secret, and variables are recorded" in err


def test_switches_are_no_secrets(written):
    assert orch("plan", written(env={"REQUIRE_AUTH": "true", "HF_TOKEN": "", "NO_AUTH": "1"}))[0] == 0


def test_a_secret_in_a_command_is_refused(written):
    status, _, err = orch("plan", written("command", argv=["{python}", "x.py", "--token", TOKENS[1]]))
    assert status == 2
    assert "argv.3: this looks like a secret" in err
    assert TOKENS[1] not in err


@pytest.mark.parametrize(
    ("env_from", "told"),
    [
        (["A B"], "no name of a variable"),
        ({"HF_TOKEN": TOKENS[1]}, "says where a value comes from"),
        ({"HF_TOKEN": "not-a-name"}, "says where a value comes from"),
        ({"HF_TOKEN": 5}, "says where a value comes from"),
        ([5], "list"),
        ("HF_TOKEN", "list"),
    ],
)
def test_mistakes_in_env_from(written, env_from, told):
    status, _, err = orch("plan", written(env_from=env_from))
    assert status == 2
    assert "workload.ddp.env_from" in err
    assert told in err
    assert TOKENS[1] not in err


def test_a_variable_has_one_origin(written):
    status, _, err = orch("plan", written(env={"PLAIN": "1"}, env_from=["PLAIN"]))
    assert status == 2
    assert "workload.ddp.env_from.PLAIN: stands in env, too" in err


@pytest.mark.parametrize("name", WORKLOADS)
def test_of_what_env_from_brings_names_alone_are_recorded(written, name, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    path = written(name, env_from=["WANDB_API_KEY"])
    experiment, _ = loading.load_experiment(Path(path))
    (run,) = plan.build(experiment)
    ranks = [launch for launch in run.launches() if launch.rank is not None]
    assert ranks
    assert {tuple(launch.env_from.items()) for launch in ranks} == {(("WANDB_API_KEY", "WANDB_API_KEY"),)}
    written_down = [
        loading.resolved_text(experiment),
        json.dumps(plan.plan_data(run)),
        encoded(provenance.collect(run, sys.argv, run="r1")).decode(),
        "".join(orch("plan", path)[1:]),
    ]
    for text in written_down:
        assert "WANDB_API_KEY" in text
        assert "hunter2" not in text
    assert secret_env.filled(ranks[0], secret_env.values(run.launches())) == {"WANDB_API_KEY": "hunter2"}


def test_an_experiment_without_it_is_the_same_as_ever(written):
    assert "env_from" not in loading.resolved_text(loading.load_experiment(Path(written()))[0])


# Where values come from


def rank(**env_from: str) -> Launch:
    return Launch(name="r", node="h1", role="rank", argv=("x",), env_from=env_from)


def test_values_from_a_variable_and_from_files(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MINE", " a b ")
    (tmp_path / "key").write_text("line one\nline two\n")
    launches = [rank(A="MINE", B=str(tmp_path / "key")), rank(A="~/key")]
    known = secret_env.values(launches)
    assert secret_env.filled(launches[0], known) == {"A": " a b ", "B": "line one\nline two"}
    assert secret_env.filled(launches[1], known) == {"A": "line one\nline two"}
    assert secret_env.lacking(launches) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "there is no such file"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"a\0b", "zero byte"),
        (b"\xff", "no text"),
        (b"x" * 70_000, "larger than 64 KiB"),
    ],
)
def test_what_a_file_cannot_give(tmp_path, content, told):
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    ((what, remedy),) = secret_env.lacking([rank(A=str(path))])
    assert told in what
    assert "env_from" in remedy
    with pytest.raises(ConfigError, match=told):
        secret_env.values([rank(A=str(path))])


def test_a_file_that_is_nowhere_is_told_with_where_it_was_looked_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((what, _),) = secret_env.lacking([rank(A="keys/none")])
    assert what.endswith(f"no such file beside the file that names it, nor at {tmp_path / 'keys/none'}")
    ((what, _),) = secret_env.lacking([rank(A="/keys/none")])
    assert what.endswith("/keys/none cannot be read: there is no such file")


def test_a_variable_that_is_not_there_is_told_before_anything_starts(written, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    path = written(env_from=["WANDB_API_KEY"])
    told = "env_from: WANDB_API_KEY: there is no variable WANDB_API_KEY in the environment of this command"
    assert told in orch("plan", path)[2]
    status, _, err = orch("run", path, "--results", str(tmp_path / "r"))
    assert status == 1
    assert told in err
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "word",
    [
        "X-Api-Key: abcdef123",
        "X-Auth-Token: abcdef123",
        '{"size": 5, "api_key": "abcdef123"}',
        "curl -H 'X-Api-Key: abcdef123' http://h",
        "redis://:abcdef123@h:6379/0",
        "apikey: abcdef123",
        "https://h/o?X-Amz-Expires=60&X-Amz-Signature=abcdef123&x=1",
        "npm_" + "abcdef123" * 4,
    ],
)
def test_headers_entries_of_json_and_signed_addresses_are_hidden(word):
    assert secret_looks.secret_words([word]) == [0]
    assert "abcdef123" not in secret_looks.masked(word)


@pytest.mark.parametrize(
    "words",
    [
        ["--dataset-key", "train"],
        ["--rng-key", "12345"],
        ["--video-token", "<video>"],
        ["optimizer: adam"],
        ['{"eos_token": "<s>", "max_tokens": 500, "key": "image"}'],
        ["http://h:8080/key"],
        ["s3://b/key:5"],
    ],
)
def test_what_is_no_header_and_no_secret_is_left_alone(words):
    assert secret_looks.masked_all(words) == words


@pytest.mark.parametrize("text", ["ts", "a-", "-a.", "--a ", "a: ", "x=", "/", "-----BEGIN ", "eyJ", "://", "bearer "])
def test_a_long_text_costs_no_more_than_its_length(text):
    long = "API_KEY=" + text * (1 << 18) + "\n"
    assert secret_looks.masked(long)
    assert secret_looks.masked(long[8:])
    assert secret_looks.secret_words(["--api-key", long]) == [1]
