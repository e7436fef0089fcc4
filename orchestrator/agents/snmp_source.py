"""Counters of a switch's ports for the sampler, read over SNMP (IF-MIB, RFC 2863) by the package gufo-snmp.

Arguments: seconds between samples, and a file of JSON beside it with what is asked (`Asked`). The community, or with
SNMPv3 the passwords, are in the environment as SNMP_COMMUNITY, SNMP_AUTH and SNMP_PRIVACY.
"""

# ruff: noqa: PTH123 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys

MYPY = False
if MYPY:
    from typing import Any, TypedDict

    class Asked(TypedDict):
        """The switch to ask: its address, the user (of SNMPv3; else the empty text), and its ports, by default all."""

        switch: str
        address: str
        port: int
        user: str
        auth: str
        privacy: str
        ports: list[str] | None


UP_TIME = "1.3.6.1.2.1.1.3.0"  # SNMPv2-MIB::sysUpTime.0, hundredths of a second
NAMES = ("1.3.6.1.2.1.31.1.1.1.1", "1.3.6.1.2.1.2.2.1.2")  # IF-MIB::ifName, ifDescr
COUNTERS = {
    "ifHCInOctets": "1.3.6.1.2.1.31.1.1.1.6",
    "ifHCOutOctets": "1.3.6.1.2.1.31.1.1.1.10",
    "ifInDiscards": "1.3.6.1.2.1.2.2.1.13",
    "ifOutDiscards": "1.3.6.1.2.1.2.2.1.19",
    "ifInErrors": "1.3.6.1.2.1.2.2.1.14",
    "ifOutErrors": "1.3.6.1.2.1.2.2.1.20",
}
AT_ONCE = 24  # counters in a request: its answer fits a frame
ANSWER_S = 1.0
TRIES = 3  # of the first request
LOST_AT_MOST = 5  # samples in a row without an answer: the switch is gone


class Ports:
    """Samples of a switch: its up time, by which restarts show, and each port's counters.

    `failures` are what the session raises for an answer that did not come or cannot be read.
    """

    def __init__(
        self, session: Any, asked: Asked, every_s: float, failures: tuple[type[Exception], ...] = (TimeoutError,)
    ) -> None:
        self.name = asked["switch"]
        self.session = session
        self.failures = failures
        self.every_s = every_s
        self.lost = 0
        self.told = False
        numbers = chosen(asked, named(session))
        self.columns = ["%s|snmp.sysUpTime" % self.name]
        self.columns += ["%s:%s|snmp.%s" % (self.name, port, counter) for port in numbers for counter in COUNTERS]
        self.oids = [UP_TIME] + ["%s.%s" % (oid, at) for at in numbers.values() for oid in COUNTERS.values()]

    def rows(self) -> list[list[object]]:
        try:
            found = self.values()
            if UP_TIME not in found:  # an answer that is an error has no values
                raise TimeoutError
        except self.failures as error:
            self.lost += 1
            if self.lost >= LOST_AT_MOST:
                reason = ": %s" % error if str(error) else ""
                raise OSError("%s has not answered %d times in a row%s" % (self.name, self.lost, reason)) from None
            self.meet_again()
            return [[""] * len(self.oids)]
        self.lost = 0
        return [[found.get(oid, "") for oid in self.oids]]

    def meet_again(self) -> None:
        """Synchronise with the switch's SNMPv3 engine time: one that restarted rejects requests with the old time."""
        with contextlib.suppress(*self.failures):  # the next sample tries again
            self.session.refresh()

    def values(self) -> dict[str, object]:
        """Request the values of names; those that are no number are left out, such as noSuchInstance of a removed port.

        An error in one answer costs what was asked for there, and the first one all.
        """
        found: dict[str, object] = {}
        for at in range(0, len(self.oids), AT_ONCE):
            try:
                found.update(self.session.get_many(self.oids[at : at + AT_ONCE]))
            except self.failures as error:
                if not at:
                    raise
                if not self.told:
                    self.told = True
                    print(
                        "%s: no answer about some ports: %s" % (self.name, str(error) or type(error).__name__),
                        file=sys.stderr,
                        flush=True,
                    )
                if isinstance(error, TimeoutError):
                    break  # each further one would take as long
        return {oid: value for oid, value in found.items() if isinstance(value, int)}


def named(session: Any) -> dict[str, str]:
    """Return the number of each port (ifIndex) by its names, ifName and ifDescr, as text."""
    found: dict[str, str] = {}
    names: dict[str, str] = {}  # of each number the last
    for column in NAMES:
        for oid, value in session.fetch(column):
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            # A column's name is a line of CSV, of parts with | between.
            name = "".join(one if one.isprintable() and one != "|" else "_" for one in text)
            number = oid.rpartition(".")[2]
            found.setdefault(name, number)
            names[number] = name
    for number in names.keys() - set(found.values()):  # another port has each of its names
        found["%s#%s" % (names[number], number)] = number
    return found


def chosen(asked: Asked, known: dict[str, str]) -> dict[str, str]:
    """Return the ports that were asked for, or all, each by the first of its names."""
    if asked["ports"] is None:
        first: dict[str, str] = {}
        for name, number in known.items():
            first.setdefault(number, name)
        return {name: number for number, name in first.items()}
    unknown = [port for port in asked["ports"] if port not in known]
    if unknown:
        raise OSError("%s has no port %s; it has %s" % (asked["switch"], unknown[0], ", ".join(known) or "none"))
    return {port: known[port] for port in asked["ports"]}


def session_of(asked: Asked) -> Any:
    """Return a session of gufo-snmp.

    Raise OSError where the package or the switch's name is unknown, or a password is too short.
    """
    try:
        from gufo import snmp
        from gufo.snmp.sync import SnmpSession
    except ImportError as error:
        raise OSError("%s lacks gufo-snmp (pip install 'orch-testbed[snmp]'): %s" % (sys.executable, error)) from error
    address = str(socket.getaddrinfo(asked["address"], asked["port"], type=socket.SOCK_DGRAM)[0][4][0])
    if not asked["user"]:
        community = os.environ["SNMP_COMMUNITY"]
        return SnmpSession(address, port=asked["port"], community=community, timeout=ANSWER_S)
    keys: dict[str, Any] = {"auth_key": getattr(snmp, asked["auth"])(os.environ["SNMP_AUTH"].encode())}
    if asked["privacy"]:
        keys["priv_key"] = getattr(snmp, asked["privacy"])(os.environ["SNMP_PRIVACY"].encode())
    user = snmp.User(asked["user"], **keys)
    return SnmpSession(address, port=asked["port"], user=user, timeout=ANSWER_S)


def reached(asked: Asked, every_s: float) -> Ports:
    """Return the ports of a switch that answers; OSError for one that does not, or that refuses."""
    at = "%s at %s port %d" % (asked["switch"], asked["address"], asked["port"])
    session = session_of(asked)
    from gufo.snmp import SnmpError

    for left in reversed(range(TRIES)):
        try:
            session.refresh()
            return Ports(session, asked, every_s, (TimeoutError, SnmpError))
        except TimeoutError:
            if not left:
                message = "%s does not answer: is this the address, may this host ask it, and is the community right?"
                raise OSError(message % at) from None
        except SnmpError as error:
            raise OSError("%s refuses: %s" % (at, error or type(error).__name__)) from error
    raise AssertionError("the last try returns or raises")


def open_streams(arguments: list[str]) -> list[object]:
    with open(arguments[1]) as file:
        asked = json.load(file)
    return [reached(asked, float(arguments[0]))]
