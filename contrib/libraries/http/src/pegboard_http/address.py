"""Where the service is and whether a proxy stands between: base URLs, proxy variables, NO_PROXY.

Pure functions over texts and an environment, so that they can be tested without a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec
from pegboard.errors import UsageError

PORTS = {"http": 80, "https": 443}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a connection. ``prefix`` is the path that all targets begin with, without a slash at its end."""

    scheme: str
    host: str
    port: int
    prefix: str = ""
    user: str = ""
    """``name:password`` for a proxy, decoded."""

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """``host:port``, with brackets around an IPv6 host."""
        return f"{self._bracketed}:{self.port}"

    @property
    def host_header(self) -> str:
        """The authority, without the port where it is the scheme's own."""
        return self._bracketed if self.port == PORTS[self.scheme] else self.authority

    @property
    def loopback(self) -> bool:
        """Whether it is this machine, by its name alone: ``localhost`` or an address of the loopback network."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        from ipaddress import ip_address

        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_address(url: str, what: str = "provider.base_url") -> Address:
    """Take a URL apart. Raises `UsageError` naming ``what`` when it is none, or not http or https."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{what} is no address: {url} ({error}).") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError(f"{what} must be an http or https address, not {url}")
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    host = parts.hostname.encode("idna").decode() if not parts.hostname.isascii() else parts.hostname
    port = PORTS[parts.scheme] if port is None else port
    return Address(scheme=parts.scheme, host=host, port=port, prefix=parts.path.rstrip("/"), user=user)


def proxy_for(target: Address, environ: Mapping[str, str]) -> Address | None:
    """The proxy that the environment names for a target, or None. Lower-case variables win."""
    names = (f"{target.scheme}_proxy", f"{target.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    name = next((name for name in names if environ.get(name)), None)
    if name is None or excepted(target, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    return parse_address(environ[name], name)


def excepted(target: Address, no_proxy: str) -> bool:
    """Whether NO_PROXY covers a target: ``*``, a host, a domain with or without a dot, ``host:port``, a network."""
    for entry in no_proxy.replace(" ", ",").split(","):
        entry = entry.strip().lower()
        if entry == "*":
            return True
        if "/" in entry:
            if _in_network(target.host, entry):
                return True
            continue
        host, _, port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        host = (host or entry).strip("[]").removeprefix("*").lstrip(".")
        if port and port != str(target.port):
            continue
        if host and (target.host == host or target.host.endswith("." + host)):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
