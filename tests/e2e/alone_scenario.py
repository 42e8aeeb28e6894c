"""A whole session in a network of its own in which every address exists; prints where any packet went.

Run by `unshare -n`, as root. All of the internet is this machine's loopback here, and a raw socket sees every packet of
the product and of every program that it starts.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

from pegboard.testing.messages import MessagesService

ALL = socket.htons(3)


def main(work: str, home: str, script: str) -> None:
    for words in ("link set lo up", "route add local default dev lo", "-6 route add local default dev lo"):
        subprocess.run(["ip", *words.split()], check=False, capture_output=True)
    seen: set[str] = set()
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, ALL)
    sniffer.bind(("lo", 0))
    threading.Thread(target=listen, args=(sniffer, seen), daemon=True).start()
    with MessagesService(json.loads(script)) as service:
        env = {"PATH": "/usr/bin:/bin", "HOME": home, "ANTHROPIC_API_KEY": "sk-test"}
        env |= {"ANTHROPIC_BASE_URL": service.url, "PEG_MANAGED_DIR": f"{home}/managed"}
        peg = Path(sys.executable).with_name("peg")
        ended = subprocess.run([peg, *sys.argv[4:]], cwd=work, env=env, stdin=subprocess.DEVNULL, check=False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        control.sendto(b"seen?", ("192.0.2.1", 53))
    while "192.0.2.1" not in seen:
        pass
    print(json.dumps({"code": ended.returncode, "seen": sorted(seen)}))


def listen(sniffer: socket.socket, seen: set[str]) -> None:
    while True:
        packet = sniffer.recv(65_536)
        raw = packet[16:20] if packet[0] >> 4 == 4 else packet[24:40]
        address = ipaddress.ip_address(raw)
        if not address.is_loopback:
            seen.add(str(address))


if __name__ == "__main__":
    main(*sys.argv[1:4])
