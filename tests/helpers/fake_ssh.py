"""A program that stands for ssh: its words are written down, and a folder says what comes of them.

`G` is what `ssh -G` prints. A login fails with the text of the first of the files `HOST.1`, `HOST.2`, ..., which it
takes away; without one it is a master connection until it is told to end. A session runs its command here.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Do what ssh would."""
    folder = Path(__file__).parent
    with (folder / "words").open("a") as log:
        log.write("\0".join(words) + "\n")
    if "-G" in words:
        print((folder / "G").read_text().replace("HOST", words[-1]))
        return 0
    host = words[words.index("--") + 1]
    if "-N" not in words:
        os.execvp("sh", ["sh", "-c", words[-1]])  # noqa: S606 - the words of the test's own command
    for failure in sorted(folder.glob(f"{host}.[0-9]")):
        sys.stderr.write(failure.read_text())
        failure.unlink()
        return 255
    path = words[words.index("-S") + 1]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen()
        os.link(f"{path}.new", path)
        (folder / f"{host}.pid").write_text(str(os.getpid()))
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
