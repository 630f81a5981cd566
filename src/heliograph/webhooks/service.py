"""Webhook management of a team: create, change and delete webhooks, rotate secrets, send test events, replay events."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, replace

from heliograph.domain.audit.actor import Actor
from heliograph.domain.event_data import WebhookTestData
from heliograph.domain.events import EVENT_TYPES, TEST
from heliograph.domain.field_docs import (
    CONTROL_CHARACTERS,
    DOMAIN_NAME,
    TIME,
    CreatedAt,
    describe,
    with_example,
)
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import DEFAULT_FORMAT, Team, Webhook
from heliograph.domain.setup.secrets import Vault
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.domain.text import quoted
from heliograph.runtime.clock import Clock
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store
from heliograph.webhooks.policy.bin import TOKEN_BYTES, bin_url
from heliograph.webhooks.policy.formats.formats import FORMATS, is_subscribed
from heliograph.webhooks.policy.webhook import (
    DESCRIPTION_MAX,
    WEBHOOKS_MAX,
    EventNames,
    MakeKeyPair,
    check_description,
    check_format,
    check_secret,
    encrypt_login,
    encrypt_secret,
    new_key_pair,
    rotate_secret,
    validate_events,
)
from heliograph.webhooks.policy.webhook_url import URL_MAX, split_login
from heliograph.webhooks.store import NoSuchEvents, ReplaySelection, StoredAttempt, StoredDelivery

SHOWN_IDS_MAX = 5  # maximum number of ids in an error message
BIN_DESCRIPTION = "Webhook bin"

FindRefusal = Callable[[str], Awaitable[str | None]]  # URL → why webhooks must not connect to it; None if allowed


FORMAT = describe("Format of body, headers and signature: Heliograph's own or another service's.", enum=list(FORMATS))
EVENTS = describe("Event types, groups such as `email.*`, or `*`.")
NOTE = describe("A free-text note.", maxLength=DESCRIPTION_MAX, pattern=f"^[^{CONTROL_CHARACTERS}]*$")
SECRET = describe(
    "Your own signing secret: `whsec_` and the base64 of 24 to 64 bytes. Default: a generated secret.",
    pattern="^whsec_[A-Za-z0-9+/]{32,86}={0,2}$",
)
URL = describe(
    "Where events are sent: http or https, without a fragment. `user:password@` before the host is sent as Basic "
    "authentication and never shown again.",
    maxLength=URL_MAX,
    # Stricter than `check_target`, which also accepts non-ASCII host names and IP addresses that the operator allows
    pattern=rf"^[Hh][Tt][Tt][Pp][Ss]?://{DOMAIN_NAME}(:[1-9][0-9]{{0,3}})?(/[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$",
)


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Annotated[str, URL]
    events: Annotated[EventNames, EVENTS]
    secret: Annotated[str | None, SECRET] = None
    description: Annotated[str | None, NOTE] = None
    format: Annotated[str | None, FORMAT] = None


class WebhookChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Annotated[str | None, URL] = None
    events: Annotated[EventNames | None, EVENTS] = None
    enabled: Annotated[bool | None, describe("`true` also clears `disabled_reason`.")] = None
    description: Annotated[str | None, NOTE] = None
    format: Annotated[str | None, FORMAT] = None


class WebhookWithSecret(msgspec.Struct, frozen=True, kw_only=True):
    webhook: Webhook
    secret: str  # shown only once


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    number: Annotated[int, describe("Number of the attempt, from 1.", example=1)]
    at: Annotated[str, describe("When the attempt was made.", example="2026-11-15T09:30:00.000Z", **TIME)]
    status: Annotated[int | None, describe("HTTP status of the response; null if there was none.", example=200)]
    error: Annotated[str | None, describe("Why there was no response; null if there was one.")]
    duration_ms: Annotated[int, describe("Duration in milliseconds.", example=84)]
    answer: Annotated[str, describe("The first KB of the response body.", example="ok")]


STATE = describe(
    "`delivered`; `waiting` for the next attempt; or `exhausted`: all attempts failed.",
    enum=["waiting", "delivered", "exhausted"],
)


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Delivery of one event to one webhook, with its attempts."""

    event_id: Annotated[str, describe("Id of the event.", example="evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    type: Annotated[str, describe("The event's type.", example="email.delivered", enum=list(EVENT_TYPES))]
    state: Annotated[str, STATE, with_example("delivered")]
    next_attempt_at: Annotated[str | None, describe("When the next attempt is made; null after the last one.", **TIME)]
    created_at: CreatedAt
    attempts: Annotated[list[AttemptRecord], describe("Every attempt; kept for 30 days.")]


class Webhooks:
    """Webhook use cases; every change is validated and written with an audit entry."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        vault: Vault,
        make_secret: Callable[[], str],
        make_pair: MakeKeyPair,
        find_refusal: FindRefusal,
    ) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self._make_secret = make_secret
        self._make_pair = make_pair
        self._find_refusal = find_refusal

    def find(self, team: str | None, id_: str) -> Webhook:
        """Return a webhook of the team, or of any team if `team` is None."""
        return _find_webhook(self._store.setup.current, team, id_)

    async def create(
        self, actor: Actor, team: str, request: WebhookRequest, format_events: Sequence[str] = ()
    ) -> WebhookWithSecret:
        """Create a webhook. `format_events`: event names in a request to a compatibility API."""
        events, description = validate_events(request.events), request.description or ""
        check_description(description)
        format_name = request.format or DEFAULT_FORMAT
        check_format(format_name)
        if request.secret is not None:
            check_secret(request.secret)
        url, login = _split_login(request.url)
        await self.check_target(url)
        _check_webhook_limit(self._store.setup.current, team)
        make_pair = await self._prepare_key_pair(format_name)
        now, id_, secret = self._clock.now(), self._clock.new_id("whk_"), request.secret or self._make_secret()
        hook = Webhook(
            id=id_,
            team=team,
            url=url,
            login=encrypt_login(self._vault, id_, login or ""),
            secret=encrypt_secret(self._vault, id_, secret),
            events=events,
            description=description,
            created_at=now + self._store.clock.offsets.get(_find_team(self._store.setup.current, team).record.ref, 0),
            format=format_name,
            asked=tuple(format_events),
            **new_key_pair(id_, format_name, None, make_pair, self._vault),
        )

        def add_webhook(setup: Setup, _: int) -> SetupChange:
            _check_webhook_limit(setup, team)
            entry = actor.audit_entry(now, "webhook.create", hook.url, id_, team=team)
            return SetupChange(rows=[to_row("webhook", id_, hook, team)], audit=entry)

        await self._store.setup.change(add_webhook, team)
        return WebhookWithSecret(webhook=hook, secret=secret)

    async def create_bin(self, actor: Actor, team: str, base_url: str) -> WebhookWithSecret:
        """Create a webhook for all events that posts to a bin of this service, which reports on each request."""
        url = bin_url(base_url, team, self._clock.random_bytes(TOKEN_BYTES).hex())
        return await self.create(actor, team, WebhookRequest(url=url, events=["*"], description=BIN_DESCRIPTION))

    def secrets_of(self, hook: Webhook) -> list[str]:
        """Return a list with the decrypted current secret; empty if the master secret changed since its encryption."""
        with suppress(ValueError):
            return [self._vault.decrypt(hook.secret, f"webhook/{hook.id}").decode()]
        return []

    async def change(
        self, actor: Actor, team: str | None, id_: str, request: WebhookChange, format_events: Sequence[str] = ()
    ) -> Webhook:
        """Change the fields in the request. Enabling a webhook clears `disabled_reason`."""
        fields: dict[str, Any] = {name: value for name, value in asdict(request).items() if value is not None}
        if request.events is not None:
            fields |= {"events": validate_events(request.events), "asked": tuple(format_events)}
        check_description(request.description or "")
        check_format(request.format or DEFAULT_FORMAT)
        if request.enabled:
            fields["disabled_reason"] = ""
        previous_webhook = self.find(team, id_)
        if request.url is not None:
            fields |= await self._changed_url_fields(previous_webhook, request.url)
        make_pair = (
            self._make_pair
            if previous_webhook.public_key
            else await self._prepare_key_pair(request.format or previous_webhook.format)
        )

        def apply_fields(hook: Webhook) -> Webhook:
            pair = new_key_pair(id_, request.format or hook.format, hook, make_pair, self._vault)
            return replace(hook, **fields, **pair)

        return await self._update(actor, team, id_, apply_fields)

    async def _prepare_key_pair(self, format_name: str) -> MakeKeyPair:
        """Generate a key pair if the format uses one. Called outside the transaction, which must be short."""
        if not FORMATS[format_name].uses_key_pair:
            return self._make_pair
        pair = await asyncio.to_thread(self._make_pair)
        return lambda: pair

    async def _changed_url_fields(self, hook: Webhook, new_url: str) -> dict[str, Any]:
        """Return the fields that change with the URL. A new URL removes the login, lest another host receive it."""
        url, login = _split_login(new_url)
        if url != hook.url:
            await self.check_target(url)
        if login is None and url == hook.url:
            return {"url": url}
        return {"url": url, "login": encrypt_login(self._vault, hook.id, login or "")}

    async def remove(self, actor: Actor, team: str | None, id_: str) -> None:
        def delete_webhook(setup: Setup, _: int) -> SetupChange:
            hook = _find_webhook(setup, team, id_)
            entry = actor.audit_entry(self._clock.now(), "webhook.remove", hook.url, id_, team=hook.team)
            return SetupChange(rows=[to_row("webhook", id_, None, hook.team)], audit=entry)

        await self._store.setup.change(delete_webhook, team)
        await self._store.deliveries.delete_all(id_)

    async def rotate(self, actor: Actor, team: str | None, id_: str) -> WebhookWithSecret:
        """Replace the secret. For 24 h, requests are also signed with the previous secret."""
        previous_webhook = self.find(team, id_)
        secret, make_pair = self._make_secret(), await self._prepare_key_pair(previous_webhook.format)
        now = self._store.clock.team_now(self._team_ref(previous_webhook))

        def replace_secret(hook: Webhook) -> Webhook:
            pair = new_key_pair(id_, hook.format, None, make_pair, self._vault)
            return replace(rotate_secret(hook, secret, now, self._vault), **pair)

        hook = await self._update(actor, team, id_, replace_secret)
        return WebhookWithSecret(webhook=hook, secret=secret)

    async def test(self, actor: Actor, team: str | None, id_: str) -> str:
        """Send a test event to this webhook only; return the event id."""
        hook = self._find_enabled(team, id_)
        data = WebhookTestData(id=id_, url=hook.url, events=hook.events, description=hook.description or None)
        entry = actor.audit_entry(self._clock.now(), "webhook.test", hook.url, id_, team=hook.team)
        return await self._store.deliveries.publish_to_webhook(self._team_ref(hook), id_, TEST, id_, data, entry)

    async def replay(
        self, actor: Actor, team: str | None, id_: str, selection: ReplaySelection, param: str = "event_ids"
    ) -> int:
        """Replay events by id or time range; return their number. `param`: name of the request field in errors."""
        hook = self._find_enabled(team, id_)
        entry = actor.audit_entry(
            self._clock.now(), "webhook.replay", hook.url, _describe_selection(selection), team=hook.team
        )
        try:
            return await self._store.deliveries.replay(
                self._team_ref(hook), id_, selection, partial(is_subscribed, hook), entry
            )
        except NoSuchEvents as error:
            shown_ids = ", ".join(map(quoted, error.ids[:SHOWN_IDS_MAX])) + (
                " …" if len(error.ids) > SHOWN_IDS_MAX else ""
            )
            raise InvalidRequest(f"The team has no events {shown_ids}.", param=param) from None

    async def deliveries(self, team: str | None, id_: str, before: str | None, limit: int) -> list[DeliveryRecord]:
        """Return deliveries of events before the event `before`, newest first; `limit` + 1 if there are more."""
        rows = await self._store.deliveries.list_page(self.find(team, id_).id, before, limit)
        return [_to_record(delivery) for delivery in rows]

    def _team_ref(self, hook: Webhook) -> int:
        return self._store.setup.current.teams[hook.team].record.ref

    def _find_enabled(self, team: str | None, id_: str) -> Webhook:
        hook = self.find(team, id_)
        if not hook.enabled:
            raise InvalidRequest("The webhook is disabled. Enable it first.", param="id")
        return hook

    async def check_target(self, url: str, param: str = "url") -> None:
        """Raise InvalidRequest if webhooks may not connect to this URL."""
        if reason := await self._find_refusal(url):
            raise InvalidRequest(f"{param}: {reason}.", param=param)

    async def _update(self, actor: Actor, team: str | None, id_: str, edit: Callable[[Webhook], Webhook]) -> Webhook:
        def update_webhook(setup: Setup, _: int) -> SetupChange:
            hook = _find_webhook(setup, team, id_)
            changed = edit(hook)
            if changed == hook:
                return SetupChange()
            entry = actor.audit_entry(self._clock.now(), _audit_action(hook, changed), changed.url, id_, team=hook.team)
            return SetupChange(rows=[to_row("webhook", id_, changed, hook.team)], audit=entry)

        await self._store.setup.change(update_webhook, team)
        return self.find(team, id_)


def _split_login(url: str) -> tuple[str, str | None]:
    try:
        return split_login(url)
    except ValueError as error:
        raise InvalidRequest(f"url: {error}.", param="url") from None


def _find_team(setup: Setup, id_: str) -> Team:
    if id_ not in setup.teams:
        raise InvalidRequest(f"There is no team {quoted(id_)}.", param="team")
    return setup.teams[id_]


def _check_webhook_limit(setup: Setup, team: str) -> None:
    if len(_find_team(setup, team).webhooks) >= WEBHOOKS_MAX:
        raise InvalidRequest(f"A team has at most {WEBHOOKS_MAX} webhooks. Delete one that is not needed.")


def _find_webhook(setup: Setup, team: str | None, id_: str) -> Webhook:
    hook = setup.records.get(("webhook", id_))
    if not isinstance(hook, Webhook) or team not in (None, hook.team):
        raise WebhookNotFound(f"The team has no webhook {quoted(id_)}. {WebhookNotFound.fix}", param="id")
    return hook


def _audit_action(before: Webhook, after: Webhook) -> str:
    if after.secret != before.secret:
        return "webhook.rotate"
    if replace(after, enabled=before.enabled, disabled_reason=before.disabled_reason) != before:
        return "webhook.change"
    return "webhook.enable" if after.enabled else "webhook.disable"


def _describe_selection(selection: ReplaySelection) -> str:
    if selection.event_ids is not None:
        return selection.event_ids[0] if len(selection.event_ids) == 1 else f"{len(selection.event_ids)} events"
    times = {"after": selection.created_after, "before": selection.created_before}
    bounds = [f"{label} {timestamp(at)}" for label, at in times.items() if at is not None]
    return " ".join(["events that failed" if selection.failed_only else "events", *bounds])


def _to_attempt_record(attempt: StoredAttempt) -> AttemptRecord:
    return AttemptRecord(
        number=attempt.number,
        at=timestamp(attempt.at),
        status=attempt.status,
        error=attempt.error,
        duration_ms=attempt.duration_ms,
        answer=attempt.answer,
    )


def _to_record(delivery: StoredDelivery) -> DeliveryRecord:
    return DeliveryRecord(
        event_id=delivery.event,
        type=delivery.type,
        state=delivery.state,
        next_attempt_at=timestamp(delivery.due_at) if delivery.due_at is not None else None,
        created_at=timestamp(delivery.created_at),
        attempts=[_to_attempt_record(attempt) for attempt in delivery.attempts],
    )
