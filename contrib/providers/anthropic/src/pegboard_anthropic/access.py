"""How the service is reached, read once from settings and environment: address, credentials, headers, time limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from pegboard.errors import UsageError

from pegboard_anthropic.address import Address, parse_address, proxy_for

if TYPE_CHECKING:
    from pegboard_anthropic.provider import SettingValues

BASE_URL = "https://api.anthropic.com"
VERSION = "2026-10-21"
"""[A] The version of the API that requests are written for."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a transport has to know. ``proxy`` is None for a direct connection."""

    base_url: str
    address: Address
    proxy: Address | None = None
    key: str = ""
    token: str = ""
    headers: dict[str, str] = {}
    """Further headers of the user, names in lower case."""
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


def read_access(settings: SettingValues, environ: Mapping[str, str]) -> Access:
    """Settings and environment together. ``provider.base_url`` counts before ANTHROPIC_BASE_URL.

    Raises `UsageError` for an address or a header that cannot be used.
    """
    base_url = settings.value("provider.base_url") or environ.get("ANTHROPIC_BASE_URL") or BASE_URL
    address = parse_address(base_url)
    return Access(
        base_url=base_url.rstrip("/").removesuffix("/v1"),
        address=address,
        proxy=proxy_for(address, environ),
        key=environ.get("ANTHROPIC_API_KEY", "").strip(),
        token=environ.get("ANTHROPIC_AUTH_TOKEN", "").strip(),
        headers=custom_headers(environ.get("ANTHROPIC_CUSTOM_HEADERS", "")),
        certificate_file=environ.get("SSL_CERT_FILE", ""),
        certificate_folder=environ.get("SSL_CERT_DIR", ""),
        connect_timeout=settings.value("anthropic.connect_timeout"),
        read_timeout=settings.value("anthropic.read_timeout"),
    )


def custom_headers(text: str) -> dict[str, str]:
    """Headers from ANTHROPIC_CUSTOM_HEADERS, one ``Name: value`` a line. Raises `UsageError` for another shape."""
    headers: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not name.strip().isascii() or not value.isascii():
            raise UsageError("ANTHROPIC_CUSTOM_HEADERS must hold one header a line, written as Name: value")
        headers[name.strip().lower()] = value.strip()
    return headers
