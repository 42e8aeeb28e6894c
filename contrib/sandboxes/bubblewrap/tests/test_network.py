"""The network of a box: nothing but the proxy, which judges names and addresses, and a loopback of its own."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
import time
from dataclasses import replace

import pytest

CURL = "curl -sS -m 10 -o /dev/null -w '%{http_code}' "


class Hello(http.server.BaseHTTPRequestHandler):
    """Answers hello to whatever is asked."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *given):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.05,))
        thread.start()
        yield found.server_address[1]
        found.shutdown()
        thread.join()


async def test_an_allowed_host_is_reached_through_the_proxy(room, server):
    await room.open(hosts=(f"127.0.0.1:{server}",))
    done = room.run(f"curl -sS --noproxy '' http://127.0.0.1:{server}/x")
    assert done.stdout == "hello", done.stderr
    assert room.box.violations(done.stderr) == []


async def test_python_and_git_find_the_proxy_by_themselves(room, server):
    await room.open(hosts=("localhost", "127.0.0.1", "::1"))
    code = f"import urllib.request as r; print(r.urlopen('http://allowed.invalid:{server}/').read())"
    done = room.run(f'python3 -c "{code}"; git ls-remote http://denied.invalid/x.git')
    assert "403" in done.stderr
    found = room.box.violations(done.stderr)
    assert [line.split()[1] for line in found] == [f"allowed.invalid:{server}", "denied.invalid:80"]


async def test_an_empty_list_means_nothing(room, server):
    await room.open()
    for target in (f"http://127.0.0.1:{server}/", "https://evil.example/", "http://169.254.169.254/latest/meta-data/"):
        assert room.run(f"{CURL} --noproxy '' {target}").stdout in ("403", "000")
    assert len(room.box.violations("")) == 3


async def test_there_is_no_way_past_the_proxy(room, server):
    await room.open(hosts=("*",))
    for command in (
        f"{CURL} --noproxy '*' http://127.0.0.1:{server}/", f"{CURL} --noproxy '*' http://1.1.1.1/",
        "curl -sS -m 5 --proxy http://1.1.1.1:3128 http://10.0.0.1/", "getent hosts example.com",
        "ping -c1 -W1 1.1.1.1",
    ):  # fmt: skip
        assert room.run(command).returncode, command


async def test_private_addresses_are_refused_although_every_name_is_allowed(room, server):
    await room.open(hosts=("*",))
    for host in ("localhost", "127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"):
        done = room.run(f"{CURL} --noproxy '' http://{host}:{server}/")
        assert done.stdout in ("403", "400", "000"), host


async def test_a_server_of_one_command_is_there_for_the_next(room):
    await room.open()
    argv, env = room.box.wrap(["python3", "-m", "http.server", "-b", "127.0.0.1", "8000"], dict(os.environ))
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, env=env, cwd=room.work, stdin=quiet, stdout=quiet, stderr=quiet) as process:
        ending = time.monotonic() + 20
        while room.run("curl -sSf -m 5 http://127.0.0.1:8000/").returncode and time.monotonic() < ending:
            time.sleep(0.05)
        assert room.run("curl -sSf -m 5 http://127.0.0.1:8000/").returncode == 0
        process.kill()
    room.box.ended()


async def test_refusals_belong_to_the_call_that_met_them(room):
    await room.open()
    other = room.shared.box(replace(room.need, hosts=("example.org",)))
    await other.prepare()
    room.run(f"{CURL} https://first.example/")
    assert [line.split()[1] for line in room.box.violations("")] == ["first.example:443"]
    assert other.violations("") == []


async def test_a_refused_host_is_refused_beside_a_wider_allow(room, server):
    await room.open(hosts=("*", "127.0.0.1"), refused_hosts=("*.evil.example",))
    room.run(f"{CURL} https://x.evil.example/")
    assert room.box.violations("") == ["network: x.evil.example:443 was refused: a rule refuses it"]
