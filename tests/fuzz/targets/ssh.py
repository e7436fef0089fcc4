"""SSH configurations as `ssh -G` reads them, what is expanded in them, and known_hosts files."""

from __future__ import annotations

import base64
import functools
import random
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import SSHCertificateBuilder, SSHCertificateType

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.remote.transport import known_hosts, ssh_config
from orchestrator.remote.transport.ssh_config import SshTarget
from tests.fuzz import mutate
from tests.fuzz.target import Target

PATIENCE_S = 60.0
KEYS = (
    b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOu8EmVARczB4YH0I/d0zGbNHJtDPClMO9zurAKwJU7s",
    b"ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNu"
    b"G5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=",
    b"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDdlJnPXHn6sU0kxBHv/zfKdQ==",
)
HOSTS = (
    b"h1",
    b"*,!h2",
    b"[h1]:2222",
    b"@revoked h1",
    b"@cert-authority *.rack",
    b"h?.*",
    b"10.0.0.7,h1",
    b"|1|a73aiHce8lcF6qIVVPkUNVHOmKY=|axrmuU3UguA4mgQy4IwIQST3ygc=",
)
NAMES = ("h1", "[h1]:2222", "h2.rack", "::1", "x" * 200)
CONFIG = b"""\
Host h1 other
  HostName 10.0.0.7
  User ada
  Port 2222
  IdentityFile ~/.ssh/id_%h_%r
  IdentityFile "/tmp/a b"
  UserKnownHostsFile /tmp/known ~/.ssh/known_hosts2
  ProxyJump jump1,ada@jump2:2200
Match host h* user ada
  ConnectTimeout 5
  HostKeyAlgorithms ssh-ed25519,ecdsa-sha2-nistp256
  StrictHostKeyChecking accept-new
Host *
  ProxyCommand nc %h %p
  CertificateFile ${HOME}/x-cert.pub
  HostKeyAlias alias-%h
  HashKnownHosts yes
  IdentityAgent none
  BindAddress 127.0.0.1
"""
PRINTED = b"""\
host h1
user ada
hostname 10.0.0.7
port 2222
addressfamily any
connecttimeout none
identityfile ~/.ssh/id_%h
userknownhostsfile /tmp/known /tmp/b
stricthostkeychecking accept-new
hostkeyalgorithms ssh-ed25519,ssh-rsa
proxyjump jump1,[::1]:22
compression yes
"""
WORDS = (
    *mutate.TEXT,
    b"%h",
    b"%%",
    b"%",
    b"%C",
    b"${HOME}",
    b"${",
    b"~",
    b"~nobody",
    b"none",
    b"yes",
    b"Host *\n",
    b"Match all\n",
    b"Include x\n",
    b"Port ",
    b"ProxyJump ",
    b"[",
    b"]",
    b"@",
    b",",
    b"!",
    b"*" * 50,
    b"|1|",
    b"=",
    b"IdentityFile ",
    b"ConnectTimeout ",
    b"2147483648",
)


def _known_hosts(source: random.Random) -> bytes:
    lines = [source.choice(HOSTS) + b" " + source.choice(KEYS) for _ in range(source.randint(1, 6))]
    return mutate.havoc(source, (b"\n".join(lines) + b"\n",), WORDS)


def _look_up(data: bytes, folder: Path) -> None:
    path = folder / "known_hosts"
    path.write_bytes(data)
    blob = base64.b64decode(KEYS[0].split()[1])
    for name in NAMES:
        known = known_hosts.lookup(name, [path])
        known.judged(blob)
        known.authority(blob)
        for entry in known.entries:
            known_hosts.fingerprint(entry.blob)
            assert not known_hosts.is_certificate(entry.blob)
    verdict = known_hosts.remember("h1", blob, path, hashed=True)
    if verdict is known_hosts.Verdict.KNOWN:
        assert known_hosts.lookup("h1", [path]).judged(blob)[0] is verdict


@functools.cache
def _shown() -> tuple[bytes, ...]:
    """Certificates of hosts in their wire format, and a plain key."""
    authority = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
    host = ec.derive_private_key(7, ec.SECP256R1())
    made = [
        SSHCertificateBuilder()
        .public_key(key)
        .type(SSHCertificateType.HOST)
        .key_id(b"h")
        .valid_principals([b"h1"])
        .valid_after(0)
        .valid_before(2**40)
        .serial(1)
        .sign(authority)
        .public_bytes()
        for key in (host.public_key(), authority.public_key())
    ]
    return tuple(base64.b64decode(line.split()[1]) for line in (*made, *KEYS[:2]))


def _certificate(data: bytes, _: Path) -> None:
    """What is done with a key that a host shows, before it is believed."""
    known_hosts.is_certificate(data)
    known_hosts.certificate_holder(data)
    known_hosts.fingerprint(data)
    known_hosts.read_certificate(data).refusal("h1", ("ssh-ed25519",))


def _configuration(data: bytes, folder: Path) -> None:
    path = folder / "config"
    path.write_bytes(data if b"exec" not in data.lower() else b"")  # `Match exec` would be carried out
    target = SshTarget(name="h1", host="h1", user=None, port=None, config=path, jump=None)
    found = ssh_config.settings_of(target, Deadline.after(PATIENCE_S))
    _expand(ssh_config.Hop(target, found))


def _printed(data: bytes, _: Path) -> None:
    target = SshTarget(name="h1", host="h1", user=None, port=None, config=None, jump=None)
    _expand(
        ssh_config.Hop(target, ssh_config.parsed_settings(data.replace(b"\0", b"").decode(errors="surrogateescape")))
    )


def _expand(hop: ssh_config.Hop) -> None:
    """What reaching a host does with its settings before it opens a socket."""
    for text in (*hop.settings.identityfile, *hop.settings.certificatefile, *hop.settings.userknownhostsfile):
        try:
            known_hosts.lookup(hop.settings.known_as, [ssh_config.expanded_path(text, hop)])
        except OSError:
            continue
    if hop.settings.proxycommand:
        ssh_config.expanded(hop.settings.proxycommand, hop)
    if hop.settings.proxyjump:
        ssh_config._jump(hop.target, hop.settings.proxyjump)


TARGETS = (
    Target(
        name="certificate",
        make=lambda source: mutate.havoc(source, _shown()),
        read=_certificate,
        ours=(ValueError,),
        share=50,
    ),
    Target(name="known_hosts", make=_known_hosts, read=_look_up, ours=(), share=80),
    Target(
        name="ssh",
        make=lambda source: mutate.havoc(source, (CONFIG,), WORDS),
        read=_configuration,
        ours=(OrchError,),
        share=10,
    ),
    Target(
        name="settings",
        make=lambda source: mutate.havoc(source, (PRINTED,), WORDS),
        read=_printed,
        ours=(OrchError,),
        share=80,
    ),
)
