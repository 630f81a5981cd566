"""`heliograph approval`: lists, approves and refuses requests that need an operator's decision."""

import click
import msgspec

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, read_setup, with_settings, with_store
from heliograph.cli.printing import print_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import PREFIXES
from heliograph.domain.setup.sender_approvals import pending_senders
from heliograph.domain.setup.snapshot import Setup
from heliograph.manage import senders
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.templates import layout_service as layouts
from heliograph.templates import service as templates
from heliograph.templates.policy import layout_drafts, template_approvals

ID_ARGUMENT = click.argument("id_", metavar="ID")


class PendingApproval(msgspec.Struct, frozen=True):
    id: str
    team: str
    text: str


@click.group()
def approval() -> None:
    """Approve or refuse templates, layouts, domains, display names, sender ids and team names.

    A running service applies the decision within a second.
    """


@approval.command("list")
@with_settings(*STORE_FLAGS)
@JSON_OPTION
def list_(settings: Settings, as_json: bool) -> None:
    """List pending requests with id, team and description.

    \b
    heliograph approval list
    """
    print_list(as_json, _list_pending(read_setup(settings)), lambda item: f"{item.id}  {item.team}  {item.text}")


def _list_pending(setup: Setup) -> list[PendingApproval]:
    drafts = [draft.template for draft in template_approvals.list_pending(setup)]
    layout_list = layout_drafts.list_pending(setup)
    return [
        *(PendingApproval(item.id, item.team, item.text) for item in pending_senders(setup)),
        *(PendingApproval(item.id, item.team, f"Use the {item.channel} template {item.name}") for item in drafts),
        *(PendingApproval(item.id, item.team, f"Use the layout {item.name}") for item in layout_list),
    ]


@approval.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@click.option(
    "--price", help="Price of an SMS or WhatsApp template, such as 0.0350, for countries without their own price."
)
@click.option("--free", is_flag=True, help="Approve a template without a price.")
def approve(settings: Settings, id_: str, price: str | None, free: bool) -> None:
    """Approve the pending request ID (see `heliograph approval list`); the approved object is used immediately.

    \b
    heliograph approval approve team_acme/GB
    heliograph approval approve tpl_code --price 0.0350
    """
    prices = None if price is None else {"price": price}

    async def approve_request(store: Store) -> None:
        if id_.startswith(PREFIXES["template"]):
            await templates.approve(store, COMMAND_LINE, None, id_, None, prices, free=free)
        elif id_.startswith(PREFIXES["layout"]):
            await layouts.approve(store, COMMAND_LINE, id_)
        else:
            await senders.decide_pending(store, COMMAND_LINE, senders.get_pending(store.setup.current, id_), True)

    with_store(settings, f"Approving {id_}", approve_request)
    click.echo(f"{id_} is approved")


@approval.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@click.option("--reason", required=True, help="Reason in one line, shown to the team.")
def refuse(settings: Settings, id_: str, reason: str) -> None:
    """Refuse the pending request ID (see `heliograph approval list`); the team sees the reason.

    \b
    heliograph approval refuse team_acme/GB --reason "Show that the name is yours."
    """

    async def refuse_request(store: Store) -> None:
        if id_.startswith(PREFIXES["template"]):
            await templates.refuse(store, COMMAND_LINE, None, id_, None, reason)
        elif id_.startswith(PREFIXES["layout"]):
            await layouts.refuse(store, COMMAND_LINE, id_, None, reason)
        else:
            item = senders.get_pending(store.setup.current, id_)
            await senders.decide_pending(store, COMMAND_LINE, item, False, reason)

    with_store(settings, f"Refusing {id_}", refuse_request)
    click.echo(f"{id_} is refused")
