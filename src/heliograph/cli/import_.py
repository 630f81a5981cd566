"""`heliograph import`: imports a team's data exported from another messaging service."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from heliograph.app import make_domains, served_calls
from heliograph.bootstrap import make_secrets
from heliograph.cli.options import AS_JSON, STORE_FLAGS, ShowFirst, with_settings, with_store
from heliograph.cli.printing import tell
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.exports.check import Breakage, NewPlace, find_problems
from heliograph.domain.exports.readers import READERS
from heliograph.domain.exports.records import Row, read_export
from heliograph.domain.mail.suppression_file import Unreadable
from heliograph.manage import imports
from heliograph.manage.imports import BroughtLine
from heliograph.manage.teams import find_team
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.store import Store

T = TypeVar("T")


class BringFirst(ShowFirst):
    """A click group whose default command is `bring`."""

    first = "bring"


SERVICE = click.argument("service", metavar="SERVICE", type=click.Choice(list(READERS)))
FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
TEAM = click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")


@click.group(cls=BringFirst)
def import_() -> None:
    """Take along from another service what a team has there, or check before what would break.

    \b
    heliograph import check resend emails.json webhooks.json logs.json --team team_acme
    heliograph import resend suppressions.csv domains.json --team team_acme
    """


@import_.command()
@with_settings(*STORE_FLAGS, "public_url")
@SERVICE
@FILES
@TEAM
@AS_JSON
def bring(settings: Settings, service: str, files: tuple[Path, ...], team: str, as_json: bool) -> None:
    """Bring suppressions, domains and templates from FILES that SERVICE exported: CSV, or its API's JSON.

    SERVICE is postmark, resend, sendgrid or twilio (templates alone). Says what became of each line, and of a template
    which of its lines cannot be carried over. What is there already stays as it is: a second run does no harm.
    Ends with 1 when everything was left out.

    \b
    heliograph import resend suppressions.csv domains.json --team team_acme
    """
    exports = [(file, [*_read(file, READERS[service])]) for file in files]

    async def story(store: Store) -> list[tuple[Path, list[BroughtLine]]]:
        domains = make_domains(settings, make_secrets(settings, store), store, Clock())
        return [(file, await imports.bring(store, domains, COMMAND_LINE, team, found)) for file, found in exports]

    brought = with_store(settings, "Importing", story, seals=True)
    for file, lines in brought:
        for line in lines:
            shown = {"file": str(file), **msgspec.structs.asdict(line)}
            told = f"{file}:{line.number}  {line.kind or 'nothing'}  {line.text}  {line.outcome}"
            tell(as_json, shown, "\n    ".join((told, *line.notes)))
    if all(line.is_left_out for _, lines in brought for line in lines):
        raise click.ClickException("Everything was left out: nothing is changed.")


@import_.command()
@with_settings(*STORE_FLAGS)
@SERVICE
@FILES
@TEAM
@AS_JSON
def check(settings: Settings, service: str, files: tuple[Path, ...], team: str, as_json: bool) -> None:
    """List what would break for TEAM if its program came here from SERVICE. Changes nothing.

    SERVICE is postmark, resend, sendgrid or twilio. FILES are what its API lists: messages, templates, webhooks, logs
    of calls (or any CSV with method and path). Ends with 1 when something would break.

    \b
    heliograph import check resend emails.json webhooks.json logs.json --team team_acme
    """

    async def story(store: Store) -> NewPlace:
        current = store.setup.current
        return NewPlace(find_team(current, team), current.platform, served_calls(service))

    to, told = with_store(settings, "Checking", story), set[Breakage]()
    for file in files:
        for number, row in _read(file, dict):
            for problem in find_problems(service, row, to):
                if problem not in told:
                    shown = {"file": str(file), "number": number, **msgspec.structs.asdict(problem)}
                    tell(as_json, shown, f"{file}:{number}  {problem.kind}  {problem.text}  {problem.why}")
                told.add(problem)
    if told:
        raise SystemExit(1)
    tell(as_json, {"problems": 0}, "Nothing in these files would break.")


def _read(file: Path, read: Callable[[Row], T]) -> Iterator[tuple[int, T]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            yield from read_export(opened, read)
    except Unreadable as error:
        raise click.ClickException(f"{file}: {error}") from None
