"""`heliograph template`: lists, lints and archives templates, and approves or refuses drafts."""

import os
from collections.abc import Awaitable
from typing import BinaryIO

import click
import msgspec

from heliograph.app import CARRIER_FACTORIES
from heliograph.cli import drafts
from heliograph.cli.apply import format_problem
from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, TEAM_OPTION, read_setup, with_settings
from heliograph.cli.printing import print_list as print_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.setup_file import SetupError, parse_setup_file
from heliograph.domain.setup.snapshot import Setup
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.templates import service as templates
from heliograph.templates.policy.setup_lint import lint_file, lint_html
from heliograph.templates.policy.template_approvals import find_draft

ID_ARGUMENT = click.argument("id_", metavar="TPL_ID")


@click.group()
def template() -> None:
    """List, show, lint, archive and unarchive templates, and approve or refuse drafts.

    Edit templates in a setup file (heliograph apply) or in the dashboard. A running service applies changes within a
    second.
    """


@template.command("list")
@with_settings(*STORE_FLAGS)
@TEAM_OPTION
@JSON_OPTION
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the templates of all teams, or of one team, with drafts awaiting approval.

    \b
    heliograph template list --team team_acme
    """
    drafts.print_records(
        settings, lambda team_setup: team_setup.templates.values(), _is_pending, team=team, as_json=as_json
    )


def _is_pending(setup: Setup, id_: str) -> bool:
    draft = find_draft(setup, id_)
    return draft is not None and draft.awaits_approval


@template.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@click.option("--draft", is_flag=True, help="Show the draft, if there is one.")
def show(settings: Settings, id_: str, draft: bool) -> None:
    """Print a template as JSON.

    \b
    heliograph template show tpl_welcome --draft
    """
    setup = read_setup(settings)
    current = templates.get(setup, None, id_)
    shown = templates.draft_or_current(setup, current) if draft else current
    prices = {country: format_money(price) for country, price in shown.prices.items()}
    fields = msgspec.to_builtins(shown) | {"price": format_money(shown.price), "prices": prices}
    click.echo(msgspec.json.encode(fields))


@template.command()
@click.argument("file", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="Print the problems as JSON.")
def lint(file: BinaryIO, as_json: bool) -> None:
    """Check the templates of a setup FILE, or an HTML or MJML file, without a service. Exit code 1 on errors.

    \b
    heliograph template lint setup.toml
    heliograph template lint receipt.html
    """
    try:
        text = file.read().decode()
        is_html = file.name.lower().endswith((".html", ".htm", ".mjml"))
        problems = (
            lint_html(file.name, text)
            if is_html
            else lint_file(parse_setup_file(text, os.environ, name=file.name, supported=CARRIER_FACTORIES))
        )
    except (ValueError, SetupError) as error:
        raise click.ClickException(str(error)) from None
    print_list(as_json, problems, lambda problem: f"{problem.level}: {problem.template_id}: {format_problem(problem)}")
    if not as_json:
        click.echo(f"{len(problems)} problems" if problems else "no problems", err=True)
    if any(problem.level == "error" for problem in problems):
        raise SystemExit(1)


@template.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
def archive(settings: Settings, id_: str) -> None:
    """Archive a template: sends that use it are refused.

    \b
    heliograph template archive tpl_welcome
    """
    drafts.change(settings, id_, "archived", lambda store: templates.archive(store, COMMAND_LINE, None, id_))


@template.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
def unarchive(settings: Settings, id_: str) -> None:
    """Restore an archived template.

    \b
    heliograph template unarchive tpl_welcome
    """

    def run_unarchive(store: Store) -> Awaitable[bool]:
        return templates.unarchive(store, COMMAND_LINE, None, id_, by_operator=True)

    drafts.change(settings, id_, "in use", run_unarchive)


@template.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@click.option(
    "--price", help="Price of an SMS or WhatsApp template, such as 0.0350, for countries without their own price."
)
@click.option("--free", is_flag=True, help="Approve a template without a price.")
def approve(settings: Settings, id_: str, price: str | None, free: bool) -> None:
    """Approve the current draft of a template; it is used immediately.

    \b
    heliograph template approve tpl_code --price 0.0350
    """
    prices = None if price is None else {"price": price}

    def run_approve(store: Store) -> Awaitable[bool]:
        return templates.approve(store, COMMAND_LINE, None, id_, None, prices, free=free)

    drafts.change(settings, id_, "approved", run_approve)


@template.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@click.option("--reason", required=True, help="Reason, shown to the team.")
def refuse(settings: Settings, id_: str, reason: str) -> None:
    """Refuse the draft of a template; the team sees the reason.

    \b
    heliograph template refuse tpl_code --reason "Say who you are."
    """
    drafts.change(
        settings, id_, "refused", lambda store: templates.refuse(store, COMMAND_LINE, None, id_, None, reason)
    )
