"""Connections to the service: opened through proxies and TLS, one request at a time, used again between turns.

HTTP is h11's, bytes are anyio's; what is ours is who closes what, and when.
"""

from __future__ import annotations

import base64
import math
import ssl
from collections.abc import Sequence
from contextlib import suppress

import anyio
import h11
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from pegboard.errors import ProviderError

from pegboard_http.address import Address
from pegboard_http.certificates import contexts
from pegboard_http.failure import Failure, broken_line
from pegboard_http.reach import Reach

CHUNK = 65_536
"""Most bytes of one read."""
JOINED = 65_536
"""Up to this many bytes a body is sent in one piece with its head."""
TAIL = 0.25
"""Seconds in which the end of an answer must follow its last event, for the connection to be used again."""

Headers = Sequence[tuple[str, str]]
_BREAKS = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Stale(Failure):
    """The service had closed an idle connection; the request can go over a new one at once."""


class Line:
    """One connection. `request`, then `chunk` until it is empty; any error or cancellation closes it."""

    def __init__(self, stream: ByteStream, where: str, read_timeout: float) -> None:
        self._stream = stream
        self._where = where
        self._timeout = read_timeout
        self._http = h11.Connection(h11.CLIENT)
        self._used = False
        self._heard = False

    async def request(self, method: str, target: str, headers: Headers, body: bytes) -> h11.Response:
        """Send a request and wait for the head of its answer. Raises `Failure`, or `Stale` on a used connection."""
        self._heard = False
        try:
            await self._write(method, target, headers, body)
            while not isinstance(event := await self._event(), h11.Response):
                if not isinstance(event, h11.InformationalResponse):
                    raise self._cut()
            return event
        except Failure as failure:
            await self.close()
            if self._used and not self._heard:
                raise Stale(failure.error) from failure
            raise
        except BaseException:
            await self.close()
            raise

    async def chunk(self) -> bytes:
        """The next bytes of the answer's body; empty at its end. Raises `Failure`."""
        while True:
            event = await self._event()
            if isinstance(event, h11.Data):
                if event.data:
                    return bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return b""
            else:
                raise self._cut()

    async def finish(self) -> None:
        """Read to the end of an answer whose content is complete, but do not wait for it for long."""
        with suppress(Failure), anyio.move_on_after(TAIL):
            while await self.chunk():
                pass

    def again(self) -> bool:
        """Make ready for the next request; False when this connection cannot serve one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._used = True
        return True

    async def close(self) -> None:
        """Close at once, also while being cancelled."""
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()

    async def _write(self, method: str, target: str, headers: Headers, body: bytes) -> None:
        sized = [*headers, ("content-length", str(len(body)))] if method == "POST" else headers
        head = self._http.send(h11.Request(method=method, target=target, headers=list(sized))) or b""
        if body:
            self._http.send_with_data_passthrough(h11.Data(data=body))
        self._http.send(h11.EndOfMessage())
        pieces = [head + body] if len(body) < JOINED else [head, body]
        try:
            with anyio.fail_after(self._timeout):
                for piece in pieces:
                    await self._stream.send(piece)
        except TimeoutError:
            raise broken_line(f"{self._where} took no data for {self._timeout:g} seconds.") from None
        except _BREAKS:
            pass  # an early refusal may already be there to be read; if it is not, reading says so

    async def _event(self) -> object:
        while True:
            try:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._http.receive_data(await self._receive())
            except h11.RemoteProtocolError as error:
                raise self._cut(str(error)) from None

    async def _receive(self) -> bytes:
        try:
            with anyio.fail_after(self._timeout):
                data = await self._stream.receive(CHUNK)
        except TimeoutError:
            raise broken_line(f"{self._where} was silent for {self._timeout:g} seconds.") from None
        except anyio.EndOfStream:
            return b""
        except _BREAKS as error:
            raise self._cut(str(error)) from None
        self._heard = True
        return data

    def _cut(self, detail: str = "") -> Failure:
        return broken_line(f"The connection to {self._where} broke" + (f": {detail}" if detail else "."))


class Lines:
    """The connections to one service: idle ones are used again, further ones are opened as needed."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._idle: list[Line] = []
        self._contexts = contexts(reach.certificate_file, reach.certificate_folder)
        self._context: ssl.SSLContext | None = None

    async def request(self, method: str, path: str, headers: Headers, body: bytes) -> tuple[Line, h11.Response]:
        """Send a request over an idle connection or a new one. Give the line back with `release`."""
        target = self._reach.address.prefix + path
        if self._reach.proxy is not None and not self._reach.address.tls:
            target = f"http://{self._reach.address.authority}{target}"
        while self._idle:
            line = self._idle.pop()
            try:
                return line, await line.request(method, target, headers, body)
            except Stale:
                continue
        line = await self._verified()
        return line, await line.request(method, target, headers, body)

    async def release(self, line: Line) -> None:
        """Keep a line for the next request, or close it when its answer was not read to the end."""
        if line.again():
            self._idle.append(line)
        else:
            await line.close()

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop().close()

    async def _verified(self) -> Line:
        """Open a connection; go on to the next set of certificates when one does not vouch for the service."""
        while True:
            used = self._context = self._context or self._first()
            try:
                return await self._open()
            except ssl.SSLCertVerificationError as error:
                if self._context is not used:
                    continue  # another request has gone on already
                self._context = next(self._contexts, None)
                if self._context is None:
                    self._contexts = contexts(self._reach.certificate_file, self._reach.certificate_folder)
                    text = f"The certificate of {self._reach.address.authority} cannot be trusted"
                    hint = "Set SSL_CERT_FILE to a file with the right certificate authorities."
                    raise Failure(ProviderError(f"{text}: {error.verify_message}.\n{hint}")) from None

    def _first(self) -> ssl.SSLContext | None:
        """The first context, if there is anything to encrypt at all."""
        reach = self._reach
        encrypted = reach.address.tls or (reach.proxy is not None and reach.proxy.tls)
        return next(self._contexts) if encrypted else None

    async def _open(self) -> Line:
        reach = self._reach
        first = reach.proxy or reach.address
        try:
            with anyio.fail_after(reach.connect_timeout):
                stream: ByteStream = await anyio.connect_tcp(first.host, first.port)
                try:
                    stream = await self._wrapped(stream)
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await stream.aclose()
                    raise
        except TimeoutError:
            raise broken_line(f"{first.authority} did not connect within {reach.connect_timeout:g} seconds.") from None
        except ssl.SSLCertVerificationError:
            raise
        except _BREAKS as error:
            raise broken_line(f"Cannot connect to {first.authority}: {error}") from None
        return Line(stream, reach.address.authority, reach.read_timeout)

    async def _wrapped(self, stream: ByteStream) -> ByteStream:
        """Put TLS to the proxy, the tunnel and TLS to the service on top, as far as they are needed."""
        reach = self._reach
        if reach.proxy is not None:
            if reach.proxy.tls:
                stream = await self._secured(stream, reach.proxy.host)
            if reach.address.tls:
                await _tunnel(stream, reach.address, reach.proxy)
        return await self._secured(stream, reach.address.host) if reach.address.tls else stream

    async def _secured(self, stream: ByteStream, host: str) -> ByteStream:
        return await TLSStream.wrap(
            stream, server_side=False, hostname=host, ssl_context=self._context, standard_compatible=False
        )


async def _tunnel(stream: ByteStream, target: Address, proxy: Address) -> None:
    """Have the proxy connect us to the target. Raises `Failure`; one that a repeat cannot help for a refusal."""
    headers = [("host", target.authority)]
    if proxy.user:
        headers.append(("proxy-authorization", basic(proxy.user)))
    line = Line(stream, f"the proxy {proxy.authority}", math.inf)
    response = await line.request("CONNECT", target.authority, headers, b"")
    if response.status_code >= 500:
        raise broken_line(f"The proxy {proxy.authority} answered {response.status_code} for {target.authority}.")
    if response.status_code >= 300:
        text = f"The proxy {proxy.authority} refuses a connection to {target.authority} ({response.status_code})."
        raise Failure(ProviderError(f"{text}\nCheck the proxy variables and NO_PROXY.", status=response.status_code))


def basic(user: str) -> str:
    """The value of an authorization header for ``name:password``."""
    return "Basic " + base64.b64encode(user.encode()).decode()
