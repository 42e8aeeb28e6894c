"""The proxy on a real socket: what passes, what is refused, who hears of it."""

from __future__ import annotations

import base64
import socket
import socketserver
import threading
from contextlib import closing, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_boxes.addresses import AllowList
from pegboard_boxes.proxy import Proxy, Refused, parse


def listen():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    return listener, listener.getsockname()[1]


class Echo(socketserver.StreamRequestHandler):
    """Answers with the request it got, after the head of an HTTP answer."""

    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                break
            head += line
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + head)


@pytest.fixture
def server():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as found:
        found.daemon_threads = True
        thread = threading.Thread(target=found.serve_forever, args=(0.05,))
        thread.start()
        yield found.server_address[1]
        found.shutdown()
        thread.join()


@pytest.fixture
def proxy():
    made = Proxy(listen)
    made.start()
    yield made
    made.close()


def ask(proxy, raw: bytes) -> bytes:
    with closing(socket.create_connection(("127.0.0.1", proxy.port), 20)) as line:
        line.sendall(raw)
        line.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := line.recv(65536):
            got += chunk
        return got


def sign(word: str) -> bytes:
    return b"Proxy-Authorization: Basic " + base64.b64encode(f"{word}:x".encode()) + b"\r\n"


def test_a_plain_request_is_passed_on_in_a_form_of_its_own(proxy, server):
    guest = proxy.welcome(AllowList((f"127.0.0.1:{server}",)))
    raw = b"GET http://127.0.0.1:%d/a?b=1 HTTP/1.1\r\nHost: evil.example\r\n%sX-Own: 1\r\n" % (server, sign(guest.word))
    got = ask(proxy, raw + b"Proxy-Connection: keep-alive\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")
    body = got.partition(b"\r\n\r\n")[2]
    assert body.startswith(b"GET /a?b=1 HTTP/1.1\r\n") and b"Host: 127.0.0.1:%d\r\n" % server in body
    assert b"X-Own: 1" in body and b"evil" not in body and b"Proxy" not in body and b"Connection: close" in body
    assert guest.denials == []


def test_a_tunnel_passes_bytes_both_ways(proxy, server):
    guest = proxy.welcome(AllowList(("127.0.0.1",)))
    with closing(socket.create_connection(("127.0.0.1", proxy.port), 20)) as line:
        line.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n%s\r\n" % (server, sign(guest.word)))
        assert line.recv(100) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        line.sendall(b"HELLO\r\n\r\n")
        line.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := line.recv(4096):
            got += chunk
    assert got.endswith(b"HELLO\r\n\r\n")


def test_the_refused_host_is_named_to_the_program_and_to_us(proxy):
    guest = proxy.welcome(AllowList(("ok.example",)))
    for raw in (b"CONNECT evil.example:443 HTTP/1.1\r\n", b"GET http://ok.example.evil.org/ HTTP/1.1\r\n"):
        got = ask(proxy, raw + sign(guest.word) + b"\r\n")
        assert got.startswith(b"HTTP/1.1 403") and b"is not among the allowed hosts" in got
    assert [denial.host for denial in guest.denials] == ["evil.example", "ok.example.evil.org"]
    assert str(guest.denials[0]) == "network: evil.example:443 was refused: it is not among the allowed hosts"


def test_a_name_that_leads_to_this_machine_is_refused_whatever_it_is_called(proxy, server):
    guest = proxy.welcome(AllowList(("localhost",)))
    got = ask(proxy, b"CONNECT localhost:%d HTTP/1.1\r\n%s\r\n" % (server, sign(guest.word)))
    assert got.startswith(b"HTTP/1.1 403") and b"it is this machine" in got
    assert guest.denials[0].why.startswith("it leads to ")


def test_a_name_and_its_address_named_both_may_be_reached(proxy, server):
    guest = proxy.welcome(AllowList(("localhost", "127.0.0.0/8", "::1")))
    got = ask(proxy, b"GET http://localhost:%d/ HTTP/1.1\r\n%s\r\n" % (server, sign(guest.word)))
    assert got.startswith(b"HTTP/1.1 200")


def test_each_box_is_judged_by_its_own_list_and_hears_of_its_own_refusals(proxy):
    first, second = proxy.welcome(AllowList(())), proxy.welcome(AllowList(()))
    ask(proxy, b"CONNECT a.example:443 HTTP/1.1\r\n%s\r\n" % sign(first.word))
    ask(proxy, b"CONNECT b.example:443 HTTP/1.1\r\n%s\r\n" % sign(second.word))
    ask(proxy, b"CONNECT c.example:443 HTTP/1.1\r\n\r\n")
    assert [denial.host for denial in first.denials] == ["a.example"]
    assert [denial.host for denial in second.denials] == ["b.example", "c.example"]


def test_on_a_shared_loopback_nobody_without_a_word_is_served(proxy, server):
    proxy.strict = True
    proxy.welcome(AllowList(("127.0.0.1",)))
    for word in (b"", sign("guessed")):
        got = ask(proxy, b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n%s\r\n" % (server, word))
        assert got.startswith(b"HTTP/1.1 407") and b"Proxy-Authenticate: Basic" in got


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n", b"GET https://ok.example/ HTTP/1.1\r\n\r\n",
        b"GET http://u:p@ok.example/ HTTP/1.1\r\n\r\n", b"GET http://ok.example\\@evil.org/ HTTP/1.1\r\n\r\n",
        b"CONNECT ok.example HTTP/1.1\r\n\r\n", b"CONNECT ok.example:0 HTTP/1.1\r\n\r\n",
        b"CONNECT ok.example:99999 HTTP/1.1\r\n\r\n", b"CONNECT a b HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"\0\r\n\r\n",
        b"CONNECT ok.example:443 HTTP/2\r\n\r\n", b"CONNECT ok.example:443 HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET ftp://ok.example/ HTTP/1.1\r\n\r\n", "GET http://bücher.example/ HTTP/1.1\r\n\r\n".encode(),
    ],
)  # fmt: skip
def test_what_is_no_plain_request(proxy, raw):
    proxy.welcome(AllowList(("ok.example",)))
    assert ask(proxy, raw).startswith(b"HTTP/1.1 400")


def test_a_request_without_an_end_is_cut_off(proxy):
    proxy.welcome(AllowList(()))
    with suppress(OSError):  # it answers before all of it is read
        assert ask(proxy, b"GET " + b"a" * 200_000).startswith(b"HTTP/1.1 431")


def test_a_proxy_that_cannot_listen_says_so():
    def broken():
        raise OSError("no socket")

    with pytest.raises(OSError, match="no socket"):
        Proxy(broken).start()


def test_closing_ends_open_tunnels(server):
    made = Proxy(listen)
    made.start()
    made.welcome(AllowList(("127.0.0.1",)))
    with closing(socket.create_connection(("127.0.0.1", made.port), 20)) as line:
        line.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % server)
        line.recv(100)
        made.close()
        assert line.recv(100) == b""
    made.close()


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(raw):
    try:
        target = parse(raw)
    except Refused:
        return
    assert target.host and 0 < target.port < 65536


@given(st.text(st.characters(codec="ascii"), max_size=40), st.integers(0, 70000))
@settings(max_examples=100, deadline=None)
def test_the_host_that_is_judged_is_the_host_that_is_told(host, port):
    try:
        target = parse(f"GET http://{host}:{port}/x HTTP/1.1\r\nHost: other.example".encode())
    except Refused:
        return
    told = target.head.split(b"\r\n")[1].decode()
    assert told.removeprefix("Host: ").removesuffix(f":{target.port}").strip("[]") == target.host
    assert "other.example" not in target.head.decode()
