"""Parses spam complaints: feedback reports (ARF, RFC 5965), and Microsoft's JMRP mails, which have no report part."""

import re

import msgspec

from heliograph.inbound.policy.bounce_text import notice_text
from heliograph.inbound.policy.mail_parts import Fields, ReceivedMail, read_fields

NOT_SPAM = "not-spam"  # the recipient withdrew a complaint

_FEEDBACK_TYPE_FIELD = re.compile(r"^feedback-type[ \t]*:", re.IGNORECASE | re.MULTILINE)
_JMRP_SUBJECT = re.compile(r"complaint about (?:a )?message", re.IGNORECASE)
_JMRP_RECIPIENT_FIELD = "x-hmxmroriginalrecipient"


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    type: str  # abuse, fraud, virus, other, not-spam, auth-failure (RFC 6591), …
    recipients: tuple[str, ...] = ()  # recipient addresses in the fields of the report
    sender: str | None = None  # envelope sender of the reported mail


def read_feedback(mail: ReceivedMail) -> Feedback | None:
    """Return the complaint in a mail; None if the mail is not a complaint."""
    enclosed = mail.enclosed()
    original_fields = enclosed.fields if enclosed else {}
    fields = _feedback_fields(mail)
    if fields is None and enclosed is not None and _is_jmrp(mail, original_fields):
        fields = {}
    if fields is None:
        return None
    raw_recipients = (
        fields.get("original-rcpt-to"),
        fields.get("removal-recipient"),
        original_fields.get(_JMRP_RECIPIENT_FIELD),
    )
    return Feedback(
        type=fields.get("feedback-type", "abuse").lower(),
        recipients=tuple(raw.rpartition(";")[2].strip("<> ") for raw in raw_recipients if raw),
        sender=fields.get("original-mail-from", "").strip("<>") or None,
    )


def _feedback_fields(mail: ReceivedMail) -> Fields | None:
    for part in mail.parts:
        if part.type == "message/feedback-report":
            return read_fields(part.text)
    # Reports with a wrong type or broken MIME have the fields in their text.
    text = notice_text(mail.text())
    match = _FEEDBACK_TYPE_FIELD.search(text)
    fields = read_fields(text[match.start() :].partition("\n\n")[0]) if match else {}
    return fields if "user-agent" in fields and "version" in fields else None


def _is_jmrp(mail: ReceivedMail, original_fields: Fields) -> bool:
    return _JMRP_RECIPIENT_FIELD in original_fields or bool(_JMRP_SUBJECT.match(mail.fields.get("subject", "")))
