"""`peg audit`: check the decision log record by record, and show what it says.

The log is only worth something when a person who trusts nobody can check it; so this reads bytes, not objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

SEAL = re.compile(rb',"hash":"([0-9a-f]{64})"\}\Z')
ANCHOR = re.compile(r"decision log: record (\d+), hash ([0-9a-f]{64})")


@dataclass
class Checked:
    """What a check of the chain found."""

    records: int = 0
    files: int = 0
    first: int = 0
    last: int = 0
    last_hash: str = ""
    skipped: list[str] = field(default_factory=list)
    """Lines that a crash cut, each noted by the record behind it."""
    anchors: int = 0
    """Anchors that were compared."""
    broken: dict[str, Any] | None = None
    """The first record that does not fit: file, line, seq, id, reason."""

    def shown(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"ok": self.broken is None, **vars(self)}


@click.group(short_help="Check and show the log of decisions.")
def command() -> None:
    """Check and show the log of decisions: one record for each, each holding the hash of the one before it."""


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--after", metavar="HASH", help="The chain may begin behind this record, as older files were put away.")
@click.option("--sessions", is_flag=True, help="Also compare what each transcript of this user says about the log.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="A log that lies elsewhere.")
@click.option("--anchors", type=click.Path(dir_okay=False, path_type=Path), help="Default: audit.anchor_file.")
def verify(as_json: bool, after: str | None, sessions: bool, folder: Path | None, anchors: Path | None) -> int:
    """Check the whole chain; name the first record that was changed, taken out or put in.

    Exit code 1 when the chain is broken. What follows the last anchor can be cut off unseen: set audit.anchor_file to a
    place that the user of this machine cannot change.
    """
    from pegboard.cli.start import start

    begun = start()
    places = begun.places
    wanted = list(_anchors(anchors or begun.settings.value("audit.anchor_file")))
    if sessions:
        wanted += _in_transcripts(places.user_dir / "projects")
    found = check(folder or places.user_dir / "audit", after=after or "", anchors=wanted)
    if as_json:
        _print_json(found.shown())
    else:
        _say(found)
    return 1 if found.broken else 0


@command.command()
@click.option("--session", metavar="ID", help="Only decisions of this session.")
@click.option("--tool", help="Only decisions about this tool.")
@click.option("--denied", is_flag=True, help="Only what was refused.")
@click.option("-n", "count", type=click.IntRange(min=1), default=50, show_default=True, help="How many, the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(session: str | None, tool: str | None, denied: bool, count: int, as_json: bool) -> None:
    """Show the newest decisions: when, what, verdict, and who decided."""
    from collections import deque

    from pegboard.cli.start import start

    kept: deque[dict[str, Any]] = deque(maxlen=count)
    for _, _, line in _lines(start().places.user_dir / "audit"):
        record = _decoded(line)
        if (
            record is not None
            and (session is None or str(record.get("session", "")).startswith(session))
            and (tool is None or record.get("tool") == tool)
            and (not denied or record.get("verdict") == "deny")
        ):
            kept.append(record)
    if as_json:
        _print_json(list(kept))
        return
    from pegboard.decision import visible

    for record in kept:
        by = record.get("decided_by") or {}
        why = " ".join(filter(None, (by.get("by"), by.get("source"), by.get("reason"))))
        targets = "; ".join(item.get("target", "") for item in record.get("segments") or ())
        click.echo(visible(f"{record['seq']:>6} {record['ts']} {record['verdict']:5} {record['tool']} {targets}"))
        click.echo(visible(f"       {why}"))


def check(folder: Path, *, after: str = "", anchors: Iterable[tuple[int, str, str]] = ()) -> Checked:
    """Read every file of a log and check that each record is as it was written, where it was written.

    ``after``: the hash that the first record may refer to. ``anchors``: number, hash and place of each known record.
    """
    known: dict[int, list[tuple[str, str]]] = {}
    for seq, digest, place in anchors:
        known.setdefault(seq, []).append((digest, place))
    found, paths = Checked(), set()
    pending: list[tuple[str, Path, int]] = []
    for path, number, line in _lines(folder):
        paths.add(path)
        record = _decoded(line)
        if record is None:
            pending.append((hashlib.sha256(line).hexdigest(), path, number))
            continue
        digests = [digest for digest, _, _ in pending]
        if pending and record.get("skipped", []) != digests:
            _, path, number = pending[0]
            reason = "it is no record any more, and the next one does not know of it"
            found.broken = _place(path, number, found.last + 1, None, reason)
            break
        reason = _fault(line, record, digests, found, after)
        for digest, place in known.pop(record["seq"], ()):
            found.anchors += 1
            if not reason and digest != record["hash"]:
                reason = f"{place} knows record {record['seq']} with another hash: the log was written anew"
        if reason:
            found.broken = _place(path, number, record["seq"], record.get("id"), reason)
            break
        found.records, found.first = found.records + 1, found.first or record["seq"]
        found.last, found.last_hash = record["seq"], record["hash"]
        found.skipped += digests
        pending = []
    found.files = len(paths)
    beyond = sorted(seq for seq in known if seq > found.last)
    if found.broken is None and beyond:
        place = known[beyond[0]][0][1]
        reason = f"{place} knows a record {beyond[0]}, and the log ends with {found.last}: its end was cut off"
        found.broken = _place(folder, None, found.last + 1, None, reason)
    found.skipped += [digest for digest, _, _ in pending]
    return found


def _place(path: Path, line: int | None, seq: int, name: str | None, reason: str) -> dict[str, Any]:
    return {"file": str(path), "line": line, "seq": seq, "id": name, "reason": reason}


def _fault(line: bytes, record: dict[str, Any], pending: list[str], found: Checked, after: str) -> str:
    """Why a record does not fit where it stands; empty if it does."""
    seal = SEAL.search(line)
    assert seal is not None
    if hashlib.sha256(line[: seal.start()] + b"}").hexdigest() != record["hash"]:
        return "its content is not what was written"
    if not found.records:
        if after and record["prev_hash"] != after:
            return "it does not follow the record that --after names"
        if not after and (record["seq"] != 1 or record["prev_hash"]):
            return f"the chain begins with it, and {record['seq'] - 1} records before it are not here"
    elif record["prev_hash"] != found.last_hash or record["seq"] != found.last + 1:
        missing = record["seq"] - found.last - 1
        gone = f"; {missing} records between them are not here" if missing > 0 else ""
        return f"it does not follow record {found.last}{gone}"
    if record.get("skipped", []) != pending:
        return "a line that it knows of is missing before it"
    return ""


def _decoded(line: bytes) -> dict[str, Any] | None:
    """A record as it stands; None for what is none."""
    import msgspec

    seal = SEAL.search(line)
    if seal is None:
        return None
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    fits = isinstance(record, dict) and isinstance(record.get("seq"), int) and isinstance(record.get("prev_hash"), str)
    return record if fits and record.get("hash") == seal[1].decode() else None


def _lines(folder: Path) -> Iterator[tuple[Path, int, bytes]]:
    from pegboard.audit import files

    for path in files(folder):
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if text := line.removesuffix(b"\n"):
                    yield path, number, text


def _anchors(path: str | Path) -> Iterator[tuple[int, str, str]]:
    """What the second place knows. Raises `UsageError` when it is named and cannot be read."""
    import msgspec

    from pegboard.errors import UsageError

    if not str(path):
        return
    try:
        for line in Path(path).read_bytes().splitlines():
            entry = msgspec.json.decode(line)
            yield entry["seq"], entry["hash"], str(path)
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise UsageError(f"The anchors {path} cannot be read: {error}.") from None


def _in_transcripts(folder: Path) -> Iterator[tuple[int, str, str]]:
    from pegboard.errors import TranscriptError
    from pegboard.events import Notice
    from pegboard.transcript import read

    for path in sorted(folder.glob("*/*/transcript.jsonl")):
        try:
            for record in read(path):
                if isinstance(record, Notice) and record.kind == "audit" and (said := ANCHOR.match(record.text)):
                    yield int(said[1]), said[2], str(path)
        except TranscriptError:
            continue


def _say(found: Checked) -> None:
    if found.skipped:
        count = "1 line is" if len(found.skipped) == 1 else f"{len(found.skipped)} lines are"
        click.echo(f"peg: {count} no record: a process was ended while it wrote.", err=True)
    if found.broken:
        place = f"{found.broken['file']}:{found.broken['line']}" if found.broken["line"] else found.broken["file"]
        name = f" ({found.broken['id']})" if found.broken["id"] else ""
        click.echo(f"broken at record {found.broken['seq']}{name}, {place}: {found.broken['reason']}.")
        click.echo(f"{found.records} records before it are sound.")
    elif not found.records:
        click.echo("The decision log is empty.")
    else:
        anchors = f", {found.anchors} anchors agree" if found.anchors else ""
        click.echo(f"{found.records} records, {found.first} to {found.last}, are as they were written{anchors}.")
        click.echo(f"last hash: {found.last_hash}")


def _print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
