"""`heliograph import`: what a team takes along from another service."""

from pathlib import Path

import click
import msgspec

from heliograph.app import make_domains
from heliograph.cli.options import AS_JSON, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import tell
from heliograph.manage import imports
from heliograph.manage.imports import BroughtLine
from heliograph.opening import make_secrets
from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.exports.readers import READERS
from heliograph.rules.exports.records import Exported, read_export
from heliograph.rules.mail.suppression_file import Unreadable
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.store import Store


@click.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("service", metavar="SERVICE", type=click.Choice(list(READERS)))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")
@AS_JSON
def import_(settings: Settings, service: str, files: tuple[Path, ...], team: str, as_json: bool) -> None:
    """Bring suppressions, domains and templates from FILES that SERVICE exported: CSV, or its API's JSON.

    SERVICE is postmark, resend or twilio (templates alone). Says what became of each line. What is there already stays
    as it is: a second run does no harm.

    \b
    heliograph import resend suppressions.csv domains.json --team team_acme
    """
    exports = [(file, _read(file, service)) for file in files]

    async def story(store: Store) -> list[tuple[Path, list[BroughtLine]]]:
        domains = make_domains(settings, make_secrets(settings, store), store, Clock())
        return [(file, await imports.bring(store, domains, COMMAND_LINE, team, found)) for file, found in exports]

    for file, lines in with_store(settings, "Importing", story, seals=True):
        for line in lines:
            shown = {"file": str(file), **msgspec.structs.asdict(line)}
            told = f"{file}:{line.number}  {line.kind or 'nothing'}  {line.text}  {line.outcome}"
            tell(as_json, shown, told)


def _read(file: Path, service: str) -> list[tuple[int, Exported]]:
    try:
        return read_export(file.read_bytes(), READERS[service])
    except Unreadable as error:
        raise click.ClickException(f"{file}: {error}") from None
