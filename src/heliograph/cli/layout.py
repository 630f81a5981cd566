"""`heliograph layout`: lists, approves and archives layouts."""

import click

from heliograph.cli import drafts
from heliograph.cli.options import AS_JSON, OF_TEAM, STORE_FLAGS, with_settings
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.snapshot import Setup
from heliograph.settings import Settings
from heliograph.templates import layout_service as layouts
from heliograph.templates.policy.layout_drafts import find_draft

ID = click.argument("id_", metavar="LAY_ID")


@click.group()
def layout() -> None:
    """Layouts: list them, approve drafts, archive them.

    Their words are written in a setup file (heliograph apply) or by API. A running service follows within a second.
    """


@layout.command("list")
@with_settings(*STORE_FLAGS)
@OF_TEAM
@AS_JSON
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the layouts of all teams, or of one, and which have a draft that waits.

    \b
    heliograph layout list --team team_acme
    """
    drafts.list_all(settings, lambda own: own.layouts.values(), _waits, team=team, as_json=as_json)


def _waits(setup: Setup, id_: str) -> bool:
    draft = find_draft(setup, id_)
    return draft is not None and bool(draft.submitted_at)


@layout.command()
@with_settings(*STORE_FLAGS)
@ID
def approve(settings: Settings, id_: str) -> None:
    """Approve the draft of a layout as it is now: it is in use at once.

    \b
    heliograph layout approve lay_letter
    """
    drafts.change(settings, id_, "approved", lambda store: layouts.approve(store, COMMAND_LINE, id_))


@layout.command()
@with_settings(*STORE_FLAGS)
@ID
def archive(settings: Settings, id_: str) -> None:
    """Archive a layout: no new template takes it, those that have it keep it.

    \b
    heliograph layout archive lay_letter
    """
    drafts.change(settings, id_, "archived", lambda store: layouts.archive(store, COMMAND_LINE, None, id_))
