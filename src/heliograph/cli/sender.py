"""`heliograph sender`: lists and decides domains, display names, sender ids and team names awaiting approval."""

import click

from heliograph.cli.options import AS_JSON, STORE_FLAGS, read_setup, with_settings, with_store
from heliograph.cli.printing import show
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.sender_approvals import pending
from heliograph.manage import senders
from heliograph.settings import Settings
from heliograph.storage.store import Store

ID = click.argument("id_", metavar="ID")


@click.group()
def sender() -> None:
    """Domains, display names, sender ids and team names that wait for a decision.

    A running service follows within a second.
    """


@sender.command("list")
@with_settings(*STORE_FLAGS)
@AS_JSON
def list_(settings: Settings, as_json: bool) -> None:
    """List what waits: its id, its team, and what is asked for.

    \b
    heliograph sender list
    """
    found = pending(read_setup(settings))
    show(as_json, found, lambda item: f"{item.id}  {item.team}  {item.text}")


@sender.command()
@with_settings(*STORE_FLAGS)
@ID
def approve(settings: Settings, id_: str) -> None:
    """Approve what waits with this ID, as `heliograph sender list` shows it.

    \b
    heliograph sender approve dom_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """
    _decide(settings, id_, approve=True)


@sender.command()
@with_settings(*STORE_FLAGS)
@ID
@click.option("--reason", required=True, help="Why, in one line: the team reads it.")
def refuse(settings: Settings, id_: str, reason: str) -> None:
    """Refuse what waits with this ID; the team sees the reason.

    \b
    heliograph sender refuse team_acme/GB --reason "Show that the name is yours."
    """
    _decide(settings, id_, approve=False, reason=reason)


def _decide(settings: Settings, id_: str, *, approve: bool, reason: str = "") -> None:
    async def story(store: Store) -> str:
        item = senders.waiting(store.setup.current, id_)
        await senders.decide_pending(store, COMMAND_LINE, item, approve, reason)
        return item.text

    text = with_store(settings, f"Deciding about {id_}", story)
    click.echo(f"{'approved' if approve else 'refused'}: {text}")
