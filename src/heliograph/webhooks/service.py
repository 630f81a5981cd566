"""Webhook management of a team: create, change and delete webhooks, rotate secrets, send test events, replay events."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, replace

from heliograph.domain.audit.actor import Actor
from heliograph.domain.events import TEST, TYPES
from heliograph.domain.field_docs import CONTROL, DOMAIN_NAME, TIME, CreatedAt, EventNames, says, such_as
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import OWN_FORMAT, Team, Webhook
from heliograph.domain.setup.secrets import Vault
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.domain.text import quoted
from heliograph.runtime.clock import Clock
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store
from heliograph.webhooks.policy.bin import TOKEN_BYTES
from heliograph.webhooks.policy.bin import address as bin_address
from heliograph.webhooks.policy.formats.formats import FORMATS, hears
from heliograph.webhooks.policy.webhook import (
    DESCRIPTION_MAX,
    WEBHOOKS_MAX,
    MakePair,
    check_description,
    check_format,
    check_secret,
    checked_events,
    new_pair,
    rotated,
    sealed_login,
    sealed_secret,
)
from heliograph.webhooks.policy.webhook_url import URL_MAX, split_login
from heliograph.webhooks.store import NoSuchEvents, StoredAttempt, StoredDelivery, WantedEvents

SHOWN = 5  # maximum number of ids in an error message
BIN = "Webhook bin"  # description of a webhook bin

RefusalOf = Callable[[str], Awaitable[str | None]]  # URL → reason why webhooks may not connect to it; None if allowed


FORMAT = says("Whose body, headers and signature its events have: ours, or another service's.", enum=list(FORMATS))
EVENTS = says("Event types, groups such as `email.*`, or `*`.")
NOTE = says("A note for people.", maxLength=DESCRIPTION_MAX, pattern=f"^[^{CONTROL}]*$")
SECRET = says(
    "A secret of your own: `whsec_` and the base64 of 24 to 64 bytes. Without it, one is generated.",
    pattern="^whsec_[A-Za-z0-9+/]{32,86}={0,2}$",
)
URL = says(
    "Where events are sent: http or https, without a fragment. `user:password@` before the host is sent as Basic "
    "authorization, and not shown again.",
    maxLength=URL_MAX,
    # The pattern is stricter than the check: non-ASCII host names and IP addresses that the operator allows also pass.
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
    enabled: Annotated[bool | None, says("`true` also clears `disabled_reason`.")] = None
    description: Annotated[str | None, NOTE] = None
    format: Annotated[str | None, FORMAT] = None


class MadeSecret(msgspec.Struct, frozen=True, kw_only=True):
    webhook: Webhook
    secret: str  # shown only once


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    number: Annotated[int, says("Counts from 1.", example=1)]
    at: Annotated[str, says("When.", example="2026-11-15T09:30:00.000Z", **TIME)]
    status: Annotated[int | None, says("The status that came back; null without an answer.", example=200)]
    error: Annotated[str | None, says("Why there was no answer.")]
    duration_ms: Annotated[int, says("How long it took.", example=84)]
    answer: Annotated[str, says("The first KB of the answer.", example="ok")]


STATE = says("`delivered`, still `waiting`, or given up.", enum=["waiting", "delivered", "exhausted"])


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one event for one webhook."""

    event_id: Annotated[str, says("The event.", example="evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    type: Annotated[str, says("The event's type.", example="email.delivered", enum=list(TYPES))]
    state: Annotated[str, STATE, such_as("delivered")]
    next_attempt_at: Annotated[str | None, says("When it is tried next; null after the last attempt.", **TIME)]
    created_at: CreatedAt
    attempts: Annotated[list[AttemptRecord], says("Every attempt; kept for 30 days.")]


class Webhooks:
    """Webhook use cases; every change is validated and written with an audit entry."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        vault: Vault,
        make_secret: Callable[[], str],
        make_pair: MakePair,
        refusal_of: RefusalOf,
    ) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self._make_secret = make_secret
        self._make_pair = make_pair
        self._refusal_of = refusal_of

    def find(self, team: str | None, id_: str) -> Webhook:
        """Return a webhook of the team, or of any team if `team` is None."""
        return _own(self._store.setup.current, team, id_)

    async def create(self, actor: Actor, team: str, wanted: WebhookRequest, asked: Sequence[str] = ()) -> MadeSecret:
        """Create a webhook. `asked`: the event names of the webhook's format that were requested."""
        events, description = checked_events(wanted.events), wanted.description or ""
        check_description(description)
        form = wanted.format or OWN_FORMAT
        check_format(form)
        if wanted.secret is not None:
            check_secret(wanted.secret)
        url, login = _split(wanted.url)
        await self.check_target(url)
        _check_room(self._store.setup.current, team)
        make_pair = await self._paired(form)
        now, id_, secret = self._clock.now(), self._clock.new_id("whk_"), wanted.secret or self._make_secret()
        new = Webhook(
            id=id_,
            team=team,
            url=url,
            login=sealed_login(self._vault, id_, login or ""),
            secret=sealed_secret(self._vault, id_, secret),
            events=events,
            description=description,
            created_at=now + self._store.clock.moved.get(_team(self._store.setup.current, team).record.ref, 0),
            format=form,
            asked=tuple(asked),
            **new_pair(id_, form, None, make_pair, self._vault),
        )

        def decide(setup: Setup, _: int) -> SetupChange:
            _check_room(setup, team)
            entry = actor.did(now, "webhook.create", new.url, id_, team=team)
            return SetupChange(rows=[to_row("webhook", id_, new, team)], audit=entry)

        await self._store.setup.change(decide, team)
        return MadeSecret(webhook=new, secret=secret)

    async def create_bin(self, actor: Actor, team: str, base_url: str) -> MadeSecret:
        """Create a webhook for all events that posts to this service's own bin, which reports what it received."""
        url = bin_address(base_url, team, self._clock.entropy(TOKEN_BYTES).hex())
        return await self.create(actor, team, WebhookRequest(url=url, events=["*"], description=BIN))

    def secrets_of(self, hook: Webhook) -> list[str]:
        """Return the decrypted current secret as a list; empty if decryption fails (master secret changed)."""
        with suppress(ValueError):
            return [self._vault.open(hook.secret, f"webhook/{hook.id}").decode()]
        return []

    async def change(
        self, actor: Actor, team: str | None, id_: str, wanted: WebhookChange, asked: Sequence[str] = ()
    ) -> Webhook:
        """Change only the given fields. Enabling a webhook clears `disabled_reason`."""
        fields: dict[str, Any] = {name: value for name, value in asdict(wanted).items() if value is not None}
        if wanted.events is not None:
            fields |= {"events": checked_events(wanted.events), "asked": tuple(asked)}
        check_description(wanted.description or "")
        check_format(wanted.format or OWN_FORMAT)
        if wanted.enabled:
            fields["disabled_reason"] = ""
        before = self.find(team, id_)
        if wanted.url is not None:
            fields |= await self._moved(before, wanted.url)
        make_pair = self._make_pair if before.public_key else await self._paired(wanted.format or before.format)

        def change(hook: Webhook) -> Webhook:
            pair = new_pair(id_, wanted.format or hook.format, hook, make_pair, self._vault)
            return replace(hook, **fields, **pair)

        return await self._update(actor, team, id_, change)

    async def _paired(self, form: str) -> MakePair:
        """Generate the format's key pair before the transaction, so that it does not block other writers."""
        if not FORMATS[form].has_keys:
            return self._make_pair
        pair = await asyncio.to_thread(self._make_pair)
        return lambda: pair

    async def _moved(self, hook: Webhook, to: str) -> dict[str, Any]:
        """Return the changed URL fields.

        A stored login is dropped when the URL changes, so no other host receives it.
        """
        url, login = _split(to)
        if url != hook.url:
            await self.check_target(url)
        if login is None and url == hook.url:
            return {"url": url}
        return {"url": url, "login": sealed_login(self._vault, hook.id, login or "")}

    async def remove(self, actor: Actor, team: str | None, id_: str) -> None:
        def decide(setup: Setup, _: int) -> SetupChange:
            hook = _own(setup, team, id_)
            entry = actor.did(self._clock.now(), "webhook.remove", hook.url, id_, team=hook.team)
            return SetupChange(rows=[to_row("webhook", id_, None, hook.team)], audit=entry)

        await self._store.setup.change(decide, team)
        await self._store.deliveries.drop(id_)

    async def rotate(self, actor: Actor, team: str | None, id_: str) -> MadeSecret:
        """Replace the secret. The previous secret also signs for 24 h; older secrets stop signing."""
        before = self.find(team, id_)
        secret, make_pair = self._make_secret(), await self._paired(before.format)
        now = self._store.clock.of(self._ref(before))

        def change(hook: Webhook) -> Webhook:
            pair = new_pair(id_, hook.format, None, make_pair, self._vault)
            return replace(rotated(hook, secret, now, self._vault), **pair)

        hook = await self._update(actor, team, id_, change)
        return MadeSecret(webhook=hook, secret=secret)

    async def test(self, actor: Actor, team: str | None, id_: str) -> str:
        """Send a test event to this webhook only; return the event id."""
        hook = self._listening(team, id_)
        data = {"id": id_, "url": hook.url, "events": hook.events, "description": hook.description or None}
        entry = actor.did(self._clock.now(), "webhook.test", hook.url, id_, team=hook.team)
        return await self._store.deliveries.tell(self._ref(hook), id_, TEST, id_, data, entry)

    async def replay(
        self, actor: Actor, team: str | None, id_: str, wanted: WantedEvents, param: str = "event_ids"
    ) -> int:
        """Replay the listed events or those of a time range; return their count.

        `param`: request field named in errors.
        """
        hook = self._listening(team, id_)
        entry = actor.did(self._clock.now(), "webhook.replay", hook.url, _in_words(wanted), team=hook.team)
        try:
            return await self._store.deliveries.replay(self._ref(hook), id_, wanted, partial(hears, hook), entry)
        except NoSuchEvents as error:
            shown = ", ".join(map(quoted, error.ids[:SHOWN])) + (" …" if len(error.ids) > SHOWN else "")
            raise InvalidRequest(f"The team has no events {shown}.", param=param) from None

    async def deliveries(self, team: str | None, id_: str, before: str | None, limit: int) -> list[DeliveryRecord]:
        """Return deliveries, newest first, plus one beyond `limit` if there are more. `before`: an event id."""
        found = await self._store.deliveries.page(self.find(team, id_).id, before, limit)
        return [_to_record(delivery) for delivery in found]

    def _ref(self, hook: Webhook) -> int:
        return self._store.setup.current.teams[hook.team].record.ref

    def _listening(self, team: str | None, id_: str) -> Webhook:
        hook = self.find(team, id_)
        if not hook.enabled:
            raise InvalidRequest("The webhook is disabled. Enable it first.", param="id")
        return hook

    async def check_target(self, url: str, param: str = "url") -> None:
        if why := await self._refusal_of(url):
            raise InvalidRequest(f"{param}: {why}.", param=param)

    async def _update(self, actor: Actor, team: str | None, id_: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        def decide(setup: Setup, _: int) -> SetupChange:
            hook = _own(setup, team, id_)
            changed = change(hook)
            if changed == hook:
                return SetupChange()
            entry = actor.did(self._clock.now(), _action(hook, changed), changed.url, id_, team=hook.team)
            return SetupChange(rows=[to_row("webhook", id_, changed, hook.team)], audit=entry)

        await self._store.setup.change(decide, team)
        return self.find(team, id_)


def _split(url: str) -> tuple[str, str | None]:
    try:
        return split_login(url)
    except ValueError as error:
        raise InvalidRequest(f"url: {error}.", param="url") from None


def _team(setup: Setup, id_: str) -> Team:
    if id_ not in setup.teams:
        raise InvalidRequest(f"There is no team {quoted(id_)}.", param="team")
    return setup.teams[id_]


def _check_room(setup: Setup, team: str) -> None:
    if len(_team(setup, team).webhooks) >= WEBHOOKS_MAX:
        raise InvalidRequest(f"A team has at most {WEBHOOKS_MAX} webhooks. Delete one that is not needed.")


def _own(setup: Setup, team: str | None, id_: str) -> Webhook:
    hook = setup.records.get(("webhook", id_))
    if not isinstance(hook, Webhook) or team not in (None, hook.team):
        raise WebhookNotFound(f"The team has no webhook {quoted(id_)}. {WebhookNotFound.fix}", param="id")
    return hook


def _action(before: Webhook, after: Webhook) -> str:
    if after.secret != before.secret:
        return "webhook.rotate"
    if replace(after, enabled=before.enabled, disabled_reason=before.disabled_reason) != before:
        return "webhook.change"
    return "webhook.enable" if after.enabled else "webhook.disable"


def _in_words(wanted: WantedEvents) -> str:
    if wanted.event_ids is not None:
        return wanted.event_ids[0] if len(wanted.event_ids) == 1 else f"{len(wanted.event_ids)} events"
    times = {"after": wanted.created_after, "before": wanted.created_before}
    span = [f"{word} {timestamp(at)}" for word, at in times.items() if at is not None]
    return " ".join(["events that failed" if wanted.failed_only else "events", *span])


def _attempt(one: StoredAttempt) -> AttemptRecord:
    return AttemptRecord(
        number=one.number,
        at=timestamp(one.at),
        status=one.status,
        error=one.error,
        duration_ms=one.duration_ms,
        answer=one.answer,
    )


def _to_record(delivery: StoredDelivery) -> DeliveryRecord:
    return DeliveryRecord(
        event_id=delivery.event,
        type=delivery.type,
        state=delivery.state,
        next_attempt_at=timestamp(delivery.due_at) if delivery.due_at is not None else None,
        created_at=timestamp(delivery.created_at),
        attempts=[_attempt(one) for one in delivery.attempts],
    )
