"""`heliograph sender`: lists, approves and refuses requested domains, display names, sender ids and team names."""

import click

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, read_setup, with_settings, with_store
from heliograph.cli.printing import print_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.sender_approvals import pending_senders
from heliograph.manage import senders
from heliograph.settings import Settings
from heliograph.storage.store import Store

ID_ARGUMENT = click.argument("id_", metavar="ID")


@click.group()
def sender() -> None:
    """Approve or refuse domains, display names, sender ids and team names.

    A running service applies the decision within a second.
    """


@sender.command("list")
@with_settings(*STORE_FLAGS)
@JSON_OPTION
def list_(settings: Settings, as_json: bool) -> None:
    """List pending requests with id, team and description.

    \b
    heliograph sender list
    """
    items = pending_senders(read_setup(settings))
    print_list(as_json, items, lambda item: f"{item.id}  {item.team}  {item.text}")


@sender.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
def approve(settings: Settings, id_: str) -> None:
    """Approve the pending request with this ID, as shown by `heliograph sender list`.

    \b
    heliograph sender approve dom_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """
    _decide(settings, id_, approve=True)


@sender.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@click.option("--reason", required=True, help="Reason in one line, shown to the team.")
def refuse(settings: Settings, id_: str, reason: str) -> None:
    """Refuse the pending request with this ID; the team sees the reason.

    \b
    heliograph sender refuse team_acme/GB --reason "Show that the name is yours."
    """
    _decide(settings, id_, approve=False, reason=reason)


def _decide(settings: Settings, id_: str, *, approve: bool, reason: str = "") -> None:
    async def decide_item(store: Store) -> str:
        item = senders.get_pending(store.setup.current, id_)
        await senders.decide_pending(store, COMMAND_LINE, item, approve, reason)
        return item.text

    text = with_store(settings, f"Deciding {id_}", decide_item)
    click.echo(f"{'approved' if approve else 'refused'}: {text}")
