"""`heliograph suppression`: imports addresses into a team's suppression list."""

from pathlib import Path

import click

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import print_result
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage import imports
from heliograph.manage.teams import get_team
from heliograph.settings import Settings
from heliograph.storage.imports import Import
from heliograph.storage.store import Store


@click.group()
def suppression() -> None:
    """Import addresses into a team's suppression list."""


@suppression.command("import")
@with_settings(*STORE_FLAGS)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")
@JSON_OPTION
def import_(settings: Settings, file: Path, team: str, as_json: bool) -> None:
    """Import suppressed addresses from a CSV FILE with an email address and an optional reason per line.

    Invalid lines are skipped. The import's page in the dashboard shows the result of each line.

    \b
    heliograph suppression import bounced.csv --team team_acme
    """

    async def import_file(store: Store) -> Import:
        record = get_team(store.setup.current, team).record
        with file.open(encoding="utf-8-sig", newline="") as stream:
            id_ = await imports.begin_suppression_import(store, COMMAND_LINE, record, stream)
        return await imports.finish_import(store, record, id_)

    result = with_store(settings, "Importing", import_file)
    counts = {
        "lines": result.lines,
        "added": result.added,
        "existing": result.already_listed,
        "skipped": result.skipped,
    }
    text = f"{result.id}: added {result.added}, existing {result.already_listed}, skipped {result.skipped}"
    print_result(as_json, {"id": result.id, "state": result.state, **counts}, text, indented=True)
