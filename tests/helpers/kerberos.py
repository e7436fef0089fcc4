"""A Kerberos realm of this machine's loopback: a KDC, this user and the host `localhost`."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.core.deadline import Deadline
from tests.helpers import machine
from tests.helpers.sshd_help import PATIENCE_S, USER

REALM = "RACK.TEST"
MISSING = next((name for name in ("krb5kdc", "kadmin.local", "kinit", "klist") if shutil.which(name) is None), None)
CLIENT = """\
[libdefaults]
default_realm = {realm}
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
default_ccache_name = FILE:{folder}/ticket
default_keytab_name = FILE:{folder}/keytab
[realms]
{realm} = {{
    kdc = 127.0.0.1:{port}
}}
[logging]
kdc = FILE:{folder}/kdc.log
"""
SERVER = """\
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
}}
"""


@contextmanager
def realm(folder: Path) -> Iterator[Mapping[str, str]]:
    """A realm while its KDC runs; gives the environment in which programs are in it.

    The host's key is in the keytab that this environment names, this user's in `user.keytab`.
    """
    folder.mkdir()
    port = machine.free_port()
    for name, text in (("krb5.conf", CLIENT), ("kdc.conf", SERVER)):
        (folder / name).write_text(text.format(realm=REALM, folder=folder, port=port))
    inside = {"KRB5_CONFIG": f"{folder}/krb5.conf", "KRB5_KDC_PROFILE": f"{folder}/kdc.conf"}
    environment = {**os.environ, **inside}

    def call(*argv: str) -> None:
        subprocess.run(argv, env=environment, check=True, capture_output=True, timeout=PATIENCE_S)

    call("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
    for principal, keytab in ((USER, "user.keytab"), ("host/localhost", "keytab")):
        call("kadmin.local", "-q", f"addprinc -randkey {principal}")
        call("kadmin.local", "-q", f"ktadd -k {folder / keytab} {principal}")
    with subprocess.Popen(["krb5kdc", "-n"], env=environment, stdout=subprocess.DEVNULL) as kdc:
        try:
            Deadline.after(PATIENCE_S).poll(lambda: _answers(port), every_s=0.02, waiting_for="the KDC")
            yield inside
        finally:
            kdc.terminate()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
