"""`ProviderEvent`, the common form of all providers' events, and helpers that read fields of callbacks."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

# bounced: permanent according to the provider; failed: the provider stopped trying, for any reason; suppressed: not
# sent because the address is on the provider's suppression list.
EventKind = Literal["delivered", "bounced", "failed", "complained", "deferred", "unsubscribed", "suppressed"]

TRACKING_FIELD = "X-Heliograph-Id"  # name of the metadata with our message id that providers return with each event
TEXT_MAX = 500  # maximum stored characters of a provider's text
# Bounce subtypes of Amazon SES, and of Resend, which sends through SES. `General` states no cause.
CAUSE_BY_BOUNCE_SUBTYPE = {
    "NoEmail": "unknown_user",
    "MailboxFull": "mailbox_full",
    "MessageTooLarge": "too_large",
    "ContentRejected": "spam",
    "AttachmentRejected": "spam",
    "CustomTimeoutExceeded": "given_up",
}
SUPPRESSED_SUBTYPES = ("Suppressed", "OnAccountSuppressionList")  # bounce subtypes for a suppressed recipient
_OUR_MESSAGE_ID = re.compile("eml_[0-9A-HJKMNP-TV-Z]{26}")
_TRACKING_FIELD_LETTERS = "heliographid"


class ProviderEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event about one recipient, independent of the provider."""

    kind: EventKind
    event_name: str  # the provider's name of the event
    address: str | None = None  # recipient that we sent to
    bounced_address: str | None = None  # address that a bounce names, if different
    tracking_id: str | None = None  # our message id, returned from the metadata
    carrier_ids: tuple[str, ...] = ()  # the provider's ids of the mail, as in its SMTP reply
    message_id: str | None = None  # our message id, from the Message-ID header
    code: str | None = None
    enhanced: str | None = None
    text: str = ""
    cause: str | None = None  # a key of `explain.CAUSES`, from the provider's type and subtype only
    at: str | None = None  # time of the event in the provider's format
    gives_up_at: str | None = None  # when the provider stops retrying a deferred mail


def find_message_id(text: object) -> str | None:
    """Return the first of our email ids in the text; None if not found."""
    match = _OUR_MESSAGE_ID.search(text) if isinstance(text, str) else None
    return match[0] if match else None


def tracking_id_in(fields: object) -> str | None:
    """Return our message id from a provider's metadata, variables, arguments, tags or headers; None if not found.

    The name of the field may be spelled in any way, such as with other case or separators.
    """
    if isinstance(fields, list):
        pairs = [(item.get("name"), item.get("value")) for item in fields if isinstance(item, dict)]
    else:
        pairs = list(fields.items()) if isinstance(fields, dict) else []
    for name, value in pairs:
        if re.sub("[^a-z]", "", str(name).lower()).removeprefix("x") == _TRACKING_FIELD_LETTERS:
            return find_message_id(value[0] if isinstance(value, list) and value else value)
    return None


def first_text(*candidates: object) -> str:
    """Return the first non-blank string as one line, truncated; empty if there is none."""
    return next(
        (" ".join(candidate.split()) for candidate in candidates if isinstance(candidate, str) and candidate.strip()),
        "",
    )[:TEXT_MAX]


def as_text(value: object) -> str | None:
    """Return a string or number as text; None if it is empty or of another type."""
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def diagnostic_text(value: object) -> str | None:
    """Return a server's reply without its prefix `smtp;` (RFC 3464)."""
    text = as_text(value)
    return text.partition(";")[2] or text if text else None


def as_dict(value: object) -> Mapping[str, Any]:
    """Return the value if it is a dict, else an empty dict."""
    return value if isinstance(value, dict) else {}
