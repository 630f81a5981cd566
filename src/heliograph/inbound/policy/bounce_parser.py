"""Parser of returned mail: bounces, delays, receipts, complaints and auto-replies.

No input raises an exception. A parsed record has no effect; `to_report` returns its meaning for a recipient.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from heliograph.domain.delivery.outcome import FORWARDING_FAILED, Report
from heliograph.domain.mail import dkim
from heliograph.domain.mail.auto_reply import is_auto_subject
from heliograph.domain.mail.dkim import SigningKey
from heliograph.inbound.policy import bounce_text
from heliograph.inbound.policy.arf import NOT_SPAM, Feedback, read_feedback
from heliograph.inbound.policy.bounce_classifier import (
    ADDRESS,
    Reason,
    blames_address,
    read_reason,
    says_absent,
)
from heliograph.inbound.policy.bounce_recipient import (
    is_at_ours,
    is_contact,
    is_ours,
    part_about,
    says_unknown,
)
from heliograph.inbound.policy.dsn import Group, choose, read_status
from heliograph.inbound.policy.mail_parts import ReceivedMail
from heliograph.inbound.policy.ses_notification import read_notification

Kind = Literal["bounce", "delay", "delivered", "complaint", "auto_reply", "unknown"]

TEXT_MAX = 500  # characters of the carrier's text that are kept

# Feedback types of a recipient's complaint; other types (auth-failure, dmarc) are about the sender.
COMPLAINTS = frozenset({"abuse", "complaint", "fraud", "virus", "opt-out", "opt-out-list", "miscategorized", "other"})

_DAEMON = re.compile(
    r"mail(?:er)?[ -]?daemon|post_?master|mail(?:er)?[ .]deliver\w*|delivery (?:sub)?system|mail system|\bmdaemon\b"
    r"|mail administrator|system administrator|\bdaemon@|interscan|ndr administrator|delivery notification",
    re.IGNORECASE,
)
_AUTO_SUBJECT = re.compile(
    r"\s*(?:\[?auto(?:matic|mated)?[ -]?(?:re(?:ply|sponse|sponder|spond)|answer)|auto: "
    r"|out[ -]of[ -](?:the[ -])?office|away (?:from|until)"
    r"|vacation|on holiday|on leave|abwesen|automatische (?:antwort|reply)|réponse automatique|absence"
    r"|respuesta autom|fuera de"
    r"|risposta automatica|fuori (?:sede|ufficio)|resposta autom|automatisch antwoord|afwezig|autosvar|frånvaro"
    r"|автоответ|自動(?:応答|返信)"
    r"|不在|自动(?:回复|答复)|자동)",
    re.IGNORECASE,
)
_OWN_ID = re.compile(r"<(eml_[0-9A-HJKMNP-TV-Z]{26})@[^<>@\s]{1,255}>")
_WORD = re.compile(r"[^\W\d_]{3}")
_AUTO_FIELDS = ("x-autoreply", "x-autorespond", "x-autoresponder", "x-autoreply-from", "x-vacation", "x-auto-reply")


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    permanent: bool | None = None
    status: str | None = None  # enhanced code as given in the message
    code: str | None = None  # SMTP reply code; for a complaint: its feedback type
    recipient: str | None = None
    text: str = ""
    action: str | None = None  # action field of RFC 3464
    reason: str | None = None  # reason from bounce_classifier.py, if the text has one
    bad_address: bool = False  # the address itself is the cause
    absent: bool = False  # the cause is that its domain does not exist
    forwarded: bool = False  # about another address, to which ours was forwarded or expanded


def read_returned(mail: ReceivedMail, ours: str | None) -> Returned:
    """Parse what a mail reports about our recipient (a normalised address); if None, about the recipient it names."""
    found = read_feedback(mail) or read_status(mail) or read_notification(mail.text())
    if isinstance(found, Feedback):
        return _complaint(mail, found, ours)
    group = choose(found or (), ours)
    if group:
        return _status_report(mail, group, ours)
    return (
        _notice(mail, ours) or _auto_reply(mail) or Returned(kind="unknown", text=_line(mail.fields.get("subject", "")))
    )


def signed_sender(mail: ReceivedMail) -> str | None:
    """Return the envelope sender of the reported mail, if the report has it."""
    feedback = read_feedback(mail)
    return (feedback.sender if feedback else None) or _enclosed(mail, "return-path")


def signed_message(mail: ReceivedMail, keys_of: Callable[[str], Sequence[SigningKey]]) -> str | None:
    """Return the id of the message that a complaint encloses, if our DKIM signature of its header is valid."""
    enclosed = mail.enclosed()
    found = _OWN_ID.fullmatch(enclosed.fields.get("message-id", "")) if enclosed else None
    if enclosed is None or found is None or read_feedback(mail) is None:
        return None
    return found[1] if dkim.is_ours(enclosed.head.replace(b"\n", b"\r\n"), keys_of) else None


def complaining(mail: ReceivedMail) -> list[str]:
    """Return all addresses that the report gives for the complaining recipient."""
    feedback = read_feedback(mail)
    return list(feedback.recipients) if feedback else []


def to_report(returned: Returned) -> Report | None:
    """Return the report for the recipient; None if the mail has no effect."""
    detail = {
        name: value
        for name, value in (("code", returned.code), ("enhanced", returned.status), ("text", returned.text))
        if value
    }
    if returned.kind == "complaint":
        detail.pop("code", None)
        known = returned.code in COMPLAINTS
        theirs = known and not returned.forwarded
        return Report(status="complained", detail=detail, suppress="complaint") if theirs else None
    if returned.kind == "delivered":
        return Report(status="delivered", detail=detail) if returned.action != "relayed" else None
    if returned.kind == "bounce":
        if returned.forwarded:
            return Report(status="failed", detail={"reason": FORWARDING_FAILED, **detail})
        if returned.permanent and returned.bad_address:
            return Report(status="bounced", detail=detail, suppress="bounce", absent=returned.absent)
        # Also for a soft failure: the server that returns the mail no longer retries (contract 6: retried, then
        # `failed`).
        return Report(status="failed", detail=detail)
    return None


def _complaint(mail: ReceivedMail, feedback: Feedback, ours: str | None) -> Returned:
    return Returned(
        kind="complaint" if feedback.type != NOT_SPAM else "unknown",
        code=feedback.type[:40],
        recipient=next(iter(feedback.recipients), None) or _enclosed(mail, "to"),
        text=_line(f"feedback report: {feedback.type}"),
        forwarded=bool(ours and feedback.recipients and not any(is_at_ours(one, ours) for one in feedback.recipients)),
    )


def _status_report(mail: ReceivedMail, group: Group, ours: str | None) -> Returned:
    notice = bounce_text.own_words(mail.text())
    diagnostic = group.diagnostic.partition(";")[2] or group.diagnostic
    forwarded = bool(ours and group.recipient and not is_ours(group.recipient, ours))
    if ours and forwarded and says_unknown(f"{diagnostic}\n{notice}", ours):
        forwarded = False
    elif ours and not forwarded:
        about = part_about(notice, ours, _strangers(mail), _written_to(mail))
        forwarded, notice = group.recipient is None and about is None, about or ""
    codes = bounce_text.read_codes(group.diagnostic)
    if not codes.code and not codes.enhanced:
        codes = bounce_text.read_codes(notice)
    status = _sharper(group.status, codes.enhanced)
    kind = _kind(group, status, notice)
    # A diagnostic may be the first line of a longer reply that the notice quotes.
    found = (diagnostic, bounce_text.read_codes(notice).excerpt)
    reason = read_reason(*(found if _WORD.search(diagnostic) else (codes.excerpt, notice)))
    return Returned(
        kind=kind,
        permanent=None if kind == "delivered" else kind == "bounce" and _is_permanent(status, codes, reason, notice),
        status=status,
        code=codes.code,
        recipient=group.recipient or _named(mail, notice),
        text=_line(group.diagnostic or codes.excerpt or notice),
        action=group.action,
        reason=reason.name if reason else None,
        # Some servers report any rejected recipient as 5.1.1 although the reply said `5.7.1`: both must blame the
        # address.
        bad_address=blames_address(reason, status, codes.enhanced)
        and not bounce_text.is_at_sender(f"{diagnostic}\n{notice}"),
        absent=says_absent(reason, status, codes.enhanced),
        forwarded=forwarded,
    )


def _sharper(field: str | None, found: str | None) -> str | None:
    """Return the more specific status: the field decides the class; the reply's code adds missing details."""
    if field is None:
        return found
    return found if found and bounce_text.is_vague(field) and found[0] == field[0] else field


def _kind(group: Group, status: str | None, notice: str) -> Kind:
    if group.action in ("delivered", "relayed", "expanded"):
        return "delivered"
    if group.action == "delayed":
        return "delay"
    if group.action is None and status and status[0] == "2":
        return "delivered"
    if group.action is None and status and status[0] == "4" and bounce_text.says_still_trying(notice):
        return "delay"
    return "bounce"


def _is_permanent(status: str | None, codes: bounce_text.Codes, reason: Reason | None, notice: str) -> bool | None:
    for code in (status, codes.code):
        if code and code[0] in "45":
            return code[0] == "5"
    if bounce_text.says_final(notice):
        return True
    return reason.permanent if reason else None


def _notice(mail: ReceivedMail, ours: str | None) -> Returned | None:
    """Parse a bounce or delay notice in plain text; None if the mail is none."""
    notice = bounce_text.own_words(mail.text())
    subject = mail.fields.get("subject", "")
    failed = mail.fields.get("x-failed-recipients", "")
    if not _is_notice(mail, subject, notice, failed):
        return None
    forwarded = False
    if ours:
        about = part_about(notice, ours, _strangers(mail), _written_to(mail))
        named = ADDRESS.findall(failed) or ([] if ADDRESS.search(notice) else _written_to(mail))
        theirs = not any(is_ours(one, ours) for one in named) if named else about is None
        forwarded = theirs and not says_unknown(notice, ours)
        notice = about or notice
    codes = bounce_text.read_codes(notice)
    reason = read_reason(codes.excerpt, notice)
    delayed = not failed and bounce_text.says_still_trying(f"{subject}\n{notice}")
    return Returned(
        kind="delay" if delayed else "bounce",
        permanent=not delayed and _is_permanent(codes.enhanced, codes, reason, f"{subject}\n{notice}"),
        status=codes.enhanced,
        code=codes.code,
        recipient=_named(mail, notice),
        text=_line(codes.excerpt or notice or subject),
        reason=reason.name if reason else None,
        bad_address=blames_address(reason, codes.enhanced) and not bounce_text.is_at_sender(notice),
        absent=says_absent(reason, codes.enhanced),
        forwarded=forwarded,
    )


def _is_notice(mail: ReceivedMail, subject: str, notice: str, failed: str) -> bool:
    if failed:
        return True
    in_subject, in_text = bounce_text.says_returned(subject), bounce_text.says_returned(notice)
    automatic = _is_auto(mail)
    if _is_daemon(mail):
        trying = bounce_text.says_still_trying(f"{subject}\n{notice}")
        return in_subject or in_text or trying or (not automatic and _gives_reason(notice))
    return (
        not automatic and in_text and (in_subject or mail.fields.get("return-path") == "<>" or "not a member" in notice)
    )


def _is_daemon(mail: ReceivedMail) -> bool:
    sender = mail.fields.get("from", "")
    return (
        sender in ("", "<>")
        or bool(_DAEMON.search(sender))
        or "delivery-status" in mail.fields.get("content-type", "").lower()
    )


def _gives_reason(notice: str) -> bool:
    reason, codes = read_reason(notice), bounce_text.read_codes(notice)
    return bool(codes.code or codes.enhanced or (reason and reason.address))


def _auto_reply(mail: ReceivedMail) -> Returned | None:
    subject = mail.fields.get("subject", "")
    return Returned(kind="auto_reply", text=_line(subject)) if _is_auto(mail) else None


def _is_auto(mail: ReceivedMail) -> bool:
    fields = mail.fields
    submitted = fields.get("auto-submitted", "").lower()
    return (
        (submitted.startswith("auto-") and "(failure)" not in submitted)
        or any(name in fields for name in _AUTO_FIELDS)
        or fields.get("precedence", "").lower() in ("auto_reply", "auto-reply")
        or "disposition-notification" in fields.get("content-type", "").lower()
        or bool(_AUTO_SUBJECT.match(fields.get("subject", "")))
        or is_auto_subject(fields.get("subject", ""))
    )


def _named(mail: ReceivedMail, notice: str) -> str | None:
    """Return the address that a notice is about: the first that belongs to neither its recipient nor its sender."""
    failed = ADDRESS.search(mail.fields.get("x-failed-recipients", ""))
    if failed:
        return failed[0]
    known = _strangers(mail)
    named = [found[0].rstrip(".") for found in ADDRESS.finditer(notice)]
    others = [address for address in named if address.lower() not in known and not is_contact(address)]
    return next(iter(others + named), None) or _enclosed(mail, "to")


def _strangers(mail: ReceivedMail) -> set[str]:
    """Return addresses that a report mentions although it is not about them.

    These are its own recipient and sender, and the sender of the original.
    """
    own = [mail.fields.get(name, "") for name in ("to", "from", "return-path", "delivered-to")]
    sent = [_enclosed(mail, name) or "" for name in ("from", "return-path", "sender", "reply-to", "message-id")]
    return {found.lower() for text in own + sent for found in ADDRESS.findall(text)}


def _written_to(mail: ReceivedMail) -> list[str]:
    """Return the To and Cc addresses of the returned original.

    Empty if the original is ours, because a Bcc recipient is not among them.
    """
    part = mail.enclosed()
    fields = part.fields if part else bounce_text.copied_fields(mail.text())
    is_own = _OWN_ID.fullmatch(fields.get("message-id", ""))
    return [] if is_own else [one for name in ("to", "cc") for one in ADDRESS.findall(fields.get(name, ""))]


def _enclosed(mail: ReceivedMail, name: str) -> str | None:
    """Return an address or id from the returned original."""
    part = mail.enclosed()
    found = ADDRESS.search(part.fields.get(name, "")) if part else None
    return found[0] if found else None


def _line(text: str) -> str:
    return " ".join(text.split())[:TEXT_MAX]
