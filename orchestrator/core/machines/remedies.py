"""Suggest remedies for a node whose agent could not start."""

from __future__ import annotations

import re

WRAPPER = "/usr/local/sbin/orch-agent"
RIGHTS = (
    f"set `sudo: {WRAPPER}` in the inventory (orch-agent, which `orch init cluster` writes, says how to install it), or"
    " `sudo: true` if the user may run python with sudo and without a password"
)

NO_PYTHON = "install Python 3.8 or later on the node, or set `python` to its path"
BROKEN_PYTHON = (
    "mend that Python, or set `python` to another one; where PYTHONHOME or PYTHONPATH stands in the way, take it out of"
    " the start-up files of the login shell"
)
ROOT = "set `sudo: true` in the inventory and let the user run python with sudo and without a password"
_REMEDIES = (  # of a line each; the first of a line that matches
    (
        r"must have a tty",
        f"let sudo work without a terminal: `Defaults!{WRAPPER} !requiretty`, or `Defaults:USER !requiretty`",
    ),
    (
        r"^sudo: (?P<program>\S+): command not found",
        "install {program} on the node: as a wrapper, orch-agent says how (`orch init cluster` writes it); as `python`,"
        " 3.8 or later",
    ),
    (r"sudo: (command )?not found", "install sudo on the node, or set `sudo: false`"),
    (
        r"a password is required|not allowed to execute|may not run|not in the sudoers",
        "let the user run it with sudo and without a password (sudoers-orch, which `orch init cluster` writes, is a"
        f" rule for the wrapper, `sudo: {WRAPPER}`), or set `sudo: false`",
    ),
    (r"setpriv: not found", "install util-linux 2.34 or later on the node: orch-agent needs its setpriv"),
    (
        r"a shell reads what Python should read|invalid literal for int\(\)|Error -\d+ while decompressing|"
        r"list index out of range",
        "let no start-up file of the login shell (.bashrc, .profile, .cshrc) start another shell, or a program"
        " that reads standard input, where no terminal is: begin it with `case $- in *i*) ;; *) return ;; esac`",
    ),
    (
        r"account is (currently )?not available|account has expired|/nologin\b|/bin/false",
        "let the user log in there and run programs (`chsh -s /bin/bash USER`), or name another user in `user`",
    ),
    (
        r"password has expired|must change your password|password change required|change your password",
        "change the user's password there once, by logging in with a terminal",
    ),
    (
        r"no space left|disk quota exceeded|read-only file system",
        "make room on the node, or let the user write there again",
    ),
    (
        r"fork: |cannot fork|cannot create (thread|child)|can't start new thread|resource temporarily unavailable",
        "let the user start more processes on the node: `ulimit -u` in its start-up files, nproc in"
        " /etc/security/limits.conf, TasksMax of its systemd slice",
    ),
    (
        r"restricted: cannot|cannot specify .*/.* in command names|: restricted$|rbash:",
        "give the user a shell there that is not restricted",
    ),
    (
        r"sftp connections only|this service allows",
        "let the user run commands there: its sshd_config has a ForceCommand, or the key a command= of its own",
    ),
    (r"exec format error|cannot execute( binary file)?", "set `python` to a Python that is for the node's processor"),
    (
        r"error while loading shared libraries|version .GLIBC\w* not found",
        "set `python` to a Python that starts there by itself: this one lacks libraries that a start-up file finds",
    ),
    (
        r"cannot create resource .pods/exec.",
        "let the user `create` `pods/exec` in that namespace: a Role and its RoleBinding",
    ),
    (
        r"pods .* not found|container not found|container .* is not (valid|running)|completed pod",
        "see whether the pod runs still: `kubectl get pods`",
    ),
    (
        r"session open refused by peer",
        "let more sessions through one connection there (MaxSessions in its sshd_config), or close the one that is open"
        " at your ControlPath",
    ),
    (
        r"not (yet )?allowed at this time|srclimit_penalise",
        "wait: its sshd lets nobody in from here for a while after logins that failed (PerSourcePenalties)",
    ),
    (
        # Python 3.6 and 2.7, at the first that they do not know; then no Python at all.
        r"is too old: the agent needs 3\.8|has no attribute 'buffer'|unknown option: -I|"
        r"(python|pypy)[\w./-]*['\"\u2019]?: .*(not found|no such file)|"
        r"(not found|no such file or directory|unknown command): \S*(python|pypy)",
        NO_PYTHON,
    ),
)


def remedy(said: str) -> str | None:
    """Return the remedy for an agent that did not start, from what the far end printed; None where that tells nothing.

    Its last words count: what start-up files print before them may have nothing to do with it.
    """
    for line in reversed(said.splitlines()):
        for pattern, text in _REMEDIES:
            if match := re.search(pattern, line, re.IGNORECASE):
                return text.format_map(match.groupdict())
    return None


def unstarted(by_hand: str) -> str:
    """Return what to check where an agent did not start and nothing that was printed tells why."""
    if not by_hand:
        return "see what the node's start-up files do: Python has to start there, and to get its standard input"
    return (
        f"see what this prints, and whether it ends: {by_hand}; it has to print a version and no more: let no start-up"
        " file of the login shell, and no ForceCommand, start another program in its place"
    )
