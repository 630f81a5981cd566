"""`heliograph template`: lists, lints and archives templates, and approves or refuses drafts."""

import os
from collections.abc import Awaitable
from typing import BinaryIO

import click
import msgspec

from heliograph.app import CARRIERS
from heliograph.cli import drafts
from heliograph.cli.apply import said
from heliograph.cli.options import AS_JSON, OF_TEAM, STORE_FLAGS, read_setup, with_settings
from heliograph.cli.printing import show as print_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.setup_file import SetupError, read_setup_file
from heliograph.domain.setup.snapshot import Setup
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.templates import service as templates
from heliograph.templates.policy.setup_lint import lint_file, lint_html
from heliograph.templates.policy.template_approvals import find_draft

ID = click.argument("id_", metavar="TPL_ID")


@click.group()
def template() -> None:
    """Templates: list and show them, archive and unarchive them, decide on drafts.

    Their words are written in a setup file (heliograph apply) or on the dashboard. A running service follows within
    a second.
    """


@template.command("list")
@with_settings(*STORE_FLAGS)
@OF_TEAM
@AS_JSON
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the templates of all teams, or of one, and which have a draft that waits.

    \b
    heliograph template list --team team_acme
    """
    drafts.list_all(settings, lambda own: own.templates.values(), _waits, team=team, as_json=as_json)


def _waits(setup: Setup, id_: str) -> bool:
    draft = find_draft(setup, id_)
    return draft is not None and draft.waits


@template.command()
@with_settings(*STORE_FLAGS)
@ID
@click.option("--draft", is_flag=True, help="As it would become, when a draft of it waits.")
def show(settings: Settings, id_: str, draft: bool) -> None:
    """Print a template as JSON.

    \b
    heliograph template show tpl_welcome --draft
    """
    setup = read_setup(settings)
    found = templates.find(setup, None, id_)
    shown = templates.proposed(setup, found) if draft else found
    prices = {country: format_money(price) for country, price in shown.prices.items()}
    fields = msgspec.to_builtins(shown) | {"price": format_money(shown.price), "prices": prices}
    click.echo(msgspec.json.encode(fields))


@template.command()
@click.argument("file", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="Print the problems as JSON.")
def lint(file: BinaryIO, as_json: bool) -> None:
    """Look at the templates of a setup FILE, or at an HTML or MJML file, without a service; ends with 1 on errors.

    \b
    heliograph template lint setup.toml
    heliograph template lint receipt.html
    """
    try:
        text = file.read().decode()
        is_html = file.name.lower().endswith((".html", ".htm", ".mjml"))
        found = (
            lint_html(file.name, text)
            if is_html
            else lint_file(read_setup_file(text, os.environ, name=file.name, runnable=CARRIERS))
        )
    except (ValueError, SetupError) as error:
        raise click.ClickException(str(error)) from None
    print_list(as_json, found, lambda problem: f"{problem.level}: {problem.template_id}: {said(problem)}")
    if not as_json:
        click.echo(f"{len(found)} problems" if found else "no problems", err=True)
    if any(problem.level == "error" for problem in found):
        raise SystemExit(1)


@template.command()
@with_settings(*STORE_FLAGS)
@ID
def archive(settings: Settings, id_: str) -> None:
    """Put a template out of use: sends that name it are refused.

    \b
    heliograph template archive tpl_welcome
    """
    drafts.change(settings, id_, "archived", lambda store: templates.archive(store, COMMAND_LINE, None, id_))


@template.command()
@with_settings(*STORE_FLAGS)
@ID
def unarchive(settings: Settings, id_: str) -> None:
    """Bring an archived template back into use.

    \b
    heliograph template unarchive tpl_welcome
    """

    def back(store: Store) -> Awaitable[bool]:
        return templates.unarchive(store, COMMAND_LINE, None, id_, by_operator=True)

    drafts.change(settings, id_, "in use", back)


@template.command()
@with_settings(*STORE_FLAGS)
@ID
@click.option("--price", help="Of a phone template, such as 0.0350, for every country without its own price.")
@click.option("--free", is_flag=True, help="It may cost nothing.")
def approve(settings: Settings, id_: str, price: str | None, free: bool) -> None:
    """Approve the draft of a template as it is now: it is in use at once.

    \b
    heliograph template approve tpl_code --price 0.0350
    """
    prices = None if price is None else {"price": price}

    def approved(store: Store) -> Awaitable[bool]:
        return templates.approve(store, COMMAND_LINE, None, id_, None, prices, free=free)

    drafts.change(settings, id_, "approved", approved)


@template.command()
@with_settings(*STORE_FLAGS)
@ID
@click.option("--reason", required=True, help="Why: the team reads it.")
def refuse(settings: Settings, id_: str, reason: str) -> None:
    """Refuse the draft of a template; the team sees the reason.

    \b
    heliograph template refuse tpl_code --reason "Say who you are."
    """
    drafts.change(
        settings, id_, "refused", lambda store: templates.refuse(store, COMMAND_LINE, None, id_, None, reason)
    )
