"""Which addresses a process in a box may reach: a name says nothing until it is known where it leads.

Names are judged by their text, then every address they resolve to; what is dialled is the judged address itself.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from pegboard.rules import host_of, host_pattern, matches_host

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254"))
)
"""Addresses at which clouds hand out credentials; some of them are public by their number."""

EMBEDDING = tuple(
    map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48",
                                "2001::/32", "2002::/16"))
)  # fmt: skip
"""Addresses that carry an IPv4 address inside, so that judging them by their own number would judge nothing."""


@dataclass(frozen=True)
class Entry:
    """One entry of an allow list: a host pattern or a network, and a port or any."""

    pattern: str
    network: Network | None
    port: int | None


def parse(text: str) -> Entry | None:
    """Read ``name``, ``*.name``, ``*``, an address or a network, each with ``:port`` or without; None = unreadable."""
    body, port = text.strip(), None
    found = re.fullmatch(r"(\[[^\]]+\]|[^:]+):(\d{1,5})", body)
    if found is not None:
        body, port = found[1], int(found[2])
    bare = body.strip("[]")
    with contextlib.suppress(ValueError):
        return Entry("", ipaddress.ip_network(bare, strict=False), port)
    pattern = host_pattern(bare)
    return Entry(pattern, None, port) if re.fullmatch(r"[\w.*-]+", pattern) else None


class AllowList:
    """Hosts that may be contacted. Empty means none."""

    def __init__(self, allowed: Iterable[str], refused: Iterable[str] = ()) -> None:
        self._allowed = [entry for text in allowed if (entry := parse(text)) is not None]
        self._refused = [entry for text in refused if (entry := parse(text)) is not None]

    def judge_name(self, host: str, port: int) -> str:
        """Why a host may not be asked for, by its text alone; empty if it may."""
        name = host_of(host)
        if not name or name != host.strip("[]").lower().removesuffix("."):
            return "it is not written as a plain host name"
        address = literal(name)
        if _names(self._refused, name, address, port):
            return "a rule refuses it"
        if not _names(self._allowed, name, address, port):
            return "it is not among the allowed hosts"
        return ""

    def judge_address(self, address: Address, port: int) -> str:
        """Why an address may not be dialled, whatever name led to it; empty if it may."""
        if any(entry.network and address in entry.network for entry in self._refused):
            return "a rule refuses it"
        for entry in self._allowed:
            if entry.network is not None and entry.port in (None, port) and address in entry.network:
                return ""
        return unfit(address)


def literal(name: str) -> Address | None:
    """The address that a host name is, in any spelling that the system would take for one; None for a real name."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name.partition("%")[0])
    if re.fullmatch(r"[\da-fx.]+", name):
        with contextlib.suppress(OSError):
            return ipaddress.IPv4Address(socket.inet_aton(name))
    return None


def _names(entries: list[Entry], name: str, address: Address | None, port: int) -> bool:
    for entry in entries:
        if entry.port not in (None, port):
            continue
        if address is not None:
            if entry.network is not None and address in entry.network:
                return True
        elif entry.network is None and matches_host(entry.pattern, name):
            return True
    return False


def unfit(address: Address) -> str:
    """Why an address is not part of the public network; empty if it is."""
    if address in METADATA:
        return "a cloud hands out credentials there"
    if isinstance(address, ipaddress.IPv6Address) and any(address in network for network in EMBEDDING):
        return "it carries another address inside"
    if address.is_loopback or address.is_unspecified:
        return "it is this machine"
    if address.is_link_local:
        return "it is link-local"
    if address.is_multicast or address.is_reserved:
        return "it is no address of one host"
    if not address.is_global:
        return "it is private"
    return "it is this machine" if _own(address) else ""


def _own(address: Address) -> bool:
    """Whether this machine has the address: what it would send there would come from the address itself."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address
    except OSError:
        return False
