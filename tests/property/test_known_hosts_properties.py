"""Generated known_hosts files: the lines that name a host are those that `ssh-keygen -F` finds."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.remote.transport import known_hosts

EXAMPLES = int(os.environ.get("ORCH_SSH_EXAMPLES", "60"))
KEYS = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOu8EmVARczB4YH0I/d0zGbNHJtDPClMO9zurAKwJU7s",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKhiAeYx+C1xVPU4ikh7Jy+Q6nQBTt7yYacWJ6T08foQ",
)
NAMES = ("h1", "h2.rack", "10.0.0.7", "[h1]:2222", "[::1]:22", "alias")
HASHED = ("|1|a73aiHce8lcF6qIVVPkUNVHOmKY=|axrmuU3UguA4mgQy4IwIQST3ygc=", "|1|||", "|1|YQ==|YQ==", "|x")

pattern = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(["*", "h?", "h*", "*.rack", "10.0.0.?", "[*]:2222", "[h1]:*", "H1", "", "?", "h1*", "**1"]),
    st.text("h12.*?[]:!-", max_size=6),
)
patterns = st.tuples(st.sampled_from(["", "", "", "!"]), pattern).map("".join)
hosts = st.one_of(st.lists(patterns, min_size=1, max_size=4).map(",".join), st.sampled_from(HASHED))
line = st.tuples(
    st.sampled_from(["", "", "", " ", "\t", "# ", "@revoked ", "@cert-authority\t", "@other ", "@revoked"]),
    hosts,
    st.sampled_from([" ", "\t ", "  "]),
    st.sampled_from([*KEYS, KEYS[0] + " a comment", KEYS[1] + " #"]),
).map("".join)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("known") / "known_hosts"


@settings(max_examples=EXAMPLES)
@given(lines=st.lists(st.one_of(line, st.just("")), max_size=6), name=st.sampled_from(NAMES), hashed=st.booleans())
@example(lines=[f"@revoked\th1 {KEYS[0]}", f"@revoked\th1 {KEYS[1]}".replace(" ", "\t")], name="h1", hashed=False)
@example(lines=[f"!h1,* {KEYS[0]}", f"*,!h1 {KEYS[1]}", f"*,!h2.rack {KEYS[0]}"], name="h1", hashed=False)
def test_the_lines_that_name_a_host(path, lines, name, hashed):
    path.write_text("".join(f"{line}\n" for line in lines))
    if hashed:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", path], check=False, capture_output=True)
    found = subprocess.run(["ssh-keygen", "-F", name, "-f", path], capture_output=True, text=True, check=False)
    expected = [int(number) for number in re.findall(r"^# Host .* found: line (\d+)", found.stdout, re.MULTILINE)]
    assert [entry.line for entry in known_hosts.lookup(name, [path]).entries] == expected


@settings(max_examples=10 * EXAMPLES)
@given(
    data=st.one_of(st.binary(max_size=300), st.lists(line, max_size=4).map("\n".join).map(str.encode)),
    cut=st.integers(0, 300),
)
def test_anything_may_stand_there(path, data, cut):
    path.write_bytes(data[:cut] + b"\xff" + data[cut:])
    for entry in known_hosts.lookup("h1", [path]).entries:
        assert known_hosts.fingerprint(entry.blob).startswith(entry.kind)
