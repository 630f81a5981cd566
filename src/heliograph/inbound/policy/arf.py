"""Complaint parser: feedback reports (RFC 5965), and Microsoft's JMRP, which only attaches the message."""

import re

import msgspec

from heliograph.inbound.policy.bounce_text import own_words
from heliograph.inbound.policy.mail_parts import Fields, ReceivedMail, read_fields

NOT_SPAM = "not-spam"  # the recipient withdraws a complaint

_REPORT = re.compile(r"^feedback-type[ \t]*:", re.IGNORECASE | re.MULTILINE)
_JMRP_SUBJECT = re.compile(r"complaint about (?:a )?message", re.IGNORECASE)
_JMRP_RECIPIENT = "x-hmxmroriginalrecipient"


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    type: str  # abuse, fraud, virus, other, not-spam, auth-failure (RFC 6591), …
    recipients: tuple[str, ...] = ()  # all addresses that the report gives for the complaining recipient
    sender: str | None = None  # envelope sender of the reported mail


def read_feedback(mail: ReceivedMail) -> Feedback | None:
    enclosed = mail.enclosed()
    original = enclosed.fields if enclosed else {}
    fields = _report(mail)
    if fields is None and enclosed is not None and _is_jmrp(mail, original):
        fields = {}
    if fields is None:
        return None
    named = (fields.get("original-rcpt-to"), fields.get("removal-recipient"), original.get(_JMRP_RECIPIENT))
    return Feedback(
        type=fields.get("feedback-type", "abuse").lower(),
        recipients=tuple(one.rpartition(";")[2].strip("<> ") for one in named if one),
        sender=fields.get("original-mail-from", "").strip("<>") or None,
    )


def _report(mail: ReceivedMail) -> Fields | None:
    for part in mail.parts:
        if part.type == "message/feedback-report":
            return read_fields(part.text)
    # Reports with a wrong type or broken MIME have the fields in their text.
    text = own_words(mail.text())
    found = _REPORT.search(text)
    fields = read_fields(text[found.start() :].partition("\n\n")[0]) if found else {}
    return fields if "user-agent" in fields and "version" in fields else None


def _is_jmrp(mail: ReceivedMail, original: Fields) -> bool:
    return _JMRP_RECIPIENT in original or bool(_JMRP_SUBJECT.match(mail.fields.get("subject", "")))
