"""`heliograph webhook`: manages a team's webhooks, their secrets and deliveries."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
import msgspec

from heliograph.app import make_webhooks
from heliograph.bootstrap import make_secrets
from heliograph.cli.options import AS_JSON, OF_TEAM, STORE_FLAGS, read_setup, with_settings, with_store
from heliograph.cli.printing import show as show_list
from heliograph.cli.printing import tell
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.setup.records import OWN_FORMAT, Webhook
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.webhooks.policy.formats.formats import FORMATS
from heliograph.webhooks.policy.webhook import to_record
from heliograph.webhooks.service import DeliveryRecord, WebhookChange, WebhookRequest, Webhooks
from heliograph.webhooks.store import WantedEvents

T = TypeVar("T")

ID = click.argument("id_", metavar="WHK_ID")
TEAM = click.option("--team", metavar="TEAM", help="The team's id, team_…; without it the webhook's own team is meant.")
EVENTS = click.option(
    "--event", "events", multiple=True, metavar="NAME", help="A type, a group such as email.*, or *; can be repeated."
)

FORMAT = click.option("--format", metavar="NAME", help=f"Whose shape its events have: {', '.join(FORMATS)}.")


@click.group()
def webhook() -> None:
    """Webhooks: where events are sent, and how each delivery went.

    A running service follows within a second.
    """


@webhook.command()
@with_settings(*STORE_FLAGS)
@click.argument("url")
@click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")
@EVENTS
@click.option("--secret", metavar="WHSEC", help="Your own secret. Default: one is made.")
@click.option("--description", help="A note for people.")
@FORMAT
@AS_JSON
def add(settings: Settings, url: str, team: str, events: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Send events to URL, and print the new webhook's secret, shown only once. Without --event: all events.

    \b
    heliograph webhook add https://example.com/hooks --team team_acme --event 'email.*'
    """
    wanted = WebhookRequest(url=url, events=list(events or ["*"]), **given)
    made = _run(settings, "Adding the webhook", lambda hooks: hooks.create(COMMAND_LINE, team, wanted))
    _show(made.webhook, as_json, made.secret)


@webhook.command("list")
@with_settings(*STORE_FLAGS)
@OF_TEAM
@AS_JSON
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the webhooks of all teams, or of one.

    \b
    heliograph webhook list --team team_acme
    """
    teams = read_setup(settings).teams.values()
    found = [hook for own in teams for hook in own.webhooks if team in (None, hook.team)]
    show_list(as_json, found, _line, fields=_fields)


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID
@TEAM
@AS_JSON
def show(settings: Settings, id_: str, team: str | None, as_json: bool) -> None:
    """Show a webhook, without its secret.

    \b
    heliograph webhook show whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """

    async def story(hooks: Webhooks) -> Webhook:
        return hooks.find(team, id_)

    _show(_run(settings, "Reading", story), as_json)


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID
@TEAM
@click.option("--url", help="Where events go from now on.")
@EVENTS
@click.option("--enable/--disable", "enabled", default=None, help="Whether events are sent to it.")
@click.option("--description", help="A note for people.")
@FORMAT
@AS_JSON
def change(
    settings: Settings, id_: str, team: str | None, events: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Change, disable or enable a webhook; what is not given stays.

    \b
    heliograph webhook change whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA --enable
    """
    wanted = WebhookChange(events=list(events) or None, **given)
    changed = _run(settings, "Changing", lambda hooks: hooks.change(COMMAND_LINE, team, id_, wanted))
    _show(changed, as_json)


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID
@TEAM
def remove(settings: Settings, id_: str, team: str | None) -> None:
    """Remove a webhook and the events still to be sent to it.

    \b
    heliograph webhook remove whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """
    _run(settings, "Removing", lambda hooks: hooks.remove(COMMAND_LINE, team, id_))
    click.echo(f"webhook {id_} is removed")


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID
@TEAM
@AS_JSON
def rotate(settings: Settings, id_: str, team: str | None, as_json: bool) -> None:
    """Give a webhook a new secret and print it, shown only once; the old one also signs for 24 hours.

    \b
    heliograph webhook rotate whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """
    made = _run(settings, "Rotating", lambda hooks: hooks.rotate(COMMAND_LINE, team, id_))
    _show(made.webhook, as_json, made.secret)


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID
@TEAM
def test(settings: Settings, id_: str, team: str | None) -> None:
    """Send a test event to a webhook and print the event's id. A service must run to deliver it.

    \b
    heliograph webhook test whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """
    click.echo(_run(settings, "Testing", lambda hooks: hooks.test(COMMAND_LINE, team, id_)))


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID
@TEAM
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@AS_JSON
def deliveries(settings: Settings, id_: str, team: str | None, limit: int, as_json: bool) -> None:
    """Show the deliveries of a webhook, newest first, and how the last attempt of each went.

    \b
    heliograph webhook deliveries whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA --limit 5
    """

    found = _run(settings, "Reading", lambda hooks: hooks.deliveries(team, id_, None, limit))[:limit]
    show_list(
        as_json,
        found,
        lambda delivery: f"{delivery.created_at}  {delivery.event_id}  {delivery.type}  {_became(delivery)}",
    )


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID
@TEAM
@click.option("--event-id", "event_ids", multiple=True, metavar="EVT_ID", help="This event; can be repeated.")
@click.option("--after", metavar="TIME", help="Events after this time, such as 2026-11-15T09:30:00Z,")
@click.option("--before", metavar="TIME", help="and before this one.")
@click.option("--failed-only", is_flag=True, help="Only those of that span that did not arrive.")
def replay(
    settings: Settings,
    id_: str,
    team: str | None,
    event_ids: tuple[str, ...],
    after: str | None,
    before: str | None,
    failed_only: bool,
) -> None:
    """Send events to a webhook again: some by their ids, or those of a span of time.

    \b
    heliograph webhook replay whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA --event-id evt_01JCQ8Z6V3M2N7T0K4H9R5B1XB
    heliograph webhook replay whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA --failed-only \\
        --after 2026-11-15T09:00:00Z --before 2026-11-15T12:00:00Z
    """
    if bool(event_ids) == bool(after and before) or (event_ids and (after or before or failed_only)):
        raise click.UsageError("Give --event-id, or --after and --before.")
    wanted = WantedEvents(
        event_ids=event_ids or None,
        created_after=None if event_ids else _time("--after", after),
        created_before=None if event_ids else _time("--before", before),
        failed_only=failed_only,
    )
    count = _run(settings, "Replaying", lambda hooks: hooks.replay(COMMAND_LINE, team, id_, wanted))
    click.echo(f"{count} events are sent again")


def _run(settings: Settings, doing: str, story: Callable[[Webhooks], Awaitable[T]]) -> T:
    return with_store(
        settings,
        doing,
        lambda store: story(make_webhooks(settings, make_secrets(settings, store), store, Clock())),
        seals=True,
    )


def _time(option: str, text: str | None) -> int:
    at = parse_timestamp(text or "")
    if at is None:
        raise click.UsageError(f"{option} {text!r}: expected a time such as 2026-11-15T09:30:00Z.")
    return at


def _fields(hook: Webhook) -> dict[str, Any]:
    return {"team": hook.team, **msgspec.structs.asdict(to_record(hook, Clock().now()))}


def _line(hook: Webhook) -> str:
    state = "enabled" if hook.enabled else f"disabled {hook.disabled_reason}".strip()
    shape = "" if hook.format == OWN_FORMAT else f"  {hook.format}"
    return f"{hook.id}  {hook.team}  {hook.url}  {','.join(hook.events)}{shape}  {state}"


def _show(hook: Webhook, as_json: bool, secret: str | None = None) -> None:
    if not secret:
        tell(as_json, _fields(hook), _line(hook))
    else:
        tell(as_json, _fields(hook) | {"secret": secret}, f"{_line(hook)}\nsecret, shown only once: {secret}")


def _became(delivery: DeliveryRecord) -> str:
    if not delivery.attempts:
        return delivery.state
    last = delivery.attempts[-1]
    return f"{delivery.state}, attempt {last.number}: {last.status or last.error} in {last.duration_ms} ms"
