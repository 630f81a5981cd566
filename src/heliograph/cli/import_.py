"""`heliograph import`: imports a team's data exported from another messaging service."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from heliograph.app import make_domains, served_calls
from heliograph.bootstrap import make_secrets
from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, DefaultGroup, with_settings, with_store
from heliograph.cli.printing import print_result
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.exports.check import ImportTarget, Incompatibility, find_problems
from heliograph.domain.exports.readers import CONVERTER_BY_SERVICE
from heliograph.domain.exports.records import Row, parse_export
from heliograph.domain.mail.suppression_file import UnreadableFile
from heliograph.manage import imports
from heliograph.manage.imports import ImportedRecord
from heliograph.manage.teams import get_team
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.store import Store

T = TypeVar("T")


SERVICE_ARGUMENT = click.argument("service", metavar="SERVICE", type=click.Choice(list(CONVERTER_BY_SERVICE)))
FILES_ARGUMENT = click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
TEAM_OPTION = click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")


@click.group(cls=DefaultGroup, default_command="run")
def import_() -> None:
    """Import data from another service, or check first what would break.

    \b
    heliograph import check resend emails.json webhooks.json logs.json --team team_acme
    heliograph import resend suppressions.csv domains.json --team team_acme
    """


@import_.command("run")
@with_settings(*STORE_FLAGS, "public_url")
@SERVICE_ARGUMENT
@FILES_ARGUMENT
@TEAM_OPTION
@JSON_OPTION
def run(settings: Settings, service: str, files: tuple[Path, ...], team: str, as_json: bool) -> None:
    """Import suppressions, domains and templates from FILES exported by SERVICE: CSV, or JSON of its API.

    SERVICE is postmark, resend, sendgrid or twilio (templates only). Prints the result of each row, and for templates
    the lines that cannot be converted. Existing records are not changed, so the command can be repeated.
    Exit code 1 if every row was skipped.

    \b
    heliograph import resend suppressions.csv domains.json --team team_acme
    """
    exports = [(file, [*_read_rows(file, CONVERTER_BY_SERVICE[service])]) for file in files]

    async def run_imports(store: Store) -> list[tuple[Path, list[ImportedRecord]]]:
        domains = make_domains(settings, make_secrets(settings, store), store, Clock())
        return [
            (file, await imports.import_records(store, domains, COMMAND_LINE, team, rows)) for file, rows in exports
        ]

    results = with_store(settings, "Importing", run_imports, checks_secret=True)
    for file, outcomes in results:
        for outcome in outcomes:
            fields = {"file": str(file), **msgspec.structs.asdict(outcome)}
            text = f"{file}:{outcome.number}  {outcome.kind or 'unknown'}  {outcome.text}  {outcome.outcome}"
            print_result(as_json, fields, "\n    ".join((text, *outcome.notes)))
    if all(outcome.is_skipped for _, outcomes in results for outcome in outcomes):
        raise click.ClickException("Every row was skipped: nothing was imported.")


@import_.command()
@with_settings(*STORE_FLAGS)
@SERVICE_ARGUMENT
@FILES_ARGUMENT
@TEAM_OPTION
@JSON_OPTION
def check(settings: Settings, service: str, files: tuple[Path, ...], team: str, as_json: bool) -> None:
    """List what would break for TEAM after switching from SERVICE. Changes nothing.

    SERVICE is postmark, resend, sendgrid or twilio. FILES are lists returned by its API: messages, templates, webhooks,
    request logs (or any CSV with method and path). Exit code 1 if something would break.

    \b
    heliograph import check resend emails.json webhooks.json logs.json --team team_acme
    """

    async def find_target(store: Store) -> ImportTarget:
        current = store.setup.current
        return ImportTarget(get_team(current, team), current.platform, served_calls(service))

    target, reported = with_store(settings, "Checking", find_target), set[Incompatibility]()
    for file in files:
        for number, row in _read_rows(file, dict):
            for problem in find_problems(service, row, target):
                if problem not in reported:
                    fields = {"file": str(file), "number": number, **msgspec.structs.asdict(problem)}
                    print_result(as_json, fields, f"{file}:{number}  {problem.kind}  {problem.text}  {problem.why}")
                reported.add(problem)
    if reported:
        raise SystemExit(1)
    print_result(as_json, {"problems": 0}, "Nothing in these files would break.")


def _read_rows(file: Path, convert: Callable[[Row], T]) -> Iterator[tuple[int, T]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            yield from parse_export(stream, convert)
    except UnreadableFile as error:
        raise click.ClickException(f"{file}: {error}") from None
