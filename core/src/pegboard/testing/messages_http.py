"""A small threaded HTTP/1.1 server on loopback for services that tests and tours play.

It starts in a millisecond and imports next to nothing, which the standard library's own server does not; it lets a
service drop a connection in mid-answer and notice that its client has gone.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

if TYPE_CHECKING:
    import ssl

BODY_LIMIT = 64 * 1024 * 1024
"""Most bytes of a request body that are read at all."""

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Payload Too Large", 429: "Too Many Requests"}


class Exchange:
    """One request and the means to answer it. ``headers`` have lower-case names; ``path`` carries the query."""

    def __init__(self, sock: socket.socket, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self._sock = sock
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.keep = headers.get("connection", "").lower() != "close"
        self._streamed = False

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a whole answer; a HEAD gets its head only."""
        head = self._head(status, {**headers, "content-length": str(len(body))})
        self._sock.sendall(head if self.method == "HEAD" else head + body)

    def begin(self, headers: Mapping[str, str]) -> None:
        """Start a chunked answer with status 200."""
        self._sock.sendall(self._head(200, {**headers, "transfer-encoding": "chunked"}))

    def chunk(self, *parts: bytes) -> None:
        """Send chunks, in one write."""
        self._sock.sendall(b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts))

    def end(self) -> None:
        """Finish a chunked answer."""
        self._sock.sendall(b"0\r\n\r\n")

    def drop(self) -> None:
        """Break the connection at this point, as a crashed server or a cut line does."""
        self.keep = False
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def gone(self, seconds: float) -> bool:
        """Wait; True as soon as the client has closed its side."""
        readable = select.select([self._sock], [], [], seconds)[0]
        if not readable:
            return False
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):  # a TLS socket cannot peek; its client never speaks during an answer
            return True

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Server:
    """Listens on a free loopback port while the ``with`` block runs; one thread a connection."""

    def __init__(self, handle: Callable[[Exchange], None], tls: ssl.SSLContext | None = None) -> None:
        self._handle = handle
        self._tls = tls
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = False

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        self._listener.close()
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads = [other for other in self._threads if other.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if self._closing:
                sock.close()
                return
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(sock)
        try:
            if self._tls is not None:
                plain, sock = sock, self._tls.wrap_socket(sock, server_side=True)
                with self._lock:
                    self._open.discard(plain)
                    self._open.add(sock)
            with sock.makefile("rb") as reader:
                while (exchange := _read(sock, reader)) is not None:
                    self._handle(exchange)
                    if not exchange.keep:
                        break
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()


def _read(sock: socket.socket, reader: BinaryIO) -> Exchange | None:
    """The next request of a connection, or None at its end."""
    line = reader.readline(65_536)
    if not line.strip():
        return None
    method, path, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := reader.readline(65_536)) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _chunked(reader)
    else:
        body = reader.read(min(int(headers.get("content-length") or 0), BODY_LIMIT))
    return Exchange(sock, method, path, headers, body)


def _chunked(reader: BinaryIO) -> bytes:
    parts: list[bytes] = []
    while size := int(reader.readline().split(b";")[0], 16):
        parts.append(reader.read(size))
        reader.readline()
    while reader.readline().strip():
        pass
    return b"".join(parts)
