"""Sites as they are set up: jump hosts that refuse or drop, certificates, revoked, changed and new keys.

Where OpenSSH's own client is there to be asked, it must come to the same verdict.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.agents.agent.proc import command_line, descendants, process_table
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, TransportError
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.transport import logins, ssh
from orchestrator.remote.transport.ssh_config import SshTarget
from tests.helpers.sshd_help import PATIENCE_S, USER, keygen, signed, site

pytestmark = pytest.mark.testbed


def connect(target: SshTarget, *, within_s: float = PATIENCE_S, **options) -> ssh.SshChannel:
    return ssh.connect(target, python=sys.executable, deadline=Deadline.after(within_s), **options)


def reaches(target: SshTarget) -> bool:
    channel = connect(target, within_s=4 * PATIENCE_S)
    try:
        return True
    finally:
        channel.close()


def host(name: str, port: int, *lines: str) -> str:
    return "\n".join([f"Host {name}", "HostName 127.0.0.1", f"Port {port}", *lines])


@pytest.fixture
def place(tmp_path):
    return site(tmp_path)


@pytest.fixture
def plain(place):
    """A site with one server, `h`."""
    with place.sshd("h") as port:
        place.write(host("h", port), known=f"[127.0.0.1]:{port} {place.public('h')}\n")
        yield place, port


def same_as_ssh(place, target) -> bool:
    """Whether the host is reached; OpenSSH has to agree."""
    by_ssh = place.ssh(target.host).returncode == 0
    try:
        ours = reaches(target)
    except OrchError:
        ours = False
    assert ours == by_ssh
    return ours


class TestKeys:
    """Lines of known_hosts."""

    @pytest.mark.parametrize(
        ("lines", "reached"),
        [
            ("{name} {key}", True),
            ("127.0.0.1 {key}", True),  # without the port
            ("[127.0.0.*]:* {key}", True),
            ("!{name},* {key}", True),  # by the name without the port
            ("!{name},!127.0.0.1,* {key}", False),
            ("other,{name} {key} a comment", True),
            ("", False),
            ("{name} {other}", False),
            ("{name} {other}\n{name} {key}", True),
            ("# {name} {key}\n\n   \n{name}\n{name} ssh-ed25519\n{name} ssh-ed25519 !!!\n  {name} {key}", True),
            ("{name} ssh-new AAAA\n{name} ssh-rsa AAAA\n@other {name} {key}", False),
            ("@cert-authority * {other}\n{name} {key}", True),
            ("@cert-authority * {key}", False),
            ("@revoked * {key}\n{name} {key}", False),
            ("{name} {key}\n@revoked {name} {key}", False),
            ("@revoked other {key}\n{name} {key}", True),
            ("@revoked {name} {other}\n{name} {key}", True),
        ],
    )
    def test_they_mean_what_they_mean_to_ssh(self, plain, lines, reached):
        place, port = plain
        keygen(place.folder / "stranger")
        words = {"name": f"[127.0.0.1]:{port}", "key": place.public("h"), "other": place.public("stranger")}
        place.known_hosts.write_text(lines.format(**words) + "\n")
        assert same_as_ssh(place, place.target("h")) == reached

    def test_hashed_names(self, plain):
        place, _ = plain
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", place.known_hosts], check=True, capture_output=True)
        assert place.known_hosts.read_text().startswith("|1|")
        assert reaches(place.target("h"))

    def test_an_alias_stands_for_the_name(self, place):
        with place.sshd("h") as port:
            place.write(host("h", port, "HostKeyAlias rack"), known=f"rack {place.public('h')}\n")
            assert same_as_ssh(place, place.target("h"))
            place.write(host("h", port, "HostKeyAlias rack"), known=f"[127.0.0.1]:{port} {place.public('h')}\n")
            assert not same_as_ssh(place, place.target("h"))

    def test_the_known_type_is_asked_for(self, place):
        """A server with keys of two types, of which only the less liked one is known."""
        keygen(place.folder / "rsa", "rsa")
        with place.sshd("h", f"HostKey {place.folder / 'rsa'}") as port:
            place.write(host("h", port), known=f"[127.0.0.1]:{port} {place.public('rsa')}\n")
            assert same_as_ssh(place, place.target("h"))

    def test_a_revoked_key_is_told(self, plain):
        place, _ = plain
        place.known_hosts.write_text(f"@revoked * {place.public('h')}\n")
        with pytest.raises(TransportError, match=rf"is revoked by {place.known_hosts}:1"):
            connect(place.target("h"))

    def test_the_remedy_for_a_changed_key_is_one(self, place):
        keygen(place.folder / "old")
        with place.sshd("h") as port:
            known = f"other {place.public('old')}\nh.mgmt,[127.0.0.1]:{port} {place.public('old')}\n"
            place.write(host("h", port), known=known)
            with pytest.raises(TransportError, match=rf"has changed.*{place.known_hosts}:2 has") as caught:
                connect(place.target("h"))
            remedy = caught.value.hint.partition("anew: ")[2]
            by_ssh = [line for line in place.ssh("h").stderr.splitlines() if "ssh-keygen -f" in line]
            assert [shlex.split(line) for line in by_ssh] == [shlex.split(remedy)]
            subprocess.run(shlex.split(remedy), check=True, capture_output=True)
            with pytest.raises(TransportError, match="is not known"):
                connect(place.target("h"))


class TestNewKeys:
    """StrictHostKeyChecking."""

    @pytest.mark.parametrize("hashed", ["yes", "no"])
    def test_accept_new_remembers_and_refuses_a_change(self, place, hashed):
        options = ["StrictHostKeyChecking accept-new", f"HashKnownHosts {hashed}"]
        with place.sshd("h") as port:
            place.write(host("h", port), known="# no end of line", options=options)
            place.known_hosts.write_text("# no end of line")
            with ThreadPoolExecutor(4) as pool:
                assert all(pool.map(reaches, [place.target("h")] * 4))
            lines = place.known_hosts.read_text().splitlines()
            assert len(lines) == 2  # one, however many came at once
            assert lines[1].startswith("|1|" if hashed == "yes" else f"[127.0.0.1]:{port} ")
            assert place.ssh("h", "-o", "StrictHostKeyChecking=yes").returncode == 0
            keygen(place.folder / "old")
            place.known_hosts.write_text(f"[127.0.0.1]:{port} {place.public('old')}\n")
            with pytest.raises(TransportError, match="has changed"):
                connect(place.target("h"))

    def test_no_is_accept_new_and_told_once(self, place, caplog):
        ssh._tell.cache_clear()
        with place.sshd("h") as port:
            place.write(host("h", port), options=["StrictHostKeyChecking no"])
            for _ in range(2):
                deadline = Deadline.after(4 * PATIENCE_S)
                ssh.reach(place.target("h"), program=False, python=sys.executable, deadline=deadline).close()
            assert caplog.text.count("StrictHostKeyChecking no is taken as accept-new") == 1
            keygen(place.folder / "old")
            place.known_hosts.write_text(f"[127.0.0.1]:{port} {place.public('old')}\n")
            with pytest.raises(TransportError, match="has changed"):
                connect(place.target("h"))

    def test_a_file_that_cannot_be_written(self, place):
        with place.sshd("h") as port:
            place.write(host("h", port), options=["StrictHostKeyChecking accept-new"])
            place.known_hosts.unlink()
            place.known_hosts.symlink_to("/proc/version")
            with pytest.raises(TransportError, match="cannot be kept in"):
                connect(place.target("h"))


class TestCertificates:
    """Host certificates, whose authority a line names."""

    @pytest.fixture
    def certified(self, place):
        """Call it with options of ssh-keygen; the server shows such a certificate, and only its authority is known."""
        keygen(place.folder / "authority")
        servers = []

        def serve(*options: str, kind: str = "ed25519", authority: str = "authority"):
            keygen(place.folder / "h", kind)
            certificate = signed(place.folder / "h", place.folder / authority, *options)
            server = place.sshd("h", f"HostCertificate {certificate}")
            port = server.__enter__()
            servers.append(server)
            place.write(host("h", port), known=f"@cert-authority [127.0.0.1]:* {place.public('authority')}\n")
            return place.target("h")

        yield serve
        for server in servers:
            server.__exit__(None, None, None)

    @pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
    def test_a_good_one_is_trusted(self, place, certified, kind):
        assert same_as_ssh(place, certified("-n", "127.0.0.1", kind=kind))

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("-n", "127.0.0.?"), "it is for"),
            (("-n", "127.0.0.2"), "it is for 127.0.0.2, not for 127.0.0.1"),
            (("-n", "127.0.0.1", "-V", "20200101:20200102"), "it has expired"),
            (("-n", "127.0.0.1", "-V", "20900101:20910101"), "it is not valid yet"),
            (("-n", "127.0.0.1", "-O", "critical:x=y"), "it has critical options"),
        ],
    )
    def test_a_bad_one_is_refused(self, place, certified, options, said):
        target = certified(*options)
        assert not same_as_ssh(place, target)
        with pytest.raises(TransportError, match=f"is not known .*of its certificate: {said}"):
            connect(target)

    def test_anything_else_about_it_is_as_for_ssh(self, place, certified):
        keygen(place.folder / "stranger")
        target = certified("-n", "other,127.0.0.1")
        known = place.known_hosts.read_text()
        assert same_as_ssh(place, target)
        for line in (f"@revoked * {place.public('authority')}\n", f"@revoked * {place.public('h')}\n"):
            place.known_hosts.write_text(known + line)
            assert not same_as_ssh(place, target)
        place.known_hosts.write_text(f"@cert-authority * {place.public('stranger')}\n")
        assert not same_as_ssh(place, target)
        place.known_hosts.write_text(f"* {place.public('h')}\n")  # the key by itself
        assert same_as_ssh(place, target)

    def test_a_signature_that_the_settings_leave_out(self, place, certified):
        target = certified("-n", "127.0.0.1")
        with place.config.open("a") as config:
            config.write("CASignatureAlgorithms rsa-sha2-512\n")
        assert not same_as_ssh(place, target)


class TestJumps:
    """Hosts behind others."""

    @pytest.fixture
    def two(self, place):
        """`h` behind `outer` and `inner`; gives the site and a way to write its files."""
        with place.sshd("h") as h, place.sshd("inner") as inner, place.sshd("outer") as outer:
            ports = {"h": h, "inner": inner, "outer": outer}
            known = {name: f"[127.0.0.1]:{port} {place.public(name)}\n" for name, port in ports.items()}

            def write(*lines: str, **changed: str) -> None:
                blocks = [host(name, port) for name, port in ports.items()]
                place.write(*lines, *blocks, known="".join({**known, **changed}.values()))

            write()
            yield place, write, ports

    def test_one_behind_the_other(self, two):
        place, write, _ = two
        assert reaches(place.target("h", jump="outer,inner"))
        write("Host h\nProxyJump inner\nHost inner\nProxyJump outer")
        assert same_as_ssh(place, place.target("h"))

    def test_the_one_whose_key_is_wrong_is_blamed(self, two):
        place, write, ports = two
        keygen(place.folder / "old")
        write(inner=f"[127.0.0.1]:{ports['inner']} {place.public('old')}\n")
        with pytest.raises(TransportError, match="has changed") as caught:
            connect(place.target("h", jump="outer,inner"))
        assert caught.value.node == "jump host inner"
        write(outer="")
        with pytest.raises(TransportError, match="is not known") as caught:
            connect(place.target("h", jump="outer,inner"))
        assert caught.value.node == "jump host outer"
        accept = shlex.split(caught.value.hint.partition("with: ")[2])
        accept[1:1] = ["-o", "StrictHostKeyChecking=accept-new", "-o", "BatchMode=yes"]
        subprocess.run(accept, check=True, capture_output=True, timeout=PATIENCE_S)
        assert reaches(place.target("h", jump="outer,inner"))

    def test_one_that_forwards_nothing(self, place):
        with place.sshd("h") as port, place.sshd("gate", "AllowTcpForwarding no") as gate:
            known = "".join(f"[127.0.0.1]:{p} {place.public(name)}\n" for name, p in (("h", port), ("gate", gate)))
            place.write(host("h", port), host("gate", gate), known=known)
            with pytest.raises(TransportError, match="lets no connection through") as caught:
                connect(place.target("h", jump="gate"))
            assert caught.value.node == "jump host gate"
            assert "AllowTcpForwarding" in caught.value.hint

    def test_a_host_that_does_not_answer_behind_one(self, two):
        place, _, _ = two
        with pytest.raises(TransportError, match="cannot be reached from jump host outer") as caught:
            connect(place.target("h", jump="outer", port=1))
        assert caught.value.node == "h"

    @pytest.mark.parametrize(
        ("at_once", "hosts"),
        [(logins.AT_ONCE, 10), (64, 10), (logins.AT_ONCE, 30)],
        ids=["few-at-a-time", "all-at-once", "many-hosts"],
    )
    def test_one_that_drops_logins(self, place, monkeypatch, at_once, hosts):
        """Hosts behind a jump host that lets two log in at a time; all at once too, by coming again."""
        monkeypatch.setattr(logins, "AT_ONCE", at_once)
        monkeypatch.setattr(logins, "_gates", {})
        with place.sshd("h") as port, place.sshd("gate", "MaxStartups 2:100:3") as gate:
            known = "".join(f"[127.0.0.1]:{p} {place.public(name)}\n" for name, p in (("h", port), ("gate", gate)))
            place.write(host("h", port), host("gate", gate), known=known)
            with ThreadPoolExecutor(hosts) as pool:
                assert all(pool.map(reaches, [place.target("h", jump="gate")] * hosts))
        assert "MaxStartups" in (place.folder / "gate.log").read_text()


class TestSilence:
    """A jump host that stands still, with connections through it."""

    def test_it_is_named_and_the_hosts_behind_it_are_not_blamed(self, place, tmp_path):
        with place.sshd("h") as port, place.sshd("gate") as gate, contextlib.ExitStack() as closing:
            known = "".join(f"[127.0.0.1]:{p} {place.public(name)}\n" for name, p in (("h", port), ("gate", gate)))
            place.write(host("h", port), host("gate", gate), known=known)
            ways = {"g1": "gate", "g2": "gate", "h1": None}
            clients = {name: self.client(place.target("h", name=name, jump=jump)) for name, jump in ways.items()}
            for client in clients.values():
                closing.callback(client.close, Deadline.after(PATIENCE_S))
                client.hello(Deadline.after(PATIENCE_S), folder=str(tmp_path / client.node.name))
            for pid in self.processes_of(place.folder / "gate.conf"):
                os.kill(pid, signal.SIGSTOP)
                closing.callback(os.kill, pid, signal.SIGCONT)
            for name in ("g1", "g2"):
                with pytest.raises(TransportError, match="jump host gate, which leads to g1, g2: nothing") as caught:
                    clients[name].run(["true"], Deadline.after(PATIENCE_S))
                assert caught.value.node is None
            assert clients["h1"].run(["echo", "here"], Deadline.after(PATIENCE_S)).stdout == "here\n"

    @staticmethod
    def processes_of(config):
        """A server, and what it has started for each of its connections."""
        table = process_table()
        server = next(pid for pid in table if "sshd" in (words := " ".join(command_line(pid))) and str(config) in words)
        return [server, *descendants(table, server)]

    @staticmethod
    def client(target):
        node = Node(name=target.name, python=sys.executable)
        return AgentClient(node, connect(target), run=f"silence-{os.getpid()}", holder={}, on_event=lambda _: None)


class TestProxies:
    """ProxyCommand."""

    def test_it_outlives_a_signal_to_the_terminals_group_and_ends_with_the_channel(self, plain, tmp_path):
        place, port = plain
        proxy = tmp_path / "proxy.sh"
        proxy.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nssh -F {place.config} -W 127.0.0.1:{port} h | cat\n")
        proxy.chmod(0o755)
        name = f"[127.0.0.1]:{port}"
        place.write(host("h", port), f"Host p\nProxyCommand {proxy}", known=f"{name},p {place.public('h')}\n")
        channel = connect(place.target("p"))
        pid = int((tmp_path / "pid").read_text())
        assert os.getsid(pid) == pid != os.getsid(0)
        channel.close()
        Deadline.after(PATIENCE_S).poll(lambda: not alive_in(pid), every_s=0.02, waiting_for="the proxy's end")

    def test_what_it_said_last_is_told(self, plain):
        place, _ = plain
        place.write("Host p\nProxyCommand sh -c 'echo one >&2; echo no route to the vault >&2; exit 3'", known="")
        with pytest.raises(TransportError, match="ProxyCommand ended: no route to the vault"):
            connect(place.target("p"))

    def test_an_ssh_whose_server_drops_logins(self, place):
        with place.sshd("h") as port, place.sshd("gate", "MaxStartups 2:100:3") as gate:
            known = "".join(f"[127.0.0.1]:{p} {place.public(name)}\n" for name, p in (("h", port), ("gate", gate)))
            proxy = f"ProxyCommand ssh -F {place.config} -W %h:%p gate"
            place.write(host("h", port, proxy), host("gate", gate), known=known)
            with ThreadPoolExecutor(10) as pool:
                assert all(pool.map(reaches, [place.target("h")] * 10))


def alive_in(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class TestSettings:
    """Options of the configuration."""

    def test_a_cipher_that_nobody_has(self, plain):
        place, port = plain
        known = place.known_hosts.read_text()
        place.write(host("h", port, "Ciphers chacha20-poly1305@openssh.com"), known=known)
        with pytest.raises(TransportError, match="Ciphers"):
            connect(place.target("h"))
        place.write(host("h", port, "Ciphers aes256-gcm@openssh.com"), known=known)
        assert reaches(place.target("h"))

    def test_keys_of_an_agent(self, plain, tmp_path):
        """Named by their public half, while the files hold no private one."""
        place, port = plain
        agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL)
        try:
            Deadline.after(PATIENCE_S).poll((tmp_path / "agent").exists, every_s=0.01, waiting_for="ssh-agent")
            keygen(tmp_path / "other")
            environment = {**os.environ, "SSH_AUTH_SOCK": str(tmp_path / "agent")}
            for key in (tmp_path / "other", place.folder / "user"):
                subprocess.run(["ssh-add", "-q", key], env=environment, check=True, capture_output=True)
            (place.folder / "user").unlink()
            place.write(host("h", port, f"IdentityAgent {tmp_path / 'agent'}"), known=place.known_hosts.read_text())
            assert same_as_ssh(place, place.target("h"))
            (place.folder / "user.pub").unlink()
            assert not same_as_ssh(place, place.target("h"))
        finally:
            agent.terminate()
            agent.wait()

    @pytest.mark.parametrize("kind", ["ed25519", "rsa"])
    def test_a_certificate_of_the_user(self, place, kind):
        """In a file that the settings name, or beside the key, or not at all."""
        (place.folder / "authorized").write_text("")
        for name, of in (("authority", "ed25519"), ("me", kind)):
            keygen(place.folder / name, of)
        signing = [
            "ssh-keygen",
            "-q",
            "-s",
            place.folder / "authority",
            "-I",
            "me",
            "-n",
            USER,
            place.folder / "me.pub",
        ]
        subprocess.run(signing, check=True)
        beside = place.folder / "me-cert.pub"
        elsewhere = beside.rename(place.folder / "elsewhere.pub")
        with place.sshd("h", f"TrustedUserCAKeys {place.folder / 'authority.pub'}") as port:
            mine, known = f"IdentityFile {place.folder / 'me'}", f"[127.0.0.1]:{port} {place.public('h')}\n"
            place.write(host("h", port, mine, f"CertificateFile {elsewhere}"), known=known)
            assert same_as_ssh(place, place.target("h"))
            place.write(host("h", port, mine), known=known)
            assert not same_as_ssh(place, place.target("h"))
            elsewhere.rename(beside)
            assert same_as_ssh(place, place.target("h"))

    def test_a_login_that_fails_says_what_was_tried(self, plain):
        place, port = plain
        locked = place.folder / "locked"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked], check=True)
        keygen(place.folder / "stranger")
        lines = (f"IdentityFile {locked}", f"IdentityFile {place.folder / 'stranger'}", "GSSAPIAuthentication yes")
        (place.folder / "authorized").write_text("")
        place.write(host("h", port, *lines), known=place.known_hosts.read_text())
        with pytest.raises(TransportError, match="login failed") as caught:
            connect(place.target("h"))
        assert re.search(r"locked: has a passphrase.*stranger: refused.*user: refused.*GSSAPI", caught.value.message)
