"""Feedback-ID header: mailbox providers use it to group complaints by category or template, and by team."""

import hmac
from functools import lru_cache
from typing import NamedTuple

DIRECT = "direct"  # first part of the Feedback-ID of an email with neither category nor template
HASH_CHARS = 12
INSTANCE_CHARS = 10  # Gmail accepts 5 to 15 characters


class FeedbackSource(NamedTuple):
    name: str  # category, template id, or DIRECT
    team: str  # hash of the team


@lru_cache(maxsize=4096)
def feedback_id_suffix(key: bytes, team: str, *, from_template: bool) -> str:
    """Return the parts of a Feedback-ID after the first: hash of the team, class of the mail, instance."""
    class_ = "template" if from_template else DIRECT
    return f"{hash_team(key, team)}:{class_}:{_hash(key, 'instance', '')[:INSTANCE_CHARS]}"


def parse_feedback_id(key: bytes, text: str) -> FeedbackSource | None:
    """Return the source of one of this instance's mails; None if the Feedback-ID is another sender's."""
    match text.split(":"):
        case [name, team, _, instance] if instance == _hash(key, "instance", "")[:INSTANCE_CHARS]:
            return FeedbackSource(name, team)
    return None


def hash_team(key: bytes, team: str) -> str:
    return _hash(key, "team", team)[:HASH_CHARS]


def _hash(key: bytes, kind: str, text: str) -> str:
    return hmac.digest(key, f"feedback id\0{kind}\0{text}".encode(), "sha256").hex()
