"""A hook that is a web address: the event is posted to it, and its answer reads like the output of a program."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pegboard.errors import Code, ProviderError, Refusal, UsageError
from pegboard.process import SECRET_NAMES

if TYPE_CHECKING:
    from pegboard.external import Hook
    from pegboard.session import Session

    from pegboard_json_hooks.ran import Ran

CONNECT = 10.0
"""[C] Seconds for a connection to come about."""

LARGEST = 4 * 1024 * 1024
"""[C] Bytes of an answer."""

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


async def post(hook: Hook, payload: bytes, session: Session) -> Ran:
    """Post an event. An answer of the class 200 counts as success, whatever else as a failure that decides nothing."""
    from urllib.parse import urlsplit

    from pegboard_http.address import parse_address, proxy_for
    from pegboard_http.failure import Failure
    from pegboard_http.line import Lines, basic
    from pegboard_http.reach import Reach

    from pegboard_json_hooks.ran import Ran

    parts = urlsplit(hook.what)
    try:
        address = parse_address(f"{parts.scheme}://{parts.netloc}", "the url of a hook")
        proxy = proxy_for(address, os.environ)
    except UsageError as error:
        raise Refusal(Code.INVALID_INPUT, str(error)) from None
    if address.user:
        raise Refusal(Code.INVALID_INPUT, "its url holds a user name; put credentials into a header")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    allowed = session.settings.value("hooks.allow_urls")
    if allowed is not None and not any(covers(one, parts.scheme, address.host_header, target) for one in allowed):
        raise Refusal(Code.DENIED_BY_POLICY, f"managed policy does not list {hook.what} (hooks.allow_urls)")
    reach = Reach(
        address=address,
        proxy=proxy,
        certificate_file=os.environ.get("SSL_CERT_FILE", ""),
        certificate_folder=os.environ.get("SSL_CERT_DIR", ""),
        connect_timeout=CONNECT,
        read_timeout=float("inf"),
    )
    headers = {"host": address.host_header, "user-agent": "pegboard", "accept": "application/json, text/plain"}
    headers |= {"content-type": "application/json", "accept-encoding": "identity"}
    headers |= {name.lower(): filled(value, hook.variables) for name, value in hook.headers}
    if proxy is not None and proxy.user and not address.tls:
        headers["proxy-authorization"] = basic(proxy.user)
    lines = Lines(reach)
    try:
        line, response = await lines.request("POST", target, list(headers.items()), payload)
        try:
            body = bytearray()
            while (chunk := await line.chunk()) and len(body) < LARGEST:
                body += chunk
        finally:
            await line.close()
    except (Failure, ProviderError, ValueError) as error:
        return Ran(trouble=str(error).rstrip("."))
    text = body.decode("utf-8", "replace")
    if not 200 <= response.status_code < 300:
        return Ran(trouble=f"answered with the status {response.status_code}")
    return Ran(code=0, out=text)


def covers(pattern: str, scheme: str, host: str, target: str) -> bool:
    """Whether an allowed address covers another one. A ``*`` in its host stays in the host; no path means any."""
    wanted_scheme, _, rest = pattern.rpartition("://")
    wanted_host, slash, path = rest.partition("/")
    return (
        wanted_scheme in ("", "*", scheme)
        and fnmatchcase(host, wanted_host.lower())
        and (not slash or fnmatchcase(target, f"/{path}"))
    )


def filled(value: str, variables: tuple[str, ...]) -> str:
    """A header with the variables that it may name; others, and the keys of model services, are left empty."""

    def one(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        listed = name in variables and name not in SECRET_NAMES
        return os.environ.get(name, "") if listed else ""

    return _VARIABLE.sub(one, value).replace("\r", "").replace("\n", "")
