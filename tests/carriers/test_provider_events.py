"""Bounce events of each mail provider, in the forms that their documentation and recorded webhooks show.

Only a text with an SMTP or an enhanced status code is the remote server's reply. Any other text is the provider's own,
and its event type and subtype decide.
"""

from typing import Any

import msgspec
import pytest

from heliograph.carriers.email.provider_reports import to_reports
from heliograph.carriers.email.providers import make_provider
from heliograph.carriers.email.providers.provider import CallbackOptions
from heliograph.carriers.http_client import CarrierHttp
from heliograph.texts.explain import cause_of
from tests.carriers.providers import OPTIONS, OWN, TO

Fields = dict[str, Any]

# Resend's own text for each bounce type and subtype.
RESEND_GENERAL = (
    "The recipient's email provider sent a hard bounce message, but didn't specify the reason for the hard bounce. We "
    "recommend removing the recipient's email address from your mailing list. Sending messages to addresses that "
    "produce hard bounces can have a negative impact on your reputation as a sender."
)
RESEND_NO_EMAIL = (
    "The intended recipient's email provider sent a bounce message indicating that the email address doesn't exist. We "
    "recommend removing the recipient's email address from your mailing list. Sending messages to addresses that "
    "produce hard bounces can have a negative impact on your reputation as a sender."
)
RESEND_LISTED = (
    "The recipient's email address is on the suppression list because it has a recent history of producing hard "
    "bounces."
)
RESEND_ON_ACCOUNT_LIST = (
    "Resend has suppressed sending to this address because it is on the account-level suppression list. This does not "
    "count toward your bounce rate metric"
)
RESEND_SOFT = (
    "The recipient's email provider sent a general bounce message. You might be able to send a message to the same "
    "recipient in the future if the issue that caused the message to bounce is resolved."
)
RESEND_FULL = (
    "The recipient's email provider sent a bounce message because the recipient's inbox was full. You might be able to "
    "send to the same recipient in the future when the mailbox is no longer full."
)
RESEND_LARGE = (
    "The recipient's email provider sent a bounce message because message you sent was too large. You might be able to "
    "send a message to the same recipient if you reduce the size of the message."
)
RESEND_CONTENT = (
    "The recipient's email provider sent a bounce message because the message you sent contains content that the "
    "provider doesn't allow. You might be able to send a message to the same recipient if you change the content."
)
RESEND_UNDETERMINED = (
    "The recipient's email provider sent a bounce message. The bounce message didn't contain enough information for "
    "Resend to determine the reason for the bounce."
)
POSTMARK_HARD = "The server was unable to deliver your message (ex: unknown user, mailbox not found)."
POSTMARK_INACTIVE = (
    "You tried to send to a recipient that has been marked as inactive. Found inactive addresses: ada@example.com. "
    "Inactive recipients are ones that have generated a hard bounce, a spam complaint, or a manual suppression."
)


def ses(type_: str, subtype: str, diagnostic: str | None = None, status: str | None = None) -> Fields:
    recipient = {"emailAddress": TO, "action": "failed", "status": status, "diagnosticCode": diagnostic}
    bounce = {
        "bounceType": type_,
        "bounceSubType": subtype,
        "bouncedRecipients": [{name: value for name, value in recipient.items() if value}],
    }
    event = {"notificationType": "Bounce", "bounce": bounce, "mail": {"messageId": "0102", "destination": [TO]}}
    return {"Type": "Notification", "Message": msgspec.json.encode(event).decode()}


def postmark(type_: str, details: str, description: str = "") -> Fields:
    fields = {"RecordType": "Bounce", "MessageID": "883953f4", "Email": TO, "Metadata": {"x-heliograph-id": OWN}}
    return fields | {"Type": type_, "Details": details, "Description": description}


def mailgun(reason: str, code: int, message: str = "", description: str = "", **extra: object) -> Fields:
    status = {"code": code, "message": message, "description": description, **extra}
    event = {"event": "failed", "severity": "permanent", "reason": reason, "recipient": TO, "delivery-status": status}
    return {"signature": {}, "event-data": event}


def sendgrid(event: str, reason: str, **extra: object) -> list[Fields]:
    return [
        {"event": event, "email": TO, "timestamp": 1_513_299_569, "sg_message_id": "14c5", "reason": reason, **extra}
    ]


def resend(message: str, type_: str | None = None, subtype: str | None = None, **extra: object) -> Fields:
    bounce = {"message": message, "type": type_, "subType": subtype, **extra}
    data = {"email_id": "5676", "to": [TO], "bounce": {name: value for name, value in bounce.items() if value}}
    return {"type": "email.bounced", "created_at": "2026-11-22T23:41:12.126Z", "data": data}


def resend_other(type_: str, **extra: object) -> Fields:
    return {"type": type_, "created_at": "2026-11-22T23:41:12.126Z", "data": {"email_id": "5676", "to": [TO], **extra}}


def brevo(event: str, reason: str) -> Fields:
    return {"event": event, "email": TO, "ts_epoch": 1_520_363_423_000, "message-id": "<1@mailin.fr>", "reason": reason}


# Provider, payload, status, whether the address is suppressed, cause of the explanation.
EVENTS: list[tuple[str, Any, str, bool, str]] = [
    # -- Amazon SES: "Bounce types" of its developer guide
    ("ses", ses("Permanent", "General"), "bounced", True, "address_rejected"),
    ("ses", ses("Permanent", "NoEmail"), "bounced", True, "unknown_user"),
    ("ses", ses("Permanent", "General", "smtp; 550 5.1.1 user unknown", "5.1.1"), "bounced", True, "unknown_user"),
    ("ses", ses("Permanent", "General", "smtp; 552 5.2.2 over quota", "5.2.2"), "failed", False, "mailbox_full"),
    ("ses", ses("Permanent", "General", "smtp; 552 mailbox full"), "failed", False, "mailbox_full"),
    ("ses", ses("Permanent", "General", None, "5.2.2"), "failed", False, "mailbox_full"),
    ("ses", ses("Permanent", "General", None, "4.4.7"), "failed", False, "given_up"),
    ("ses", ses("Permanent", "MailboxFull"), "failed", False, "mailbox_full"),
    (
        "ses",
        ses("Permanent", "Suppressed", "Amazon SES has suppressed sending to this address because …", "5.1.1"),
        "failed",
        False,
        "provider_suppressed",
    ),
    (
        "ses",
        ses("Permanent", "OnAccountSuppressionList", "Amazon SES did not send the message to this address", "5.1.1"),
        "failed",
        False,
        "provider_suppressed",
    ),
    ("ses", ses("Transient", "General"), "failed", False, "unexplained"),
    ("ses", ses("Transient", "MailboxFull"), "failed", False, "mailbox_full"),
    ("ses", ses("Transient", "MessageTooLarge"), "failed", False, "too_large"),
    ("ses", ses("Transient", "ContentRejected"), "failed", False, "spam"),
    ("ses", ses("Transient", "AttachmentRejected"), "failed", False, "spam"),
    ("ses", ses("Transient", "CustomTimeoutExceeded"), "failed", False, "given_up"),
    ("ses", ses("Undetermined", "Undetermined"), "failed", False, "unexplained"),
    # -- Postmark: "Bounce types" of its API reference
    ("postmark", postmark("HardBounce", "Test bounce details", POSTMARK_HARD), "bounced", True, "address_rejected"),
    ("postmark", postmark("HardBounce", "", POSTMARK_HARD), "bounced", True, "address_rejected"),
    ("postmark", postmark("HardBounce", "smtp;550 5.1.1 user unknown"), "bounced", True, "unknown_user"),
    ("postmark", postmark("HardBounce", "SMTP 550 User unknown"), "bounced", True, "unknown_user"),
    ("postmark", postmark("HardBounce", "smtp;552 5.2.2 Quota exceeded"), "failed", False, "mailbox_full"),
    ("postmark", postmark("HardBounce", "smtp;552 exceeded storage allocation"), "failed", False, "mailbox_full"),
    ("postmark", postmark("BadEmailAddress", "The address is not valid."), "bounced", True, "bad_address"),
    ("postmark", postmark("SMTPApiError", POSTMARK_INACTIVE), "failed", False, "provider_suppressed"),
    ("postmark", postmark("ManuallyDeactivated", "", "spam complaint"), "failed", False, "provider_suppressed"),
    ("postmark", postmark("SpamNotification", "The message was delivered, but …"), "failed", False, "spam"),
    ("postmark", postmark("VirusNotification", "The bounce is probably a virus."), "failed", False, "spam"),
    ("postmark", postmark("DnsError", "A temporary DNS error."), "failed", False, "lookup"),
    ("postmark", postmark("Blocked", "Blocked from this ISP due to content."), "failed", False, "blocklist"),
    ("postmark", postmark("Blocked", "smtp;550 5.7.1 SPF check failed"), "failed", False, "authentication"),
    ("postmark", postmark("DMARCPolicy", "Email rejected by its policy."), "failed", False, "authentication"),
    ("postmark", postmark("SoftBounce", "smtp;452 4.2.2 mailbox full"), "failed", False, "mailbox_full"),
    # -- Mailgun: "Delivery status codes" and the webhooks that django-anymail recorded
    (
        "mailgun",
        mailgun("bounce", 550, "5.1.1 The email account that you tried to reach does not exist."),
        "bounced",
        True,
        "unknown_user",
    ),
    ("mailgun", mailgun("bounce", 550), "bounced", True, "address_rejected"),
    ("mailgun", mailgun("bounce", 552), "failed", False, "mailbox_full"),
    ("mailgun", mailgun("bounce", 552, "mailbox is full"), "failed", False, "mailbox_full"),
    ("mailgun", mailgun("generic", 421), "failed", False, "temporary"),
    ("mailgun", mailgun("generic", 550, "5.7.26 unauthenticated"), "failed", False, "authentication"),
    (
        "mailgun",
        mailgun("suppress-bounce", 605, "", "Not delivering to previously bounced address"),
        "failed",
        False,
        "provider_suppressed",
    ),
    (
        "mailgun",
        mailgun("suppress-complaint", 607, "", "Not delivering to a user who marked your messages as spam"),
        "failed",
        False,
        "provider_suppressed",
    ),
    (
        "mailgun",
        mailgun("old", 602, "Too old", "Unable to connect to MX servers: [example.com]"),
        "failed",
        False,
        "given_up",
    ),
    ("mailgun", mailgun("espblock", 0, "", "Blocked by the provider"), "failed", False, "blocklist"),
    # -- SendGrid: "Event Webhook Reference"
    (
        "sendgrid",
        sendgrid("bounce", "550 5.1.1 The account does not exist.", type="bounce", status="5.1.1"),
        "bounced",
        True,
        "unknown_user",
    ),
    ("sendgrid", sendgrid("bounce", "500 unknown recipient", type="bounce"), "bounced", True, "unknown_user"),
    (
        "sendgrid",
        sendgrid("bounce", "Unable to resolve MX host x.test", type="bounce", bounce_classification="Technical"),
        "failed",
        False,
        "system",
    ),
    (
        "sendgrid",
        sendgrid("bounce", "see our reputation guide", type="bounce", bounce_classification="Invalid Address"),
        "bounced",
        True,
        "unknown_user",
    ),
    (
        "sendgrid",
        sendgrid("bounce", "552 5.2.2 Mailbox size limit exceeded", type="bounce", status="5.2.2"),
        "failed",
        False,
        "mailbox_full",
    ),
    (
        "sendgrid",
        sendgrid("bounce", "blocked", type="blocked", bounce_classification="Reputation"),
        "failed",
        False,
        "blocklist",
    ),
    (
        "sendgrid",
        sendgrid("bounce", "blocked", type="blocked", bounce_classification="Frequency or Volume Too High"),
        "failed",
        False,
        "rate",
    ),
    ("sendgrid", sendgrid("bounce", "no", type="blocked", bounce_classification="Content"), "failed", False, "spam"),
    ("sendgrid", sendgrid("dropped", "Bounced Address", status="5.0.0"), "failed", False, "provider_suppressed"),
    ("sendgrid", sendgrid("dropped", "Spam Reporting Address"), "failed", False, "provider_suppressed"),
    ("sendgrid", sendgrid("dropped", "Unsubscribed Address"), "failed", False, "provider_suppressed"),
    ("sendgrid", sendgrid("dropped", "Invalid"), "failed", False, "bad_address"),
    (
        "sendgrid",
        sendgrid("dropped", "Recipient List over Package Quota"),
        "failed",
        False,
        "carrier_limit",
    ),
    (
        "sendgrid",
        sendgrid("dropped", "Spam Content (if Spam Checker app is enabled)"),
        "failed",
        False,
        "carrier_policy",
    ),
    # -- Resend: "Email bounces" and "email.bounced"; without a type: as recorded in 2023
    ("resend", resend(RESEND_GENERAL, "Permanent", "General"), "bounced", True, "address_rejected"),
    ("resend", resend(RESEND_GENERAL), "bounced", True, "address_rejected"),
    ("resend", resend(RESEND_NO_EMAIL, "Permanent", "NoEmail"), "bounced", True, "unknown_user"),
    ("resend", resend(RESEND_NO_EMAIL), "bounced", True, "address_rejected"),
    (
        "resend",
        resend(RESEND_GENERAL, "Permanent", "General", diagnosticCode=[f"smtp; 550 5.1.1 user unknown <{TO}>"]),
        "bounced",
        True,
        "unknown_user",
    ),
    (
        "resend",
        resend(RESEND_GENERAL, "Permanent", "General", diagnosticCode=["smtp; 552 5.2.2 over quota"]),
        "failed",
        False,
        "mailbox_full",
    ),
    ("resend", resend(RESEND_LISTED, "Permanent", "Suppressed"), "failed", False, "provider_suppressed"),
    ("resend", resend(RESEND_LISTED), "failed", False, "provider_suppressed"),
    ("resend", resend(RESEND_ON_ACCOUNT_LIST), "failed", False, "provider_suppressed"),
    (
        "resend",
        resend_other("email.suppressed", suppressed={"message": RESEND_ON_ACCOUNT_LIST, "type": "OnAccount"}),
        "failed",
        False,
        "provider_suppressed",
    ),
    ("resend", resend(RESEND_SOFT, "Transient", "General"), "failed", False, "unexplained"),
    ("resend", resend(RESEND_SOFT), "failed", False, "unexplained"),
    ("resend", resend(RESEND_FULL, "Transient", "MailboxFull"), "failed", False, "mailbox_full"),
    ("resend", resend(RESEND_FULL, "Permanent", "MailboxFull"), "failed", False, "mailbox_full"),
    ("resend", resend(RESEND_FULL), "failed", False, "mailbox_full"),
    ("resend", resend(RESEND_LARGE, "Transient", "MessageTooLarge"), "failed", False, "too_large"),
    ("resend", resend(RESEND_CONTENT, "Transient", "ContentRejected"), "failed", False, "spam"),
    ("resend", resend(RESEND_UNDETERMINED, "Undetermined", "Undetermined"), "failed", False, "unexplained"),
    ("resend", resend(RESEND_UNDETERMINED), "failed", False, "unexplained"),
    (
        "resend",
        resend_other("email.failed", failed={"reason": "reached_daily_quota"}),
        "failed",
        False,
        "carrier_limit",
    ),
    # -- Brevo: "Transactional webhooks" and those that django-anymail recorded
    ("brevo", brevo("hard_bounce", "550 5.1.1 no such user"), "bounced", True, "unknown_user"),
    (
        "brevo",
        brevo("hard_bounce", f" RecipientError: 550 5.5.0 <{TO}>: Recipient address rejected: undeliverable address"),
        "bounced",
        True,
        "address_rejected",
    ),
    ("brevo", brevo("hard_bounce", "server is down"), "bounced", True, "address_rejected"),
    ("brevo", brevo("hard_bounce", "the mailbox is full"), "failed", False, "mailbox_full"),
    ("brevo", brevo("invalid_email", "(no reason given)"), "bounced", True, "bad_address"),
    ("brevo", brevo("blocked", "blocked : due to blacklist user"), "failed", False, "provider_suppressed"),
    ("brevo", brevo("soft_bounce", "452 4.2.2 over quota"), "failed", False, "mailbox_full"),
    (
        "brevo",
        brevo("soft_bounce", "undefined Unable to find MX of domain no-mx.example.com"),
        "failed",
        False,
        "unexplained",
    ),
    ("brevo", brevo("error", ""), "failed", False, "unexplained"),
]


@pytest.mark.parametrize(("provider", "event", "status", "suppresses", "cause"), EVENTS)
def test_bounce_event_as_documented_has_outcome_and_cause(
    provider: str, event: Any, status: str, suppresses: bool, cause: str
) -> None:
    options = {name.removeprefix("callback_"): value for name, value in OPTIONS[provider].items()}
    reader = make_provider(provider, CallbackOptions(**options), CarrierHttp())
    (parsed_report,) = to_reports(provider, reader.parse_events(event))
    report = parsed_report.report
    assert (report.status, report.suppress, cause_of("email", report.detail)) == (
        status,
        "bounce" if suppresses else None,
        cause,
    )
