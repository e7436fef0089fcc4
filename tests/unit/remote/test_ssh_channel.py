"""The end of a channel over SSH, whoever asks for it and whatever has gone on the way."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

from orchestrator.remote.transport.ssh import SshChannel
from orchestrator.remote.transport.ssh_config import SshTarget


def channel(*closing):
    """A channel at whose end these are called, the last one first."""
    stack = contextlib.ExitStack()
    for one in closing:
        stack.callback(one)
    return SshChannel(SshTarget(name="h1", host="h1"), stack, SimpleNamespace())


def test_a_jump_host_that_has_gone_keeps_nothing_from_being_closed():
    """paramiko says goodbye on a stream through it, and raises EOFError where it cannot."""
    ended = []

    def raises():
        raise EOFError

    channel(lambda: ended.append("jump host"), raises, lambda: ended.append("host")).close()
    assert ended == ["host", "jump host"]


def test_two_who_close_it_at_once_do_not_close_the_jump_host_first():
    """Who writes and who asks for the end may both find that it is over."""
    ended = []

    def host():
        other = threading.Thread(target=closed.close)
        other.start()
        other.join(60)
        ended.append("host")

    closed = channel(lambda: ended.append("jump host"), host)
    closed.close()
    assert ended == ["host", "jump host"]
