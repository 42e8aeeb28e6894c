"""Signed managed policy: made by `peg policy sign`, checked at every start, and never excused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pegboard import signature
from pegboard.errors import PolicyError
from pegboard.places import Places
from pegboard.settings import Settings


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(tmp_path / "p", tmp_path, tmp_path / "p", tmp_path / "user", tmp_path / "managed")
    for folder in (found.project_dir, found.user_dir, found.managed_dir / "managed.d"):
        folder.mkdir(parents=True)
    return found


def peg(places: Places, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {
        "HOME": str(places.home), "PEG_HOME": str(places.user_dir), "PATH": os.environ["PATH"],
        "PEG_MANAGED_DIR": str(places.managed_dir), "OPENSSL_CONF": "/nowhere",
    }  # fmt: skip
    command = [sys.executable, "-m", "pegboard", *words]
    return subprocess.run(
        command, cwd=places.cwd, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def signed(places: Places, tmp_path: Path) -> Path:
    """One signed drop-in; managed.toml demands signatures."""
    path = places.managed_dir / "managed.d" / "10.toml"
    path.write_text('permissions.deny = ["Bash"]\n')
    done = peg(places, "policy", "sign", str(path), "--key", str(tmp_path / "key.pem"), "--new-key")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    (places.managed_dir / "managed.toml").write_text(done.stdout)
    return path


def test_a_good_signature_lets_the_policy_hold(places: Places, signed: Path) -> None:
    assert [rule.text for rule in Settings.load(places).rules()] == ["Bash"]
    done = peg(places, "settings", "get", "permissions.deny")
    assert (done.returncode, done.stdout) == (0, '["Bash"]\n'), done.stderr


def change_file(path: Path) -> None:
    path.write_text("permissions.deny = []\n")


def change_signature(path: Path) -> None:
    data = bytearray(path.with_name("10.toml.sig").read_bytes())
    data[5] ^= 1
    path.with_name("10.toml.sig").write_bytes(data)


def remove_signature(path: Path) -> None:
    path.with_name("10.toml.sig").unlink()


def add_unsigned(path: Path) -> None:
    path.with_name("20.toml").write_text('managed.on_error = "ignore"\n')


def swap_signature(path: Path) -> None:
    path.with_name("20.toml").write_text("permissions.deny = []\n")
    path.with_name("20.toml.sig").write_bytes(path.with_name("10.toml.sig").read_bytes())


def spoil_key(path: Path) -> None:
    (path.parent.parent / "managed.toml").write_text('managed.signing_key = "ed25519:AAAA"\n')


def other_key(path: Path) -> None:
    key = "ed25519:" + "A" * 43 + "="
    (path.parent.parent / "managed.toml").write_text(f'managed.signing_key = "{key}"\n')


def key_of_the_wrong_type(path: Path) -> None:
    (path.parent.parent / "managed.toml").write_text("managed.signing_key = 3\n")


def key_in_a_drop_in(path: Path) -> None:
    path.with_name("00.toml").write_text('managed.signing_key = ""\n')


@pytest.mark.parametrize(
    "spoil",
    [
        change_file, change_signature, remove_signature, add_unsigned, swap_signature, spoil_key, other_key,
        key_of_the_wrong_type, key_in_a_drop_in,
    ],
)  # fmt: skip
def test_anything_else_stops_the_start(places: Places, signed: Path, spoil) -> None:
    spoil(signed)
    with pytest.raises(PolicyError):
        Settings.load(places)
    done = peg(places, "tools", "list")
    assert done.returncode == 2 and "anaged" in done.stderr, done.stderr


def test_a_change_during_a_run_keeps_the_last_good_policy(places: Places, signed: Path, tmp_path: Path) -> None:
    settings = Settings.load(places)
    signed.write_text('permissions.deny = ["Read"]\n')
    assert settings.refresh()
    assert [rule.text for rule in settings.rules()] == ["Bash"]
    assert "signature" in str(settings.problems[0])
    assert peg(places, "policy", "sign", str(signed), "--key", str(tmp_path / "key.pem")).returncode == 0
    assert settings.refresh()
    assert [rule.text for rule in settings.rules()] == ["Read"]
    assert settings.problems == []


def test_without_an_openssl_to_rely_on_nothing_starts(places: Places, signed: Path, monkeypatch, tmp_path) -> None:
    fake = tmp_path / "openssl"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o777)
    monkeypatch.setattr(signature, "PROGRAMS", (str(fake),))
    with pytest.raises(PolicyError, match="needs OpenSSL"):
        Settings.load(places)


@pytest.mark.parametrize("text", ["", "broken = ", "\udcff"])
def test_what_is_no_policy_is_not_signed(places: Places, tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = peg(places, "policy", "sign", str(path), "--key", str(tmp_path / "key.pem"), "--new-key")
    assert done.returncode == 2 and "not signed" in done.stderr
    done = peg(places, "policy", "sign", "--key", str(tmp_path / "key.pem"), "--new-key")
    assert done.returncode == 2 and "cannot be made" in done.stderr
