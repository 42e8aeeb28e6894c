"""Detached Ed25519 signatures of managed policy, checked by the system's own OpenSSL.

Policy is read before anything may be loaded, so what checks it can be no plug-in; and a cryptographic library in the
core would be paid for by everybody for what few deployments use.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import subprocess
import tempfile
from pathlib import Path

from pegboard.errors import PolicyError

PROGRAMS = ("/usr/bin/openssl", "/usr/local/bin/openssl", "/opt/homebrew/bin/openssl")
"""Never by PATH: whoever sets it would choose who checks the policy."""

PREFIX = "ed25519:"
_DER = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes of the key in a SubjectPublicKeyInfo (RFC 8410)."""

SECONDS = 10
"""[C] Longest that OpenSSL may take."""


def check(path: str, content: bytes, key: str) -> None:
    """Check the signature that lies beside a managed file as ``<file>.sig``.

    ``content`` are the bytes that were read, ``key`` is ``ed25519:<base64>``. Raises `PolicyError`: what is not signed
    well is no policy, and a start without it would be a start without policy.
    """
    pem = _pem(key)
    try:
        signature = Path(f"{path}.sig").read_bytes()
    except OSError as error:
        raise PolicyError(f"Managed policy {path} is not signed: {path}.sig: {error.strerror}.") from None
    with tempfile.TemporaryDirectory(prefix="peg-") as folder:
        files = {name: Path(folder, name) for name in ("key", "text", "signature")}
        for file, data in zip(files.values(), (pem, content, signature), strict=True):
            file.write_bytes(data)
        words = ["pkeyutl", "-verify", "-pubin", "-inkey", files["key"], "-rawin", "-in", files["text"]]
        done = run([*map(str, words), "-sigfile", str(files["signature"])])
    if done.returncode != 0:
        raise PolicyError(
            f"The signature of managed policy {path} is not good: the file or {path}.sig was changed, or another key "
            "was used. Nothing runs until it is signed again with: peg policy sign"
        )


def run(words: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run OpenSSL without any of the user's environment. Raises `PolicyError` when there is none to rely on."""
    program = next((name for name in PROGRAMS if _reliable(name)), None)
    if program is None:
        raise PolicyError("Signed managed policy needs OpenSSL 3 at /usr/bin/openssl, owned by root.")
    try:
        return subprocess.run([program, *words], env={"PATH": "/usr/bin:/bin"}, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PolicyError(f"Signed managed policy cannot be checked: {error}.") from None


def public_key(der: bytes) -> str:
    """A public key as managed.toml holds it, from its DER form."""
    return PREFIX + base64.b64encode(der.removeprefix(_DER)).decode()


def _pem(key: str) -> bytes:
    try:
        raw = base64.b64decode(key.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not key.startswith(PREFIX) or len(raw) != 32:
        raise PolicyError(f"managed.signing_key is no key: write {PREFIX} and 32 bytes in base64; see peg policy sign.")
    body = base64.b64encode(_DER + raw).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n".encode()


def _reliable(program: str) -> bool:
    try:
        found = os.stat(program)
    except OSError:
        return False
    return found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
