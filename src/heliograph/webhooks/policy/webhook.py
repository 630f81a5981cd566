"""Checks a webhook's fields, rotates its secret, and builds the webhook record of the API."""

import hmac
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import pybase64
from msgspec.structs import replace

from heliograph.domain.events import SUBSCRIPTION_NAMES
from heliograph.domain.field_docs import TIME, CreatedAt, Id, describe, schema_limits
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Webhook
from heliograph.domain.setup.secrets import Vault
from heliograph.domain.text import CONTROL_CHARACTER, quoted
from heliograph.webhooks.policy.formats.formats import FORMATS

WEBHOOKS_MAX = 50  # per team
DESCRIPTION_MAX = 500  # characters
SECRET_PREFIX = "whsec_"
SECRET_BYTES = range(24, 65)  # bytes that a chosen secret may have, as in Standard Webhooks
ROTATION_MS = DAY_MS  # how long requests are also signed with the previous secret

EventName = Annotated[str, schema_limits(enum=list(SUBSCRIPTION_NAMES))]
EventNames = Annotated[list[EventName], schema_limits(minItems=1)]

MakeKeyPair = Callable[[], tuple[bytes, str]]  # returns a private key as PEM and its public key in base64


class WebhookRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    url: Annotated[str, describe("Where events are sent.", example="https://example.com/hooks")]
    events: Annotated[
        tuple[EventName, ...],
        describe(
            "Event types, groups or `*` that the webhook subscribes to.",
            example=["email.*", "suppression.created"],
            minItems=1,
        ),
    ]
    enabled: Annotated[bool, describe("Whether events are delivered.", example=True)]
    description: Annotated[str | None, describe("A free-text note.")]
    created_at: CreatedAt
    disabled_reason: Annotated[
        str | None, describe("Why Heliograph disabled the webhook automatically; null otherwise.")
    ]
    secret_rotates_until: Annotated[
        str | None, describe("Until when the previous secret also signs; null outside a rotation.", **TIME)
    ]
    format: Annotated[str, describe("Format of body, headers and signature.", enum=list(FORMATS))]
    public_key: Annotated[
        str | None, describe("Public key that verifies signatures of the `postal` format; null for other formats.")
    ]


class NewWebhookRecord(WebhookRecord, frozen=True, kw_only=True):
    """A webhook with its new signing secret, which is shown only once."""

    secret: Annotated[
        str, describe("Signing secret, `whsec_…`. Shown only once.", example="whsec_EVB6Di9eadXfpApiob17buV+a82Fxnyb")
    ]


def to_record(hook: Webhook, now: int) -> WebhookRecord:
    return WebhookRecord(
        id=hook.id,
        url=hook.url,
        events=hook.events,
        enabled=hook.enabled,
        description=hook.description or None,
        created_at=timestamp(hook.created_at),
        disabled_reason=hook.disabled_reason or None,
        secret_rotates_until=timestamp(hook.old_until) if hook.old_until > now else None,
        format=hook.format,
        public_key=hook.public_key if FORMATS[hook.format].uses_key_pair else None,
    )


def to_new_record(hook: Webhook, secret: str, now: int) -> NewWebhookRecord:
    return NewWebhookRecord(**msgspec.structs.asdict(to_record(hook, now)), secret=secret)


def encrypt_secret(vault: Vault, id_: str, secret: str) -> str:
    return vault.encrypt(secret.encode(), f"webhook/{id_}")


def new_key_pair(
    id_: str, format_name: str, previous: Webhook | None, make_pair: MakeKeyPair, vault: Vault
) -> dict[str, Any]:
    """Return the fields of a new key pair; empty if the format needs none or the webhook already has one."""
    if not FORMATS[format_name].uses_key_pair or (previous and previous.public_key):
        return {}
    private, public = make_pair()
    return {"private_key": vault.encrypt(private, f"webhook/{id_}/key"), "public_key": public}


def encrypt_login(vault: Vault, id_: str, login: str) -> str | None:
    """Encrypt user:password; None if empty."""
    return vault.encrypt(login.encode(), f"webhook/{id_}/login") if login else None


def basic_auth_header(login: str) -> dict[str, str]:
    """Return the Basic Authorization header for user:password."""
    return {"Authorization": f"Basic {pybase64.b64encode(login.encode()).decode()}"}


def rotate_secret(hook: Webhook, secret: str, now: int, vault: Vault) -> Webhook:
    """Replace the signing secret. For 24 h, requests are also signed with the previous secret.

    No-op if the secret is unchanged. If the previous secret cannot be decrypted, because the master secret changed, it
    is dropped.
    """
    try:
        previous_secret = vault.decrypt(hook.secret, f"webhook/{hook.id}")
    except ValueError:
        return replace(hook, secret=encrypt_secret(vault, hook.id, secret), old_secret=None, old_until=0)
    if hmac.compare_digest(previous_secret, secret.encode()):
        return hook
    return replace(
        hook,
        secret=encrypt_secret(vault, hook.id, secret),
        old_secret=vault.encrypt(previous_secret, f"webhook/{hook.id}/old"),
        old_until=now + ROTATION_MS,
    )


def secret_size(secret: str) -> int | None:
    """Return how many key bytes a secret has; None if it is not `whsec_` followed by strict base64."""
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        key = pybase64.b64decode(text, validate=True)
    except ValueError:
        return None
    return len(key) if text != secret and pybase64.b64encode(key).decode() == text else None


def check_secret(secret: str) -> None:
    if secret_size(secret) not in SECRET_BYTES:  # the message does not repeat the secret
        raise InvalidRequest(
            f"secret must be {SECRET_PREFIX} followed by the base64 of {SECRET_BYTES[0]} to {SECRET_BYTES[-1]} bytes. "
            "Leave it out to have one generated.",
            param="secret",
        )


def validate_events(events: Sequence[str]) -> tuple[str, ...]:
    """Validate the event names and remove duplicates."""
    if not events:
        raise InvalidRequest("events is empty. List event types, groups such as email.*, or * for all.", param="events")
    for name in events:
        if name not in SUBSCRIPTION_NAMES:
            raise InvalidRequest(
                f"There is no event {quoted(name)}. Known: {', '.join(SUBSCRIPTION_NAMES)}.", param="events"
            )
    return tuple(dict.fromkeys(events))


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise InvalidRequest(f"There is no format {quoted(name)}. Known: {', '.join(FORMATS)}.", param="format")


def check_description(text: str) -> None:
    if len(text) > DESCRIPTION_MAX or CONTROL_CHARACTER.search(text):
        raise InvalidRequest(
            f"description must be one line of at most {DESCRIPTION_MAX} characters without control characters.",
            param="description",
        )
