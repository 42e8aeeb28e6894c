"""Runs for a moment inside a fresh network namespace: listens on its loopback, hands the socket and the namespace out.

A script for a bare interpreter, with the standard library alone. Its one argument is the socket to answer on.
"""

from __future__ import annotations

import os
import socket
import sys


def main() -> None:
    """Send the listening socket and both namespaces, with the port as text."""
    with socket.socket(fileno=int(sys.argv[1])) as channel, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "net")]
        socket.send_fds(channel, [str(listener.getsockname()[1]).encode()], [listener.fileno(), *spaces])


main()
