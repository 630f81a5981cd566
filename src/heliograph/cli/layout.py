"""`heliograph layout`: list layouts, approve those that wait, archive them."""

import click
import msgspec

from heliograph.cli.options import AS_JSON, STORE_FLAGS, read_setup, with_settings, with_store
from heliograph.manage import layouts
from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.setup.layout_drafts import find_draft
from heliograph.settings import Settings

ID = click.argument("id_", metavar="LAY_ID")


@click.group()
def layout() -> None:
    """Layouts: list them, approve drafts, archive them.

    Their words are written in a setup file (heliograph apply) or by API. A running service follows within a second.
    """


@layout.command("list")
@with_settings(*STORE_FLAGS)
@click.option("--team", metavar="TEAM", help="Only this team's.")
@AS_JSON
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the layouts of all teams, or of one, and which have a draft that waits.

    \b
    heliograph layout list --team team_acme
    """
    setup = read_setup(settings)
    found = [one for own in setup.teams.values() for one in own.layouts.values() if team in (None, one.team)]
    waits = {one.id: bool((draft := find_draft(setup, one.id)) and draft.submitted_at) for one in found}
    if as_json:
        listed = [msgspec.to_builtins(one) | {"waits": waits[one.id]} for one in found]
        click.echo(msgspec.json.encode({"layouts": listed}))
        return
    for one in found:
        line = f"{one.id}  {one.team}  {one.status}  version {one.version}  {one.name}"
        click.echo(f"{line}  (a draft waits)" if waits[one.id] else line)


@layout.command()
@with_settings(*STORE_FLAGS)
@ID
def approve(settings: Settings, id_: str) -> None:
    """Approve the draft of a layout as it is now: it is in use at once.

    \b
    heliograph layout approve lay_letter
    """
    done = with_store(settings, f"Changing {id_}", lambda store: layouts.approve(store, COMMAND_LINE, id_))
    click.echo(f"{id_} is approved" if done else f"{id_} was approved already")


@layout.command()
@with_settings(*STORE_FLAGS)
@ID
def archive(settings: Settings, id_: str) -> None:
    """Archive a layout: no new template takes it, those that have it keep it.

    \b
    heliograph layout archive lay_letter
    """
    done = with_store(settings, f"Changing {id_}", lambda store: layouts.archive(store, COMMAND_LINE, None, id_))
    click.echo(f"{id_} is archived" if done else f"{id_} was archived already")
