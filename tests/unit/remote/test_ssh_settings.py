"""What holds for a host, as `ssh -G` says it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, MissingRequirement, TransportError
from orchestrator.remote.transport import ssh_config
from orchestrator.remote.transport.ssh_config import Hop, SshTarget

PATIENCE_S = 60


@pytest.fixture
def told(tmp_path):
    """Write a configuration; gives the way to a host by it."""

    def route(text: str, host: str = "h", **more) -> list[Hop]:
        config = tmp_path / "config"
        config.write_text(text)
        target = SshTarget(**{"name": "n1", "host": host, "config": config, **more})
        return ssh_config.route(target, Deadline.after(PATIENCE_S))

    return route


def test_the_record(told):
    (hop,) = told(
        "Host h\nHostName %h.example\nUser u\nPort 2222\nAddressFamily inet6\nBindAddress ::1\nConnectTimeout 7\n"
        'IdentityFile "/a b/one"\nIdentityFile /two\nIdentitiesOnly yes\nIdentityAgent none\nProxyCommand x %h\n'
        "UserKnownHostsFile /k1 /k2\nGlobalKnownHostsFile none\nStrictHostKeyChecking accept-new\nHashKnownHosts yes\n"
        "Ciphers aes256-ctr,aes128-ctr\nCompression yes\n"
    )
    found = hop.settings
    assert (found.hostname, found.user, found.port) == ("h.example", "u", 2222)
    assert (found.addressfamily, found.bindaddress, found.connecttimeout) == ("inet6", "::1", 7)
    assert (found.identityfile, found.identitiesonly, found.identityagent) == (("/a b/one", "/two"), True, None)
    assert (found.proxyjump, found.proxycommand) == (None, "x %h")
    assert (found.userknownhostsfile, found.globalknownhostsfile) == (("/k1", "/k2"), ())
    assert (found.accepts_new, found.hashknownhosts, found.compression) == (True, True, True)
    assert found.ciphers == ("aes256-ctr", "aes128-ctr")
    assert found.known_as == "[h.example]:2222"
    assert not found.program_alone
    assert not found.accepts_any


def test_what_the_inventory_says_comes_first(told):
    text = "User u\nPort 1\nProxyJump j\n"
    (hop,) = told(text, user="v", port=2, jump="none")
    assert (hop.settings.user, hop.settings.port) == ("v", 2)


def test_options_stay_where_they_stand(told, tmp_path):
    """After an Include, and in a file that a Host block includes."""
    (tmp_path / "more").write_text("Host other\nUser wrong\n")
    (tmp_path / "inner").write_text("User inner\n")
    text = f"Include {tmp_path}/more\nPort 2222\nHost h\nInclude {tmp_path}/inner\nHostName h.example\n"
    (hop,) = told(text)
    assert (hop.settings.user, hop.settings.port, hop.settings.hostname) == ("inner", 2222, "h.example")
    (hop,) = told(text, host="elsewhere")
    assert hop.settings.user != "inner"


def test_jumps_have_settings_of_their_own(told):
    text = "User common\nHost j\nHostName j.example\nPort 23\nHost h\nUser u\nPort 24\n"
    first, second, last = told(text, jump="a@k:7,j", user="mine", port=9)
    assert [hop.target.name for hop in (first, second, last)] == ["jump host k", "jump host j", "n1"]
    ends = [(hop.settings.hostname, hop.settings.user, hop.settings.port) for hop in (first, second, last)]
    assert ends == [("k", "a", 7), ("j.example", "common", 23), ("h", "mine", 9)]
    assert first.target.by_hand("true") == f"ssh -F {first.target.config} -p 7 a@k true"
    assert second.target.by_hand("true") == f"ssh -F {first.target.config} -J a@k:7 j true"


def test_no_jump_is_none(told):
    text = "Host j\nProxyJump none\nHost h\nProxyJump j\nHost *\nProxyJump gate\nHost gate\nProxyJump none\n"
    assert [hop.target.host for hop in told(text)] == ["j", "h"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Host h\nProxyJump h2\nHost h2\nProxyJump h\n", "loop"),
        ("Host *\nProxyJump gate\n", "jumphost loop via gate"),
        ("Colour red\n", "line 1: Bad configuration option: colour"),
        ("Port many\n", "line 1: Bad (number|port)"),
    ],
)
def test_what_cannot_be(told, text, said):
    with pytest.raises(TransportError, match=said):
        told(text)


def test_a_question_that_hangs(tmp_path):
    config = tmp_path / "config"
    config.write_text('Match exec "sleep 600"\n')
    with pytest.raises(DeadlineExceeded, match="n1"):
        ssh_config.route(SshTarget(name="n1", host="h", config=config), Deadline.after(0.2))


def test_no_ssh_program(told, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingRequirement, match="ssh is not installed") as caught:
        told("")
    assert "openssh-client" in caught.value.hint


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        ("PKCS11Provider /x.so", "PKCS11Provider"),
        ("VerifyHostKeyDNS ask", "VerifyHostKeyDNS"),
        ("KnownHostsCommand /bin/true", "KnownHostsCommand"),
        ("NoHostAuthenticationForLocalhost yes", "NoHostAuthenticationForLocalhost"),
        ("ProxyUseFdpass yes", "ProxyUseFdpass"),
        ("RevokedHostKeys /x", "RevokedHostKeys"),
        ("BindInterface lo", "BindInterface"),
        ("StrictHostKeyChecking yes", ""),
        ("RevokedHostKeys none", ""),
    ],
)
def test_what_the_program_alone_follows(told, line, alone):
    (hop,) = told(line)
    assert hop.settings.program_alone == ((alone,) if alone else ())


@pytest.mark.parametrize("value", ["no", "off"])
def test_any_key_is_taken_as_any_new_key(told, value):
    (hop,) = told(f"StrictHostKeyChecking {value}")
    assert hop.settings.accepts_any
    assert hop.settings.accepts_new


def test_the_path_of_a_connection_that_is_shared(told, tmp_path):
    (hop,) = told(f"ControlPath {tmp_path}/%n-%p\n")
    assert hop.settings.controlpath == f"{tmp_path}/h-22"
    (hop,) = told("ControlPath none\n")
    assert hop.settings.controlpath is None


def test_names_under_which_keys_are_known():
    plain = ssh_config.SshSettings(hostname="H.Example", user="u", port=22)
    assert (plain.known_as, plain.principal) == ("h.example", "h.example")
    other = replace(plain, port=23)
    assert (other.known_as, other.principal) == ("[h.example]:23", "h.example")
    alias = replace(other, hostkeyalias="rack")
    assert (alias.known_as, alias.principal) == ("rack", "rack")


def test_tokens(monkeypatch, tmp_path):
    found = ssh_config.SshSettings(hostname="h.example", user="u", port=23, proxyjump="j")
    hop = Hop(SshTarget(name="n1", host="h"), found)
    assert ssh_config.expanded("%h %n %p %r %k %j %%h", hop) == "h.example h 23 u h j %h"
    monkeypatch.setenv("KEYS", str(tmp_path))
    assert ssh_config.expanded_path("${KEYS}/%h", hop) == tmp_path / "h.example"
    assert ssh_config.expanded_path("~/x", hop).is_absolute()
    with pytest.raises(TransportError, match="%z"):
        ssh_config.expanded("%z", hop)
    monkeypatch.delenv("KEYS")
    with pytest.raises(TransportError, match="KEYS"):
        ssh_config.expanded_path("${KEYS}", hop)
