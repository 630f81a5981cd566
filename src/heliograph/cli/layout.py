"""`heliograph layout`: lists, approves and archives layouts."""

import click

from heliograph.cli import drafts
from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, TEAM_OPTION, with_settings
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.snapshot import Setup
from heliograph.settings import Settings
from heliograph.templates import layout_service as layouts
from heliograph.templates.policy.layout_drafts import find_draft

ID_ARGUMENT = click.argument("id_", metavar="LAY_ID")


@click.group()
def layout() -> None:
    """List layouts, approve drafts, archive layouts.

    Edit layouts in a setup file (heliograph apply) or with the API. A running service applies changes within a second.
    """


@layout.command("list")
@with_settings(*STORE_FLAGS)
@TEAM_OPTION
@JSON_OPTION
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the layouts of all teams, or of one team, with drafts awaiting approval.

    \b
    heliograph layout list --team team_acme
    """
    drafts.print_records(
        settings, lambda team_setup: team_setup.layouts.values(), _is_pending, team=team, as_json=as_json
    )


def _is_pending(setup: Setup, id_: str) -> bool:
    draft = find_draft(setup, id_)
    return draft is not None and bool(draft.submitted_at)


@layout.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
def approve(settings: Settings, id_: str) -> None:
    """Approve the current draft of a layout; it is used immediately.

    \b
    heliograph layout approve lay_letter
    """
    drafts.change(settings, id_, "approved", lambda store: layouts.approve(store, COMMAND_LINE, id_))


@layout.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
def archive(settings: Settings, id_: str) -> None:
    """Archive a layout: templates that use it keep it, others can no longer select it.

    \b
    heliograph layout archive lay_letter
    """
    drafts.change(settings, id_, "archived", lambda store: layouts.archive(store, COMMAND_LINE, None, id_))
