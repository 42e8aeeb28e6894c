"""The only way out of a box: a proxy that judges the host name, resolves it once, judges the address and dials that.

It runs in a thread with an event loop of its own, because it serves background commands too: they outlive the call, and
whatever scope the call was cancelled in.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.abc import SocketStream

from pegboard_boxes.addresses import Address, AllowList

HEAD = 65_536
"""[C] Bytes of a request before its empty line."""

PATIENCE = 20.0
"""[C] Seconds for the request, for the name and for each address to answer."""

CHUNK = 65_536
MOST_DENIALS = 200
"""[C] Refusals that are remembered for one box."""

MOST_GUESTS = 2_000
"""[C] Boxes whose word is known; the oldest are forgotten first."""

HOP = frozenset(("proxy-authorization", "proxy-connection", "connection", "keep-alive"))


class Denial(NamedTuple):
    """A host that was refused."""

    host: str
    port: int
    why: str

    def __str__(self) -> str:
        return f"network: {self.host}:{self.port} was refused: {self.why}"


@dataclass
class Guest:
    """A box that uses the proxy: its word, what it may reach, and what it was refused."""

    hosts: AllowList
    word: str = field(default_factory=lambda: secrets.token_hex(8))
    denials: list[Denial] = field(default_factory=list)

    def refuse(self, host: str, port: int, why: str) -> None:
        """Note a refusal, once for each host and port."""
        denial = Denial(host, port, why)
        if denial not in self.denials and len(self.denials) < MOST_DENIALS:
            self.denials.append(denial)


class Refused(Exception):
    """A request that gets an answer instead of a connection."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Target(NamedTuple):
    """What a request asks for; ``head`` is what to send on, empty for a tunnel."""

    host: str
    port: int
    word: str
    head: bytes


class Proxy:
    """Serves one listening socket in a thread until it is closed. ``opened`` makes the socket, in that thread."""

    def __init__(self, opened: Callable[[], tuple[socket.socket, int]]) -> None:
        self.port = 0
        """Where the guests find it, on their own loopback."""
        self._opened = opened
        self._guests: dict[str, Guest] = {}
        self._latest: Guest | None = None
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] | None = None
        self.strict = False
        """Whoever comes without a guest's word is refused: for a loopback that others share."""

    def start(self) -> None:
        """Open the socket and serve it. Blocks until it is served; raises what opening it raised."""
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="sandbox proxy", daemon=True)
        self._thread.start()
        self.port = ready.result()

    def welcome(self, hosts: AllowList) -> Guest:
        """A new guest. Whoever comes without a word is judged as the latest of them."""
        guest = Guest(hosts)
        self._guests[guest.word] = self._latest = guest
        while len(self._guests) > MOST_GUESTS:
            del self._guests[next(iter(self._guests))]
        return guest

    def close(self) -> None:
        """Stop serving and end every connection."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self._thread = None

    def _run(self, ready: Future[int]) -> None:
        try:
            listener, port = self._opened()
        except BaseException as error:
            ready.set_exception(error)
            return
        with listener:
            listener.setblocking(False)
            anyio.run(self._serve, listener, ready, port)

    async def _serve(self, listener: socket.socket, ready: Future[int], port: int) -> None:
        token = anyio.lowlevel.current_token()
        async with anyio.create_task_group() as tasks:
            self._stop = lambda: anyio.from_thread.run_sync(tasks.cancel_scope.cancel, token=token)
            ready.set_result(port)
            while True:
                await anyio.wait_readable(listener)
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    await anyio.sleep(0.05)
                    continue
                tasks.start_soon(self._serve_one, accepted)

    async def _serve_one(self, accepted: socket.socket) -> None:
        """One connection. Nothing that goes wrong in it may end the others."""
        try:
            async with await SocketStream.from_socket(accepted) as client:
                await self._answer(client)
        except GONE:
            return

    async def _answer(self, client: SocketStream) -> None:
        try:
            with anyio.fail_after(PATIENCE):
                head, rest = await _read_head(client)
                target = parse(head)
            guest = self._guests.get(target.word) or (None if self.strict else self._latest)
            if guest is None:
                raise Refused("407 Proxy Authentication Required", "only processes of the sandbox are served")
            server = await _dial(await _judge(guest, target), target)
        except TimeoutError:
            return
        except Refused as refused:
            await _say(client, refused)
            return
        async with server:
            if target.head:
                await server.send(target.head)
            else:
                await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            if rest:
                await server.send(rest)
            await _join(client, server)


GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
"""How the end of a connection shows."""


async def _read_head(client: SocketStream) -> tuple[bytes, bytes]:
    """The request up to its empty line, and what came after it."""
    got = b""
    while b"\r\n\r\n" not in got:
        if len(got) > HEAD:
            raise Refused("431 Request Header Fields Too Large", "the request has no end")
        got += await client.receive(CHUNK)
    head, _, rest = got.partition(b"\r\n\r\n")
    return head, rest


def parse(head: bytes) -> Target:
    """Read a request: a tunnel, or a plain one that is then written anew. Raises `Refused`."""
    lines = head.split(b"\r\n")
    words = lines[0].split(b" ")
    if len(words) != 3 or not re.fullmatch(rb"HTTP/1\.[01]", words[2]) or re.search(rb"[^\x21-\x7e]", words[1]):
        raise Refused("400 Bad Request", "this is no request for a proxy")
    kept, word = [], ""
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(rb"[\r\n\0]", value):
            raise Refused("400 Bad Request", "a header of the request cannot be read")
        plain = name.lower().decode("ascii")
        if plain == "proxy-authorization":
            word = _word(value)
        elif plain not in HOP and plain != "host":
            kept.append(line)
    if words[0] == b"CONNECT":
        host, port = _authority(words[1].decode("ascii"), None)
        return Target(host, port, word, b"")
    found = re.fullmatch(r"http://([^/?#]+)(/[^#]*|\?[^#]*)?", words[1].decode("ascii"), re.IGNORECASE)
    if found is None:
        raise Refused("400 Bad Request", "this is no request for a proxy")
    host, port = _authority(found[1], 80)
    path = found[2] or "/"
    first = b"%s %s HTTP/1.1" % (words[0], (path if path.startswith("/") else f"/{path}").encode("ascii"))
    shown = host if ":" not in host else f"[{host}]"
    told = f"Host: {shown}" if port == 80 else f"Host: {shown}:{port}"
    return Target(host, port, word, b"\r\n".join([first, told.encode("ascii"), *kept, b"Connection: close", b"", b""]))


def _word(value: bytes) -> str:
    kind, _, code = value.strip().partition(b" ")
    if kind.lower() != b"basic":
        return ""
    try:
        return base64.b64decode(code.strip(), validate=True).decode("ascii").partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _authority(text: str, usual: int | None) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d{1,5}))?", text)
    port = int(found[3]) if found is not None and found[3] else usual
    if found is None or port is None or not 0 < port < 65_536:
        raise Refused("400 Bad Request", "the host is not written as a plain name with a port")
    return found[1] or found[2], port


async def _judge(guest: Guest, target: Target) -> list[Address]:
    """The addresses that may be dialled for a target, each judged. Raises `Refused`, and the guest hears of it."""
    why = guest.hosts.judge_name(target.host, target.port)
    if why:
        raise _denied(guest, target, why)
    try:
        with anyio.fail_after(PATIENCE):
            found = await anyio.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise Refused("504 Gateway Timeout", f"the name {target.host} was not resolved in time") from None
    except (OSError, UnicodeError):
        raise Refused("502 Bad Gateway", f"the name {target.host} cannot be resolved") from None
    addresses = list(dict.fromkeys(ipaddress.ip_address(entry[4][0].partition("%")[0]) for entry in found))
    reasons = [guest.hosts.judge_address(address, target.port) for address in addresses]
    if not addresses or any(reasons):
        # One bad address among good ones is how a name is made to lead elsewhere a moment later.
        bad = next(((address, why) for address, why in zip(addresses, reasons, strict=True) if why), None)
        raise _denied(guest, target, f"it leads to {bad[0]}, and {bad[1]}" if bad else "it leads nowhere")
    return addresses


def _denied(guest: Guest, target: Target, why: str) -> Refused:
    guest.refuse(target.host, target.port, why)
    return Refused("403 Forbidden", f"the sandbox refuses {target.host}:{target.port}: {why}")


async def _dial(addresses: list[Address], target: Target) -> SocketStream:
    """A connection to the first address that answers."""
    for address in addresses:
        try:
            with anyio.fail_after(PATIENCE):
                return await anyio.connect_tcp(str(address), target.port)
        except (OSError, TimeoutError):
            continue
    raise Refused("502 Bad Gateway", f"{target.host}:{target.port} does not answer")


async def _say(client: SocketStream, refused: Refused) -> None:
    body = f"{refused.text}\n".encode()
    head = (
        f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain; charset=utf-8\r\nX-Sandbox: refused\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n"
    )
    if refused.status.startswith("407"):
        head += "Proxy-Authenticate: Basic realm=sandbox\r\n"
    head += "\r\n"
    await client.send(head.encode() + body)


async def _join(client: SocketStream, server: SocketStream) -> None:
    """Pass bytes both ways until both sides have said their last."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_pump, client, server)
        tasks.start_soon(_pump, server, client)


async def _pump(source: SocketStream, sink: SocketStream) -> None:
    try:
        async for chunk in source:
            await sink.send(chunk)
        await sink.send_eof()
    except GONE:
        return
