"""`heliograph webhook`: manages a team's webhooks, their secrets and deliveries."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
import msgspec

from heliograph.app import make_webhooks
from heliograph.bootstrap import make_secrets
from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, TEAM_OPTION, read_setup, with_settings, with_store
from heliograph.cli.printing import print_list as show_list
from heliograph.cli.printing import print_result
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.setup.records import DEFAULT_FORMAT, Webhook
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.webhooks.policy.formats.formats import FORMATS
from heliograph.webhooks.policy.webhook import to_record
from heliograph.webhooks.service import DeliveryRecord, WebhookChange, WebhookRequest, Webhooks
from heliograph.webhooks.store import ReplaySelection

T = TypeVar("T")

ID_ARGUMENT = click.argument("id_", metavar="WHK_ID")
TEAM_ID_OPTION = click.option("--team", metavar="TEAM", help="The team's id, team_…. Default: the webhook's team.")
EVENTS_OPTION = click.option(
    "--event",
    "events",
    multiple=True,
    metavar="NAME",
    help="Event type, a group such as email.*, or *; can be repeated.",
)

FORMAT_OPTION = click.option("--format", metavar="NAME", help=f"Payload format: {', '.join(FORMATS)}.")


@click.group()
def webhook() -> None:
    """Manage webhooks and show their deliveries.

    A running service applies changes within a second.
    """


@webhook.command()
@with_settings(*STORE_FLAGS)
@click.argument("url")
@click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")
@EVENTS_OPTION
@click.option("--secret", metavar="WHSEC", help="Signing secret. Default: a generated secret.")
@click.option("--description", help="Description of the webhook.")
@FORMAT_OPTION
@JSON_OPTION
def add(settings: Settings, url: str, team: str, events: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Create a webhook for URL and print its secret, which is shown only once. Without --event: all events.

    \b
    heliograph webhook add https://example.com/hooks --team team_acme --event 'email.*'
    """
    new_webhook = WebhookRequest(url=url, events=list(events or ["*"]), **options)
    created = _with_webhooks(
        settings, "Adding the webhook", lambda hooks: hooks.create(COMMAND_LINE, team, new_webhook)
    )
    _print_webhook(created.webhook, as_json, created.secret)


@webhook.command("list")
@with_settings(*STORE_FLAGS)
@TEAM_OPTION
@JSON_OPTION
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the webhooks of all teams, or of one team.

    \b
    heliograph webhook list --team team_acme
    """
    teams = read_setup(settings).teams.values()
    hooks = [hook for team_setup in teams for hook in team_setup.webhooks if team in (None, hook.team)]
    show_list(as_json, hooks, _format_webhook, fields=_webhook_json)


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@TEAM_ID_OPTION
@JSON_OPTION
def show(settings: Settings, id_: str, team: str | None, as_json: bool) -> None:
    """Show a webhook, without its secret.

    \b
    heliograph webhook show whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """

    async def find_webhook(hooks: Webhooks) -> Webhook:
        return hooks.find(team, id_)

    _print_webhook(_with_webhooks(settings, "Reading", find_webhook), as_json)


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@TEAM_ID_OPTION
@click.option("--url", help="New URL.")
@EVENTS_OPTION
@click.option("--enable/--disable", "enabled", default=None, help="Enable or disable the webhook.")
@click.option("--description", help="Description of the webhook.")
@FORMAT_OPTION
@JSON_OPTION
def change(
    settings: Settings, id_: str, team: str | None, events: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Change, enable or disable a webhook; options that are not given are unchanged.

    \b
    heliograph webhook change whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA --enable
    """
    changes = WebhookChange(events=list(events) or None, **options)
    changed = _with_webhooks(settings, "Changing", lambda hooks: hooks.change(COMMAND_LINE, team, id_, changes))
    _print_webhook(changed, as_json)


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@TEAM_ID_OPTION
def remove(settings: Settings, id_: str, team: str | None) -> None:
    """Delete a webhook and its pending deliveries.

    \b
    heliograph webhook remove whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """
    _with_webhooks(settings, "Removing", lambda hooks: hooks.remove(COMMAND_LINE, team, id_))
    click.echo(f"webhook {id_} removed")


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@TEAM_ID_OPTION
@JSON_OPTION
def rotate(settings: Settings, id_: str, team: str | None, as_json: bool) -> None:
    """Rotate a webhook's secret and print the new one, shown only once. The old one also signs for 24 hours.

    \b
    heliograph webhook rotate whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """
    created = _with_webhooks(settings, "Rotating", lambda hooks: hooks.rotate(COMMAND_LINE, team, id_))
    _print_webhook(created.webhook, as_json, created.secret)


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@TEAM_ID_OPTION
def test(settings: Settings, id_: str, team: str | None) -> None:
    """Send a test event to a webhook and print the event's id. The service must be running to deliver it.

    \b
    heliograph webhook test whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA
    """
    click.echo(_with_webhooks(settings, "Testing", lambda hooks: hooks.test(COMMAND_LINE, team, id_)))


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@TEAM_ID_OPTION
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of deliveries."
)
@JSON_OPTION
def deliveries(settings: Settings, id_: str, team: str | None, limit: int, as_json: bool) -> None:
    """List the deliveries of a webhook, newest first, with the result of the last attempt.

    \b
    heliograph webhook deliveries whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA --limit 5
    """

    rows = _with_webhooks(settings, "Reading", lambda hooks: hooks.deliveries(team, id_, None, limit))[:limit]
    show_list(
        as_json,
        rows,
        lambda delivery: f"{delivery.created_at}  {delivery.event_id}  {delivery.type}  {_last_result(delivery)}",
    )


@webhook.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@TEAM_ID_OPTION
@click.option("--event-id", "event_ids", multiple=True, metavar="EVT_ID", help="Event id; can be repeated.")
@click.option("--after", metavar="TIME", help="Start of a time range, such as 2026-11-15T09:30:00Z.")
@click.option("--before", metavar="TIME", help="End of the time range.")
@click.option("--failed-only", is_flag=True, help="Only events of the time range that were not delivered.")
def replay(
    settings: Settings,
    id_: str,
    team: str | None,
    event_ids: tuple[str, ...],
    after: str | None,
    before: str | None,
    failed_only: bool,
) -> None:
    """Replay events to a webhook, by event ids or for a time range.

    \b
    heliograph webhook replay whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA --event-id evt_01JCQ8Z6V3M2N7T0K4H9R5B1XB
    heliograph webhook replay whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA --failed-only \\
        --after 2026-11-15T09:00:00Z --before 2026-11-15T12:00:00Z
    """
    if bool(event_ids) == bool(after and before) or (event_ids and (after or before or failed_only)):
        raise click.UsageError("Give --event-id, or --after and --before.")
    selection = ReplaySelection(
        event_ids=event_ids or None,
        created_after=None if event_ids else _parse_time("--after", after),
        created_before=None if event_ids else _parse_time("--before", before),
        failed_only=failed_only,
    )
    count = _with_webhooks(settings, "Replaying", lambda hooks: hooks.replay(COMMAND_LINE, team, id_, selection))
    click.echo(f"{count} events queued for replay")


def _with_webhooks(settings: Settings, progress_text: str, action: Callable[[Webhooks], Awaitable[T]]) -> T:
    return with_store(
        settings,
        progress_text,
        lambda store: action(make_webhooks(settings, make_secrets(settings, store), store, Clock())),
        checks_secret=True,
    )


def _parse_time(option: str, text: str | None) -> int:
    at = parse_timestamp(text or "")
    if at is None:
        raise click.UsageError(f"{option} {text!r}: expected a time such as 2026-11-15T09:30:00Z.")
    return at


def _webhook_json(hook: Webhook) -> dict[str, Any]:
    return {"team": hook.team, **msgspec.structs.asdict(to_record(hook, Clock().now()))}


def _format_webhook(hook: Webhook) -> str:
    state = "enabled" if hook.enabled else f"disabled {hook.disabled_reason}".strip()
    format_suffix = "" if hook.format == DEFAULT_FORMAT else f"  {hook.format}"
    return f"{hook.id}  {hook.team}  {hook.url}  {','.join(hook.events)}{format_suffix}  {state}"


def _print_webhook(hook: Webhook, as_json: bool, secret: str | None = None) -> None:
    if not secret:
        print_result(as_json, _webhook_json(hook), _format_webhook(hook))
    else:
        print_result(
            as_json,
            _webhook_json(hook) | {"secret": secret},
            f"{_format_webhook(hook)}\nsecret, shown only once: {secret}",
        )


def _last_result(delivery: DeliveryRecord) -> str:
    if not delivery.attempts:
        return delivery.state
    last = delivery.attempts[-1]
    return f"{delivery.state}, attempt {last.number}: {last.status or last.error} in {last.duration_ms} ms"
