"""Our own client on real sockets: proxies, TLS, connections used again, silence, what the service sees."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from pegboard.errors import BadRequest, Overloaded, ProviderError, UsageError
from pegboard.provider import Answer, Message, Request
from pegboard.testing.messages import MessagesService
from pegboard.testing.providers import ProviderBench, Sleep
from pegboard.testing.providers_bench import Naps, ask, text
from pegboard_anthropic.provider import Anthropic
from pegboard_http.certificates import contexts, is_hashed

HELLO = [text("hello")]


class Proxy:
    """A small real proxy: CONNECT tunnels and absolute-form requests. ``seen`` holds the heads of its requests."""

    def __init__(self, refuse: str = "", user: str = "") -> None:
        self.seen: list[str] = []
        self._refuse = refuse
        self._user = user
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for sock in self._sockets:
            sock.close()

    def _run(self, target: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock = self._listener.accept()[0]
                self._sockets.append(sock)
                self._run(self._serve, sock)

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (data := client.recv(65_536)):
                return
            head += data
        self.seen.append(head.split(b"\r\n\r\n")[0].decode())
        method, target, _ = self.seen[-1].split("\r\n")[0].split(" ")
        if self._refuse or (self._user and self._user not in self.seen[-1]):
            client.sendall(f"HTTP/1.1 {self._refuse or '407 Auth'}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        authority = target if method == "CONNECT" else target.split("/")[2]
        host, _, port = authority.rpartition(":")
        server = socket.create_connection((host, int(port)))
        self._sockets.append(server)
        if method == "CONNECT":
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            server.sendall(head)
        self._run(_pump, client, server)
        self._run(_pump, server, client)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxies() -> Iterator[Callable[..., Proxy]]:
    made: list[Proxy] = []

    def make(**options: str) -> Proxy:
        made.append(Proxy(**options))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that signs itself, and its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    (folder / "both.pem").write_text(cert.read_text() + key.read_text())
    (folder / "hashed").mkdir()
    (folder / "hashed" / "cert.pem").write_text(cert.read_text())
    subprocess.run(["openssl", "rehash", folder / "hashed"], check=True, capture_output=True)
    return folder / "both.pem"


class NetworkBench(ProviderBench):
    environ: dict[str, str] = {}
    changed: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    def maker(self, provider_at: Callable[..., Anthropic]) -> None:
        self._at = provider_at

    def make(self, url: str, sleep: Sleep) -> Anthropic:
        return self._at(url, sleep, self.environ, **self.changed)


@pytest.mark.parametrize("transport", ["http", "sdk"])
class TestTls(NetworkBench):
    @pytest.fixture(autouse=True)
    def tls(self, certificate: Path, transport: str) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.environ = {"SSL_CERT_FILE": str(certificate)}
        self.changed = {"provider__transport": transport}

    async def test_trusted_certificate(self) -> None:
        async with self.playing(["hello", "hello"], tls=self.context) as (provider, _, _):
            assert (await self.answer(provider, ask())).content == HELLO
            assert (await self.answer(provider, ask())).content == HELLO

    async def test_tunnel(self, proxies: Callable[..., Proxy]) -> None:
        proxy = proxies(user="Basic bmFtZTpwQHNz")
        self.environ = {**self.environ, "https_proxy": f"http://name:p%40ss@127.0.0.1:{proxy.port}"}
        async with self.playing(["hello", "hello"], tls=self.context) as (provider, service, _):
            assert (await self.answer(provider, ask())).content == HELLO
            assert (await self.answer(provider, ask())).content == HELLO
            assert len(proxy.seen) == 1
            assert proxy.seen[0].startswith(f"CONNECT 127.0.0.1:{service.url.rpartition(':')[2]} HTTP/1.1")
            assert "test-key" not in proxy.seen[0]

    async def test_folder_of_certificates(self, certificate: Path) -> None:
        self.environ = {"SSL_CERT_DIR": str(certificate.parent / "hashed")}
        async with self.playing(["hello"], tls=self.context) as (provider, _, _):
            assert (await self.answer(provider, ask())).content == HELLO

    async def test_cancelled_stream_is_closed(self) -> None:
        slow = {"content": [text("word " * 50)], "pieces": 50, "event_delay": 0.05}
        async with self.playing([slow], tls=self.context) as (provider, service, _):
            with anyio.move_on_after(0.4):
                await self.parts(provider, ask())
            assert await self.hung_up(service)


class TestUntrusted(NetworkBench):
    async def test_unknown_certificate_is_refused_at_once(self, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        async with self.playing(["hello"], tls=context) as (provider, service, naps):
            for _ in range(2):
                with pytest.raises(ProviderError, match="SSL_CERT_FILE"):
                    await self.parts(provider, ask())
            assert naps.taken == [] and service.requests == []

    def test_the_folder_of_the_system_is_tried_first(self, monkeypatch: pytest.MonkeyPatch, certificate: Path) -> None:
        paths = ssl.get_default_verify_paths()
        monkeypatch.setattr(
            ssl, "get_default_verify_paths", lambda: paths._replace(capath=str(certificate.parent / "hashed"))
        )
        first, *others = contexts("", "")
        assert (
            is_hashed(str(certificate.parent / "hashed")) and first.cert_store_stats()["x509"] == 0 and len(others) == 1
        )
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths._replace(capath=None))
        assert len(list(contexts("", ""))) == 1

    async def test_certificates_that_are_not_there(self) -> None:
        self.environ = {"SSL_CERT_FILE": "/nowhere/ca.pem"}
        provider = self.make("https://127.0.0.1:9", Naps())
        with pytest.raises(UsageError, match=r"/nowhere/ca\.pem"):
            await self.parts(provider, ask())


class TestProxies(NetworkBench):
    async def test_plain_request_through_a_proxy(self, proxies: Callable[..., Proxy]) -> None:
        proxy = proxies()
        self.environ = {"HTTP_PROXY": f"127.0.0.1:{proxy.port}"}
        async with self.playing(["hello"]) as (provider, service, _):
            assert (await self.answer(provider, ask())).content == HELLO
            assert proxy.seen[0].startswith(f"POST {service.url}/v1/messages HTTP/1.1")

    async def test_no_proxy(self, proxies: Callable[..., Proxy]) -> None:
        proxy = proxies()
        self.environ = {"HTTP_PROXY": f"http://127.0.0.1:{proxy.port}", "NO_PROXY": "localhost,127.0.0.0/8"}
        async with self.playing(["hello"]) as (provider, _, _):
            await self.answer(provider, ask())
        assert proxy.seen == []

    async def test_refusing_proxy(self, proxies: Callable[..., Proxy]) -> None:
        proxy = proxies(refuse="403 Forbidden")
        self.environ = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}
        provider = self.make("https://127.0.0.1:9", Naps())
        with pytest.raises(ProviderError, match="NO_PROXY") as caught:
            await self.parts(provider, ask())
        assert caught.value.status == 403
        await provider.close()


class TestConnections(NetworkBench):
    async def test_one_connection_for_all_turns(self) -> None:
        opened: list[int] = []

        class Counted(MessagesService):
            def _handle(self, exchange: Any) -> None:
                opened.append(exchange._sock.fileno())
                super()._handle(exchange)

        naps = Naps()
        with Counted(lambda body: "ok") as service:
            provider = self.make(service.url, naps)
            for _ in range(3):
                await self.answer(provider, ask())
            await provider.count(self.request_of(ask()))
            await provider.close()
        assert len(set(opened)) == 1 and len(opened) == 4

    async def test_connection_that_the_service_closed_is_replaced_without_a_wait(self) -> None:
        async with self.playing(["one", "two"]) as (provider, service, naps):
            await self.answer(provider, ask())
            for sock in list(service._server._open):
                sock.shutdown(socket.SHUT_RDWR)
            await anyio.sleep(0.05)
            assert (await self.answer(provider, ask())).content == [text("two")]
            assert naps.taken == []

    async def test_silence_is_a_passing_failure(self) -> None:
        self.changed = {"anthropic__read_timeout": 0.2}
        async with self.playing([{"content": HELLO, "delay": 5}, "hello"]) as (provider, service, naps):
            assert (await self.answer(provider, ask())).content == HELLO
            assert len(naps.taken) == 1
            assert await self.hung_up(service)

    async def test_connection_that_does_not_come_about(self) -> None:
        self.changed = {"anthropic__connect_timeout": 0.2, "anthropic__max_retries": 0}
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
            address = full.getsockname()
            for _ in range(3):
                sock = waiting.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex(address)
            provider = self.make(f"http://127.0.0.1:{address[1]}", Naps())
            with pytest.raises(Overloaded, match=r"within 0\.2 seconds|silent"):
                await self.parts(provider, ask())
            await provider.close()

    async def test_answer_that_is_no_stream(self) -> None:
        async with self.playing([]) as (_, service, _):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"
                thread = threading.Thread(target=_answer_once, args=(listener, page))
                thread.start()
                provider = self.make(f"http://127.0.0.1:{listener.getsockname()[1]}", Naps())
                with pytest.raises(BadRequest, match=r"provider\.base_url"):
                    await self.parts(provider, ask())
                thread.join()
                await provider.close()
            assert service.requests == []

    @pytest.mark.parametrize(
        "junk", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {]\n\n"]
    )
    async def test_junk_is_a_passing_failure(self, junk: bytes) -> None:
        self.changed = {"anthropic__max_retries": 0}
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=_answer_once, args=(listener, junk))
            thread.start()
            provider = self.make(f"http://127.0.0.1:{listener.getsockname()[1]}", Naps())
            with pytest.raises(Overloaded):
                await self.parts(provider, ask())
            thread.join()
            await provider.close()


def _answer_once(listener: socket.socket, data: bytes) -> None:
    sock = listener.accept()[0]
    with sock:
        sock.recv(65_536)
        sock.sendall(data)


class TestHeaders(NetworkBench):
    async def test_credentials_and_further_headers(self) -> None:
        self.environ = {"ANTHROPIC_AUTH_TOKEN": "tok", "ANTHROPIC_CUSTOM_HEADERS": "X-Team: a b\nanthropic-beta: x"}
        async with self.playing(["hello"]) as (provider, service, _):
            await self.answer(provider, ask())
            headers = service.requests[0].headers
        assert headers["x-team"] == "a b" and headers["anthropic-beta"] == "x"
        assert headers["x-api-key"].startswith("sha256:") and headers["authorization"].startswith("sha256:")
        assert headers["anthropic-version"] == "2026-10-21"

    @pytest.mark.parametrize("transport", ["http", "sdk"])
    async def test_missing_key_says_what_to_set(self, transport: str) -> None:
        self.changed = {"provider__transport": transport}
        self.environ = {"ANTHROPIC_API_KEY": ""}
        async with self.playing(["hello"]) as (provider, service, _):
            with pytest.raises(ProviderError, match="ANTHROPIC_API_KEY"):
                await self.parts(provider, ask())
            assert service.requests == []

    async def test_base_url_with_a_path(self) -> None:
        async with self.playing([]) as (_, service, _):
            provider = self.make(f"{service.url}/gateway/v1/", Naps())
            with pytest.raises(BadRequest, match="/gateway/v1/messages"):
                await self.parts(provider, ask())
            await provider.close()

    async def test_setting_counts_before_the_variable(self) -> None:
        async with self.playing(["hello"]) as (_, service, _):
            self.changed = {"provider__base_url": service.url}
            provider = self.make("http://127.0.0.1:9", Naps())
            request = Request(model="m", system=[], tools=[], messages=[Message("user", HELLO)], max_tokens=5)
            parts = [part async for part in provider.stream(request)]
            assert isinstance(parts[-1], Answer) and parts[-1].content == HELLO
            await provider.close()
