"""What a provider tells of one recipient, and how its fields are read."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

# bounced: for good, in the provider's words; failed: given up, whatever the reason; suppressed: the provider did not
# even try, because of its own list.
What = Literal["delivered", "bounced", "failed", "complained", "deferred", "unsubscribed", "suppressed"]

FIELD = "X-Heliograph-Id"  # what is sent along with each mail, by each provider's own header
TEXT_MAX = 500  # characters of the provider's words that are kept
# Subtypes of a bounce as Amazon SES names them, and Resend, which sends through SES. `General` names no cause.
BOUNCE_CAUSES = {
    "NoEmail": "unknown_user",
    "MailboxFull": "mailbox_full",
    "MessageTooLarge": "too_large",
    "ContentRejected": "spam",
    "AttachmentRejected": "spam",
    "CustomTimeoutExceeded": "given_up",
}
_OWN = re.compile("eml_[0-9A-HJKMNP-TV-Z]{26}")
_FOLDED = "heliographid"


class ProviderEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event about one recipient, in our words."""

    what: What
    word: str  # the provider's own name of it
    address: str | None = None  # whom we wrote to
    named: str | None = None  # whom a bounce names, if that is another
    along: str | None = None  # our id, as we sent it along
    carrier_ids: tuple[str, ...] = ()  # the provider's, as in its reply to our hand-over
    message_id: str | None = None  # our id, from the Message-ID
    code: str | None = None
    enhanced: str | None = None
    text: str = ""
    cause: str | None = None  # of words/explain.CAUSES, by the provider's type and subtype alone
    at: str | None = None  # when, as the provider writes it
    gives_up_at: str | None = None  # of a deferral


def own_id(text: object) -> str | None:
    found = _OWN.search(text) if isinstance(text, str) else None
    return found[0] if found else None


def along_in(fields: object) -> str | None:
    """Find our id among a provider's metadata, variables, arguments, tags or headers, however it spells the name."""
    if isinstance(fields, list):
        pairs = [(one.get("name"), one.get("value")) for one in fields if isinstance(one, dict)]
    else:
        pairs = list(fields.items()) if isinstance(fields, dict) else []
    for name, value in pairs:
        if re.sub("[^a-z]", "", str(name).lower()).removeprefix("x") == _FOLDED:
            return own_id(value[0] if isinstance(value, list) and value else value)
    return None


def text_of(*candidates: object) -> str:
    """Return the first that says something, on one line."""
    return next((" ".join(one.split()) for one in candidates if isinstance(one, str) and one.strip()), "")[:TEXT_MAX]


def str_of(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def fields_of(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
