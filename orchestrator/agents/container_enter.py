"""Runs a command in a host that is a container, for sshd: hands its own input and outputs to the container's PID 1.

It is started in the container's network namespace and needs nothing of the container's files; `container_init.py` says
what it asks. It ends with the status of what was started there: 128 and the number of a signal, as a shell tells it.
"""

import array
import json
import os
import socket
import sys

ADDRESS = "\0orch-host"
GONE = 255  # what ssh ends with when a connection fails


def main() -> int:
    request = json.dumps({"command": os.environ.get("SSH_ORIGINAL_COMMAND")}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as host:
        try:
            host.connect(ADDRESS)
            host.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
        except OSError as error:
            print("the container has ended: %s" % error.strerror, file=sys.stderr)
            return GONE
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # or who reads them would not see them end
            os.dup2(null, descriptor)
        answer = host.recv(16)
    status = int(answer) if answer else GONE
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
