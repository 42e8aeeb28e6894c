"""`peg policy sign`: for operators, a detached signature beside each managed file, and the line that demands it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from pegboard.errors import UsageError


def run_sign(files: Sequence[Path], key: Path, new_key: bool) -> None:
    """Sign the files with the private key; with ``new_key`` make that first. Raises `UsageError`."""
    from pegboard.settings_files import Unparsable, parse_toml
    from pegboard.signature import public_key

    if new_key:
        _make(key)
    for path in files:
        try:
            content = path.read_text("utf-8")
            parse_toml(content)
        except (OSError, UnicodeDecodeError, Unparsable) as error:
            raise UsageError(f"{path} is not signed, as it cannot be read: {error}.") from None
        if not content:
            raise UsageError(f"{path} is not signed: it is empty.")
        _openssl(["pkeyutl", "-sign", "-inkey", str(key), "-rawin", "-in", str(path), "-out", f"{path}.sig"])
        click.echo(f"peg: wrote {path}.sig", err=True)
    der = _openssl(["pkey", "-in", str(key), "-pubout", "-outform", "DER"])
    click.echo(f'managed.signing_key = "{public_key(der)}"')


def _make(key: Path) -> None:
    try:
        os.close(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise UsageError(f"{key} cannot be made: {error.strerror}.") from None
    key.write_bytes(_openssl(["genpkey", "-algorithm", "ed25519"]))
    click.echo(f"peg: wrote the private key {key}; keep it away from the machines that it signs for", err=True)


def _openssl(words: list[str]) -> bytes:
    from pegboard.signature import run

    done = run(words)
    if done.returncode != 0:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise UsageError(f"openssl {words[0]} failed: {said}. The key must be a private Ed25519 key in PEM form.")
    return done.stdout
