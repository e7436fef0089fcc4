"""known_hosts files: what their lines say of a host, and a new host's line."""

from __future__ import annotations

import base64
import fcntl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from orchestrator.remote.transport import known_hosts
from orchestrator.remote.transport.known_hosts import Verdict


def made(seed: int) -> str:
    """A public key as it stands in a file; the same in every process that names these tests."""
    return (
        Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        .public_key()
        .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        .decode()
    )


def wire(public: str) -> bytes:
    return base64.b64decode(public.split()[1])


ONE, OTHER = made(1), made(2)


@pytest.mark.parametrize(
    ("name", "hosts", "means"),
    [
        ("h", "h", True),
        ("h", "H", True),
        ("h", "g,h", True),
        ("h", "g", False),
        ("[h]:2222", "[h]:2222", True),
        ("[h]:2222", "h", False),
        ("[h]:2222", "[*]:2222", True),
        ("h.rack", "*.rack,!h.rack", False),
        ("g.rack", "!h.rack,*.rack", True),
        ("g.rack", "!h.rack", False),
        ("abc", "a?c", True),
        ("ac", "a?c", False),
        ("a" * 200, "*a" * 60 + "b", False),
        ("h", "|1|bad", False),
        ("h", "|1|!!|!!", False),
        ("h", "|2|aaaa|aaaa", False),
        ("h", "", False),
    ],
)
def test_names(name, hosts, means):
    assert known_hosts.matches(name, hosts) == means


@pytest.mark.parametrize(
    ("text", "verdict", "line"),
    [
        (f"h {ONE}", Verdict.KNOWN, 1),
        (f"h {OTHER}\nh {ONE}", Verdict.KNOWN, 2),
        (f"# h\n\nh {OTHER}", Verdict.CHANGED, 3),
        (f"g {ONE}", Verdict.NEW, None),
        (f"h {ONE}\n@revoked * {ONE}", Verdict.REVOKED, 2),
        (f"@cert-authority * {ONE}", Verdict.NEW, None),
        (f"@unheard-of * {ONE}", Verdict.NEW, None),
        (f"h ssh-ed25519 {ONE.split()[1][:-8]}", Verdict.NEW, None),
        (f"h ssh-rsa {ONE.split()[1]}", Verdict.NEW, None),
        ("h 1024 35 12345", Verdict.NEW, None),
        ("h", Verdict.NEW, None),
        ("\udcff\x00 \x01", Verdict.NEW, None),
    ],
)
def test_verdicts(tmp_path, text, verdict, line):
    path = tmp_path / "known_hosts"
    path.write_text(text, errors="surrogateescape")
    found, entry = known_hosts.lookup("h", [tmp_path / "missing", path]).judged(wire(ONE))
    assert (found, entry and entry.line) == (verdict, line)


def test_authorities(tmp_path):
    path = tmp_path / "known_hosts"
    path.write_text(f"@cert-authority *.rack {ONE} of the rack\nh.rack {OTHER}\n")
    host = known_hosts.lookup("h.rack", [path])
    assert host.has_authority
    assert (host.authority(wire(ONE)), host.authority(wire(OTHER))) == (True, False)
    assert host.kinds == ("ssh-ed25519",)
    assert not known_hosts.lookup("elsewhere", [path]).has_authority


@pytest.mark.parametrize("hashed", [True, False])
def test_a_new_key_is_remembered_once(tmp_path, hashed):
    path = tmp_path / "new" / "known_hosts"
    together = threading.Barrier(8)

    def remember(_: int) -> Verdict:
        together.wait(60)
        return known_hosts.remember("[h]:22", wire(ONE), path, hashed=hashed)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(remember, range(8))) == {Verdict.KNOWN}
    assert path.read_text().count("\n") == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().startswith("|1|" if hashed else "[h]:22 ")
    found = subprocess.run(["ssh-keygen", "-F", "[h]:22", "-f", path], capture_output=True, text=True, check=True)
    assert ONE.split()[1] in found.stdout
    assert known_hosts.remember("[h]:22", wire(OTHER), path, hashed=hashed) is Verdict.CHANGED


def test_whoever_keeps_the_file_locked_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(known_hosts, "LOCK_S", 0.1)
    path = tmp_path / "known_hosts"
    path.touch()
    with path.open() as reader:  # to read is enough
        fcntl.flock(reader, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another process has it locked"):
            known_hosts.remember("h", wire(ONE), path, hashed=False)
    assert known_hosts.remember("h", wire(ONE), path, hashed=False) is Verdict.KNOWN


def test_a_line_without_an_end_stays_whole(tmp_path):
    path = tmp_path / "known_hosts"
    path.write_text(f"g {ONE}")
    known_hosts.remember("h", wire(OTHER), path, hashed=False)
    assert path.read_text() == f"g {ONE}\nh {OTHER}\n"


def test_a_fingerprint_is_ssh_keygens(tmp_path):
    (tmp_path / "key.pub").write_text(ONE)
    said = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
    assert known_hosts.fingerprint(wire(ONE)) == f"ssh-ed25519 {said.stdout.split()[1]}"


def test_a_damaged_certificate_is_a_mistake_and_no_more(tmp_path):
    for name in ("authority", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    signing = ["ssh-keygen", "-q", "-s", tmp_path / "authority", "-h", "-I", "x", "-n", "h", tmp_path / "host.pub"]
    subprocess.run(signing, check=True)
    blob = wire((tmp_path / "host-cert.pub").read_text())
    assert known_hosts.read_certificate(blob).refusal("h", ["ssh-ed25519"]) is None
    assert known_hosts.read_certificate(blob).authority == wire((tmp_path / "authority.pub").read_text())
    for at in range(len(blob)):
        for damaged in (blob[:at], blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]):
            with pytest.raises(ValueError):
                known_hosts.read_certificate(damaged)
