"""Parses returned mail: bounces, delays, receipts, complaints and auto-replies.

Invalid mail raises no exception. `to_report` converts the result to a delivery report.
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
    find_reason,
    is_domain_absent,
)
from heliograph.inbound.policy.bounce_recipient import (
    is_contact_address,
    is_same_domain,
    is_same_mailbox,
    recipient_part,
    says_recipient_is_bad,
)
from heliograph.inbound.policy.dsn import RecipientGroup, choose_group, parse_status_groups
from heliograph.inbound.policy.mail_parts import ReceivedMail
from heliograph.inbound.policy.ses_notification import read_notification

Kind = Literal["bounce", "delay", "delivered", "complaint", "auto_reply", "unknown"]

TEXT_MAX = 500  # maximum characters of the remote server's text that are stored

# feedback types of complaints by a recipient; others (auth-failure, dmarc) are about the sender
COMPLAINT_TYPES = frozenset(
    {"abuse", "complaint", "fraud", "virus", "opt-out", "opt-out-list", "miscategorized", "other"}
)

_DAEMON_SENDER = re.compile(
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
    r"|автоответ|自動(?:応答|返信)|不在|自动(?:回复|答复)|자동)",
    re.IGNORECASE,
)
_OUR_MESSAGE_ID = re.compile(r"<(eml_[0-9A-HJKMNP-TV-Z]{26})@[^<>@\s]{1,255}>")
_ANY_WORD = re.compile(r"[^\W\d_]{3}")
_AUTO_REPLY_FIELDS = (
    "x-autoreply",
    "x-autorespond",
    "x-autoresponder",
    "x-autoreply-from",
    "x-vacation",
    "x-auto-reply",
)


class BounceReport(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    permanent: bool | None = None
    status: str | None = None  # enhanced status code, unchanged from the mail
    code: str | None = None  # SMTP reply code; for a complaint, its feedback type
    recipient: str | None = None
    text: str = ""
    action: str | None = None  # action field of RFC 3464
    reason: str | None = None  # name of the reason in bounce_classifier.py; None if the text has none
    bad_address: bool = False  # the address itself is invalid
    absent: bool = False  # the address is invalid because its domain does not exist
    forwarded: bool = False  # the report is about an address to which our recipient forwards mail


def parse_bounce(mail: ReceivedMail, our_recipient: str | None) -> BounceReport:
    """Parse a returned mail. `our_recipient`: our recipient's normalised address; None if unknown."""
    parsed = read_feedback(mail) or parse_status_groups(mail) or read_notification(mail.text())
    if isinstance(parsed, Feedback):
        return _parse_complaint(mail, parsed, our_recipient)
    if group := choose_group(parsed or (), our_recipient):
        return _parse_status(mail, group, our_recipient)
    if report := _parse_notice(mail, our_recipient):
        return report
    return BounceReport(
        kind="auto_reply" if _is_auto(mail) else "unknown", text=_one_line(mail.fields.get("subject", ""))
    )


def reported_sender(mail: ReceivedMail) -> str | None:
    """Return the envelope sender of the original mail that a report encloses; None if missing."""
    feedback = read_feedback(mail)
    return (feedback.sender if feedback else None) or _original_address(mail, "return-path")


def signed_message_id(mail: ReceivedMail, keys_of: Callable[[str], Sequence[SigningKey]]) -> str | None:
    """Return the id of the message enclosed in a complaint; None if its header has no valid DKIM signature of ours."""
    enclosed = mail.enclosed()
    match = _OUR_MESSAGE_ID.fullmatch(enclosed.fields.get("message-id", "")) if enclosed else None
    if enclosed is None or match is None or read_feedback(mail) is None:
        return None
    return match[1] if dkim.is_signed_by_us(enclosed.head.replace(b"\n", b"\r\n"), keys_of) else None


def complaint_address(mail: ReceivedMail) -> str | None:
    """Return the CFBL-Address of the message enclosed in a complaint; None if missing."""
    enclosed = mail.enclosed()
    if enclosed is None or read_feedback(mail) is None:
        return None
    return enclosed.fields.get("cfbl-address", "").partition(";")[0].strip("<> ") or None


def feedback_id(mail: ReceivedMail) -> str | None:
    """Return the Feedback-ID of the message enclosed in a complaint; None if missing."""
    enclosed = mail.enclosed()
    if enclosed is None or not to_report(parse_bounce(mail, None)):
        return None
    return enclosed.fields.get("feedback-id")


def complaint_recipients(mail: ReceivedMail) -> list[str] | None:
    """Return the recipient addresses that a complaint's report fields name; None if `mail` is no complaint."""
    feedback = read_feedback(mail)
    return list(feedback.recipients) if feedback else None


def to_report(bounce: BounceReport) -> Report | None:
    """Convert a returned mail to a delivery report; None if the recipient's status stays unchanged."""
    detail = {
        name: value
        for name, value in (("code", bounce.code), ("enhanced", bounce.status), ("text", bounce.text))
        if value
    }
    if bounce.kind == "complaint":
        detail.pop("code", None)
        is_complaint = bounce.code in COMPLAINT_TYPES
        is_about_recipient = is_complaint and not bounce.forwarded
        return Report(status="complained", detail=detail, suppress="complaint") if is_about_recipient else None
    if bounce.kind == "delivered":
        return Report(status="delivered", detail=detail) if bounce.action != "relayed" else None
    if bounce.kind == "bounce":
        if bounce.forwarded:
            return Report(status="failed", detail={"reason": FORWARDING_FAILED, **detail})
        if bounce.permanent and bounce.bad_address:
            return Report(status="bounced", detail=detail, suppress="bounce", absent=bounce.absent)
        # also after a temporary error, because a server that returns a mail has stopped retrying (contract 6)
        return Report(status="failed", detail=detail)
    return None


def _parse_complaint(mail: ReceivedMail, feedback: Feedback, our_recipient: str | None) -> BounceReport:
    return BounceReport(
        kind="complaint" if feedback.type != NOT_SPAM else "unknown",
        code=feedback.type[:40],
        recipient=next(iter(feedback.recipients), None) or _original_address(mail, "to"),
        text=_one_line(f"feedback report: {feedback.type}"),
        forwarded=bool(
            our_recipient
            and feedback.recipients
            and not any(is_same_domain(recipient, our_recipient) for recipient in feedback.recipients)
        ),
    )


def _parse_status(mail: ReceivedMail, group: RecipientGroup, our_recipient: str | None) -> BounceReport:
    notice = bounce_text.notice_text(mail.text())
    diagnostic = group.diagnostic.partition(";")[2] or group.diagnostic
    forwarded = bool(our_recipient and group.recipient and not is_same_mailbox(group.recipient, our_recipient))
    if our_recipient and forwarded and says_recipient_is_bad(f"{diagnostic}\n{notice}", our_recipient):
        forwarded = False
    elif our_recipient and not forwarded:
        part = recipient_part(notice, our_recipient, _unrelated_addresses(mail), _original_recipients(mail))
        forwarded, notice = group.recipient is None and part is None, part or ""
    codes = bounce_text.read_codes(group.diagnostic)
    if not codes.code and not codes.enhanced:
        codes = bounce_text.read_codes(notice)
    status = _more_specific_status(group.status, codes.enhanced)
    kind = _report_kind(group, status, notice)
    # the diagnostic field may contain only the first line of the reply, which the notice quotes in full
    texts = (diagnostic, bounce_text.read_codes(notice).excerpt)
    reason = find_reason(*(texts if _ANY_WORD.search(diagnostic) else (codes.excerpt, notice)))
    return BounceReport(
        kind=kind,
        permanent=None if kind == "delivered" else kind == "bounce" and _is_permanent(status, codes, reason, notice),
        status=status,
        code=codes.code,
        recipient=group.recipient or _reported_address(mail, notice),
        text=_one_line(group.diagnostic or codes.excerpt or notice),
        action=group.action,
        reason=reason.name if reason else None,
        # Some servers report 5.1.1 for every rejection: the code in the SMTP reply must mean an invalid address, too
        bad_address=blames_address(reason, status, codes.enhanced)
        and not bounce_text.is_sender_rejected(f"{diagnostic}\n{notice}"),
        absent=is_domain_absent(reason, status, codes.enhanced),
        forwarded=forwarded,
    )


def _more_specific_status(field_status: str | None, reply_status: str | None) -> str | None:
    """Return the code of the status field, or the SMTP reply's code if the field is missing or vague.

    A vague code is replaced only by a code of the same class.
    """
    if field_status is None:
        return reply_status
    if reply_status and bounce_text.is_vague_status(field_status) and reply_status[0] == field_status[0]:
        return reply_status
    return field_status


def _report_kind(group: RecipientGroup, status: str | None, notice: str) -> Kind:
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
    if bounce_text.says_permanent(notice):
        return True
    return reason.permanent if reason else None


def _parse_notice(mail: ReceivedMail, our_recipient: str | None) -> BounceReport | None:
    """Parse a bounce or delay notice that has no structured report; None if the mail is neither."""
    notice = bounce_text.notice_text(mail.text())
    subject = mail.fields.get("subject", "")
    failed_recipients = mail.fields.get("x-failed-recipients", "")
    if not failed_recipients and not _is_notice(mail, subject, notice):
        return None
    forwarded = False
    if our_recipient:
        part = recipient_part(notice, our_recipient, _unrelated_addresses(mail), _original_recipients(mail))
        named_addresses = ADDRESS.findall(failed_recipients)
        if not named_addresses and not ADDRESS.search(notice):
            named_addresses = _original_recipients(mail)
        is_about_other_address = (
            not any(is_same_mailbox(address, our_recipient) for address in named_addresses)
            if named_addresses
            else part is None
        )
        forwarded = is_about_other_address and not says_recipient_is_bad(notice, our_recipient)
        notice = part or notice
    codes = bounce_text.read_codes(notice)
    reason = find_reason(codes.excerpt, notice)
    delayed = not failed_recipients and bounce_text.says_still_trying(f"{subject}\n{notice}")
    return BounceReport(
        kind="delay" if delayed else "bounce",
        permanent=not delayed and _is_permanent(codes.enhanced, codes, reason, f"{subject}\n{notice}"),
        status=codes.enhanced,
        code=codes.code,
        recipient=_reported_address(mail, notice),
        text=_one_line(codes.excerpt or notice or subject),
        reason=reason.name if reason else None,
        bad_address=blames_address(reason, codes.enhanced) and not bounce_text.is_sender_rejected(notice),
        absent=is_domain_absent(reason, codes.enhanced),
        forwarded=forwarded,
    )


def _is_notice(mail: ReceivedMail, subject: str, notice: str) -> bool:
    in_subject, in_text = bounce_text.says_undelivered(subject), bounce_text.says_undelivered(notice)
    automatic = _is_auto(mail)
    if _is_daemon(mail):
        is_delay = bounce_text.says_still_trying(f"{subject}\n{notice}")
        return in_subject or in_text or is_delay or (not automatic and _gives_reason(notice))
    return (
        not automatic and in_text and (in_subject or mail.fields.get("return-path") == "<>" or "not a member" in notice)
    )


def _is_daemon(mail: ReceivedMail) -> bool:
    sender = mail.fields.get("from", "")
    return (
        sender in ("", "<>")
        or bool(_DAEMON_SENDER.search(sender))
        or "delivery-status" in mail.fields.get("content-type", "").lower()
    )


def _gives_reason(notice: str) -> bool:
    reason, codes = find_reason(notice), bounce_text.read_codes(notice)
    return bool(codes.code or codes.enhanced or (reason and reason.address_fault))


def _is_auto(mail: ReceivedMail) -> bool:
    fields = mail.fields
    submitted = fields.get("auto-submitted", "").lower()
    return (
        (submitted.startswith("auto-") and "(failure)" not in submitted)
        or any(name in fields for name in _AUTO_REPLY_FIELDS)
        or fields.get("precedence", "").lower() in ("auto_reply", "auto-reply")
        or "disposition-notification" in fields.get("content-type", "").lower()
        or bool(_AUTO_SUBJECT.match(fields.get("subject", "")))
        or is_auto_subject(fields.get("subject", ""))
    )


def _reported_address(mail: ReceivedMail, notice: str) -> str | None:
    """Return the address that failed according to a notice; None if it contains no address."""
    failed_recipient = ADDRESS.search(mail.fields.get("x-failed-recipients", ""))
    if failed_recipient:
        return failed_recipient[0]
    ignored = _unrelated_addresses(mail)
    addresses = [match[0].rstrip(".") for match in ADDRESS.finditer(notice)]
    others = [address for address in addresses if address.lower() not in ignored and not is_contact_address(address)]
    return next(iter(others + addresses), None) or _original_address(mail, "to")


def _unrelated_addresses(mail: ReceivedMail) -> set[str]:
    """Return the addresses in a report that did not fail: its recipient and sender, and the original mail's sender."""
    report_fields = [mail.fields.get(name, "") for name in ("to", "from", "return-path", "delivered-to")]
    original_fields = [
        _original_address(mail, name) or "" for name in ("from", "return-path", "sender", "reply-to", "message-id")
    ]
    return {address.lower() for text in report_fields + original_fields for address in ADDRESS.findall(text)}


def _original_recipients(mail: ReceivedMail) -> list[str]:
    """Return the To and Cc addresses of the original mail; empty for a mail of ours.

    The header of our mail omits Bcc recipients, so a failed Bcc recipient would be taken for someone else's address.
    """
    part = mail.enclosed()
    fields = part.fields if part else bounce_text.original_fields(mail.text())
    if _OUR_MESSAGE_ID.fullmatch(fields.get("message-id", "")):
        return []
    return [address for name in ("to", "cc") for address in ADDRESS.findall(fields.get(name, ""))]


def _original_address(mail: ReceivedMail, name: str) -> str | None:
    """Return the address or id in the header field `name` of the enclosed original mail; None if missing."""
    part = mail.enclosed()
    match = ADDRESS.search(part.fields.get(name, "")) if part else None
    return match[0] if match else None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:TEXT_MAX]
