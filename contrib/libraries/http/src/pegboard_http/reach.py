"""How a service is reached, read once from settings and environment: address, proxy, certificates, time limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from pegboard.errors import UsageError

from pegboard_http.address import Address, proxy_for


class SettingValues(Protocol):
    """Where settings come from."""

    def value(self, key: str) -> Any:
        """The effective value of a key."""
        ...


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection has to know. ``proxy`` is None for a direct one."""

    address: Address
    proxy: Address | None = None
    certificate_file: str = ""
    """File with certificates to trust in place of the system's, from SSL_CERT_FILE."""
    certificate_folder: str = ""
    """Folder with certificates under their hashes, from SSL_CERT_DIR."""
    connect_timeout: float = 10.0
    read_timeout: float = 300.0

    @property
    def proxy_url(self) -> str | None:
        """The proxy as a URL, credentials included."""
        if self.proxy is None:
            return None
        name, _, password = self.proxy.user.partition(":")
        user = f"{quote(name, safe='')}:{quote(password, safe='')}@" if self.proxy.user else ""
        return f"{self.proxy.scheme}://{user}{self.proxy.authority}"


def read_reach(address: Address, settings: SettingValues, environ: Mapping[str, str], family: str) -> Reach:
    """The way to an address; ``family`` is what the names of the provider's time limits begin with.

    Raises `UsageError` for a proxy that cannot be used.
    """
    return Reach(
        address=address,
        proxy=proxy_for(address, environ),
        certificate_file=environ.get("SSL_CERT_FILE", ""),
        certificate_folder=environ.get("SSL_CERT_DIR", ""),
        connect_timeout=settings.value(f"{family}.connect_timeout"),
        read_timeout=settings.value(f"{family}.read_timeout"),
    )


def headers_from(variable: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Further headers of the user, one ``Name: value`` a line; names in lower case. Raises `UsageError`."""
    headers: dict[str, str] = {}
    for line in environ.get(variable, "").splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not name.strip().isascii() or not value.isascii():
            raise UsageError(f"{variable} must hold one header a line, written as Name: value")
        headers[name.strip().lower()] = value.strip()
    return headers
