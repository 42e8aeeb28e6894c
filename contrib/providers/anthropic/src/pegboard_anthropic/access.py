"""How the Messages service is reached, read once from settings and environment: address, credentials, headers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from pegboard_http.address import parse_address
from pegboard_http.reach import Reach, SettingValues, headers_from, read_reach

BASE_URL = "https://api.anthropic.com"
VERSION = "2026-10-21"
"""[A] The version of the API that requests are written for."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a transport has to know."""

    base_url: str
    reach: Reach
    key: str = ""
    token: str = ""
    headers: dict[str, str] = {}
    """Further headers of the user, names in lower case."""


def read_access(settings: SettingValues, environ: Mapping[str, str]) -> Access:
    """Settings and environment together. ``provider.base_url`` counts before ANTHROPIC_BASE_URL.

    Raises `UsageError` for an address or a header that cannot be used.
    """
    base_url = settings.value("provider.base_url") or environ.get("ANTHROPIC_BASE_URL") or BASE_URL
    address = parse_address(base_url)
    address = msgspec.structs.replace(address, prefix=address.prefix.removesuffix("/v1"))
    return Access(
        base_url=base_url.rstrip("/").removesuffix("/v1"),
        reach=read_reach(address, settings, environ, "anthropic"),
        key=environ.get("ANTHROPIC_API_KEY", "").strip(),
        token=environ.get("ANTHROPIC_AUTH_TOKEN", "").strip(),
        headers=headers_from("ANTHROPIC_CUSTOM_HEADERS", environ),
    )
