"""`peg plugins`: what was found, how the gate answers, what is approved; making, checking and installing plug-ins."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pegboard.cli.listing import begin, print_json

if TYPE_CHECKING:
    from pegboard.candidate import Candidate
    from pegboard.loader import Registry

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(short_help="List, explain, make and check plug-ins.")
def command() -> None:
    """List plug-ins and how the gate answers for them; approve, install and remove them; make and check new ones."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List everything that was found, also what was refused or is broken."""
    registry = begin().registry
    rows = [_row(registry, one) for one in registry.gather()]
    if as_json:
        print_json(rows)
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        reason = f": {row['reason']}" if row["reason"] else ""
        click.echo(f"{row['name']:{width}}  {row['kind']:8}  {row['origin']:8}  {row['where']}  {row['state']}{reason}")
    if not rows:
        click.echo("No plug-in was found.")


@command.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(name: str, as_json: bool) -> None:
    """Print the nine questions of the gate about NAME (a plug-in or a distribution), each with its answer."""
    registry = begin().registry
    found = [{**_row(registry, one), "digest": _digest(one), "gate": _answers(registry, one)}
             for one in _named(registry, name)]  # fmt: skip
    if as_json:
        print_json(found)
        return
    for row in found:
        click.echo(f"{row['name']} ({row['kind']}) from {row['where']}, source {row['origin']}")
        for answer in row["gate"]:
            mark = "no " if answer["objects"] else "yes"
            because = f" {answer['reason']}" + (f" ({answer['source']})" if answer["source"] else "")
            click.echo(f"  {mark}  {answer['asks']}" + (f" -{because}" if answer["objects"] else ""))
        reason = f": {row['reason']}" if row["reason"] else ""
        click.echo(f"  {row['state']}{reason}")


@command.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Approve without a question.")
def trust(name: str, yes: bool) -> None:
    """Approve the files of NAME as they are now; says first which of them changed since the last approval."""
    from pegboard.find import APPROVAL, files_of
    from pegboard.trust import changes, digest_files, digest_of

    begun = begin()
    one = _one(begun.registry, name)
    where = {"where": one.root}
    folder = files_of(one)
    try:
        files = digest_files(folder)
    except OSError as error:
        raise _usage(f"{error.filename} cannot be read, so nobody can approve it: {error.strerror}.") from None
    before = begun.trust.approval(APPROVAL, one.distribution, **where)
    click.echo(f"{one.name} in {folder}: {len(files)} files, {digest_of(files)}")
    if before is not None and before.digest == digest_of(files):
        click.echo("These files are approved already.")
        return
    for line in changes(before.files if before is not None else {}, files):
        click.echo(f"  {line}")
    _confirm(f"Let the code of {one.distribution} run on this machine?", yes)
    begun.trust.approve(APPROVAL, one.distribution, digest_of(files), files=files, **where)
    click.echo(f"Approved. peg plugins explain {one.name} says whether anything else is in the way.")


@command.command()
@click.argument("spec")
@click.option("--yes", is_flag=True, help="Install and approve without a question.")
def add(spec: str, yes: bool) -> None:
    """Install SPEC (a wheel, a folder, or the name of a package) for this user, in a folder of its own."""
    from pegboard.candidate import Origin
    from pegboard.cli.plugin_add import missing, refuse_contents, refuse_source, staged
    from pegboard.find import APPROVAL
    from pegboard.scan import Index, candidates, plugin_shelf
    from pegboard.trust import changes, digest_files, digest_of

    begun = begin()
    refuse_source(spec, begun.settings)
    with staged(spec, begun.places) as folder:
        refuse_contents(folder)
        index = Index(os.devnull, "")
        found = list(candidates(plugin_shelf(str(folder), index), index, Origin.USER, root=str(folder)))
        if not found:
            raise _usage(f"{spec} offers nothing to pegboard: it has no entry point in one of its groups.")
        name = found[0].distribution
        target = begun.places.user_dir / "plugins" / name
        files = digest_files(folder)
        click.echo(f"{name} {found[0].version}: {len(files)} files, {digest_of(files)}")
        for one in found:
            click.echo(f"  {one.kind} {one.name}: {_declares(one)}")
        for line in missing(folder):
            click.echo(f"  needs {line}, which is not installed here")
        before = begun.trust.approval(APPROVAL, name, where=os.path.realpath(target))
        for line in changes(before.files, files) if before is not None else ():
            click.echo(f"  {line}")
        _confirm(f"Install it to {target} and let its code run?", yes)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(folder, target)
    begun.trust.approve(APPROVAL, name, digest_of(files), files=files, where=os.path.realpath(target))
    click.echo(f"Installed. It is used from the next start on; peg plugins remove {name} takes it away again.")


@command.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Remove without a question.")
def remove(name: str, yes: bool) -> None:
    """Remove the plug-in NAME from the user's own plug-in folder, with its approval."""
    from pegboard.find import APPROVAL

    begun = begin()
    one = _one(begun.registry, name)
    home = os.path.join(os.path.realpath(begun.places.user_dir), "plugins")
    if not one.root or os.path.dirname(one.root) != home:
        how = f"delete {one.root}" if one.root else f"uninstall {one.distribution} with the tool that installed it"
        raise _usage(f"{one.name} is not one of your own plug-ins (source {one.origin}); {how}.")
    _confirm(f"Delete {one.root}?", yes)
    shutil.rmtree(one.root)
    begun.trust.withdraw(APPROVAL, one.distribution, where=one.root)
    click.echo(f"Removed {one.distribution}.")


@command.command()
@click.argument("name")
@click.option("--dir", "into", type=FOLDER, default=".", help="Where to make the folder; default: here.")
def new(name: str, into: Path) -> None:
    """Make a new plug-in NAME (such as weather-map) from the template, with tests that pass."""
    from pegboard.cli.plugin_make import new as make

    folder = make(name, into)
    click.echo(f"Made {folder}. It works as it is; change tool.py, prompt.md and tool.toml, then:")
    click.echo(f"  peg plugins build {folder}      writes schema.json")
    click.echo(f"  peg plugins validate {folder}   runs the standard tests and your own")


@command.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
def build(folder: Path) -> None:
    """Write the generated files of the plug-in in DIR: schema.json, and a first tool.toml where there is none."""
    from pegboard.cli.plugin_make import build as make

    changed = make(folder)
    for path in changed:
        click.echo(f"wrote {path}")
    if not changed:
        click.echo("Everything is up to date.")


@command.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
def validate(folder: Path) -> None:
    """Run the standard tests, and the plug-in's own, on the plug-in in DIR."""
    from pegboard.cli.plugin_make import validate as examine

    if sys.stderr.isatty():
        click.echo("Running the standard tests; this takes a moment ...", err=True)
    count, failed = examine(folder)
    for name, reason in failed:
        click.echo(f"failed  {name}\n        {reason}")
    if failed:
        click.echo(f"{len(failed)} of {count} checks failed.")
        raise SystemExit(1)
    click.echo(f"All {count} checks passed.")


def _row(registry: Registry, one: Candidate) -> dict[str, Any]:
    standing = registry.standing(one)
    return {
        "name": one.name,
        "kind": one.kind.value,
        "origin": one.origin.value,
        "where": one.where,
        "distribution": one.distribution,
        "version": one.version,
        "state": standing.state.value,
        "question": standing.question,
        "reason": standing.reason,
        "source": standing.source,
    }


def _answers(registry: Registry, one: Candidate) -> list[dict[str, Any]]:
    from pegboard.gate import GATE, PASSES

    now = registry.snapshot
    answers = []
    for question in GATE:
        refused = question(one, now)
        answers.append(
            {
                "question": question.__name__,
                "asks": PASSES[question.__name__],
                "objects": refused is not None,
                "reason": refused.reason if refused is not None else "",
                "source": refused.source if refused is not None else "",
            }
        )
    return answers


def _digest(one: Candidate) -> str:
    from pegboard.find import digest

    return one.digest or (digest(one) if one.folder else "")


def _declares(one: Candidate) -> str:
    from pegboard.manifest import Manifest

    if one.error:
        return one.error
    if not isinstance(one.manifest, Manifest):
        return one.entry
    effects = ", ".join(one.manifest.effects) or "nothing"
    return f"{one.manifest.summary} May change: {effects}; class {one.manifest.concurrency}."


def _named(registry: Registry, name: str) -> list[Candidate]:
    from pegboard.errors import UsageError
    from pegboard.names import close, normal, pick

    every = registry.gather()
    _ = registry.snapshot
    by_dist = [one for one in registry.candidates if one.distribution and one.distribution == normal(name)]
    wanted = pick(name, {one.name for one in every})
    found = by_dist or [one for one in registry.candidates if one.name == wanted]
    if not found:
        alike = close(name, {one.name for one in every})
        raise UsageError(f"No plug-in {name} was found." + (f" Did you mean {' or '.join(alike)}?" if alike else ""))
    return found


def _one(registry: Registry, name: str) -> Candidate:
    found = _named(registry, name)
    if len({one.key for one in found}) > 1:
        places = "; ".join(f"{one.distribution} ({one.where})" for one in found)
        raise _usage(f"{name} is offered by several: {places}. Name the distribution.")
    return found[0]


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise _usage("Nobody is here to ask; add --yes if you have looked at it. Nothing was changed.")
    if not click.confirm(question, err=True):
        raise _usage("Nothing was changed.")


def _usage(text: str) -> Exception:
    from pegboard.errors import UsageError

    return UsageError(text)
