"""Whose certificates are trusted: the system's, or what SSL_CERT_FILE and SSL_CERT_DIR name.

Reading the whole bundle of a system costs as much as starting Python four times. Most systems also keep a folder in
which a certificate is found by its hash when it is needed; that folder is tried first.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator

from pegboard.errors import UsageError

_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


def contexts(file: str, folder: str) -> Iterator[ssl.SSLContext]:
    """The contexts to verify a service with, in the order in which to try them. Raises `UsageError`."""
    if file or folder:
        try:
            yield ssl.create_default_context(cafile=file or None, capath=folder or None)
        except OSError as error:
            named = f"SSL_CERT_FILE names {file}" if file else f"SSL_CERT_DIR names {folder}"
            raise UsageError(f"{named}, which cannot be used: {error.strerror or error}.") from None
        return
    hashed = ssl.get_default_verify_paths().capath
    if hashed and is_hashed(hashed):
        yield ssl.create_default_context(capath=hashed)
    yield ssl.create_default_context()


def is_hashed(folder: str) -> bool:
    """Whether a folder holds certificates under their hashes."""
    try:
        with os.scandir(folder) as entries:
            return any(_HASHED.fullmatch(entry.name) for entry in entries)
    except OSError:
        return False
