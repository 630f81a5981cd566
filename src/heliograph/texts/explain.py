"""Explanations of delivery results: what happened, whose side the cause is on, and what to do.

One table of causes serves all sources. `domain/phones/carrier_codes.py` maps the codes of SMS and WhatsApp carriers to
these causes, `inbound/policy/bounce_classifier.py` the texts of mail servers; internal outcomes name their cause
(`LocalReason` and `ConnectionFailure`). An error of a relay itself is attributed to our carrier, not to the recipient.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

import msgspec
from msgspec.structs import replace

from heliograph.domain.delivery.retry import SCHEDULE_BY_CHANNEL
from heliograph.domain.events import DELAYED, EXPIRED, StoredEvent
from heliograph.domain.field_docs import describe
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.domain.phones.carrier_codes import CAUSE_BY_CODE, CAUSE_BY_RECEIPT_STATE
from heliograph.domain.sending.approvals import APPROVAL
from heliograph.domain.setup.records import Channel
from heliograph.inbound.policy.bounce_classifier import BLOCKLIST_PHRASES, SPAM_PHRASES, find_reason, normalize

BoxStyle = Literal["good", "info", "wait", "bad"]  # style of the box that shows the explanation
FixPage = Literal["", "senders", "templates", "carriers", "queues"]  # page on which the cause can be fixed


# Category of a cause (contract 17).
Category = Literal["recipient", "content", "policy", "infrastructure", "sender", "carrier", "limit"]
# Side of a cause: the recipient and their server, our carrier, the request with the team's setup, or this service.
Side = Literal["theirs", "carrier", "request", "ours"]


class Cause(NamedTuple):
    category: Category
    side: Side
    text: str  # what happened, in one sentence
    advice: str
    retry_helps: bool = True  # whether a resend without changes may succeed
    fix_page: FixPage = ""
    needs_no_action: bool = True  # whether no action is needed while the message is retried


class Explanation(NamedTuple):
    style: BoxStyle
    title: str
    text: str
    advice: str = ""
    cause: str = ""  # key of CAUSES
    retry_helps: bool = True
    fix_page: FixPage = ""

    @property
    def side_label(self) -> str:
        """Return the responsible side (recipient, carrier, …) as text; empty if there is no cause."""
        return SIDE_LABELS[CAUSES[self.cause].side] if self.cause else ""


class ExplanationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An explanation as returned by the API and sent to webhooks."""

    cause: Annotated[str, describe("Stable name of the cause: one of `GET /v1/causes`.", example="mailbox_full")]
    category: Annotated[str, describe("What the cause relates to.", enum=list(get_args(Category)))]
    text: Annotated[str, describe("What happened, in plain English.", example="The mailbox is full.")]
    advice: Annotated[
        str, describe("What to do about it.", example="Ask the recipient to free up space, then send again.")
    ]
    retry_helps: Annotated[bool, describe("Whether resending the same message may succeed.")]


SIDE_LABELS: dict[Side, str] = {
    "theirs": "Recipient's side",
    "carrier": "Our carrier's side",
    "request": "Your side",
    "ours": "Our side",
}
# Names of carriers in explanations, by kind.
CARRIER_NAMES = {
    "smtp": "mail relay",
    **dict.fromkeys(("smpp", "twilio", "http"), "SMS gateway"),
    "cloud_api": "WhatsApp account",
}

_CHECK_ADDRESS = "Check for typos. If it's correct, stop sending to it."
_RETRY_LATER = "Send again later. If it fails again, contact the recipient another way."
_OPERATOR_CHECKS_CARRIER = "An operator needs to check the carrier."
_MAY_ARRIVE_TWICE = "Ask the recipient before you resend: the message may arrive twice."
_CHECK_NUMBER = "Check the number for typos. If it's correct, contact this person another way."

CAUSES: dict[str, Cause] = {
    # -- email: the address
    "unknown_user": Cause("recipient", "theirs", "This mailbox doesn't exist.", _CHECK_ADDRESS, retry_helps=False),
    "address_rejected": Cause(
        "recipient", "theirs", "The mail server rejected this address.", _CHECK_ADDRESS, retry_helps=False
    ),
    "bad_address": Cause(
        "recipient", "theirs", "Mail servers don't accept this address format.", _CHECK_ADDRESS, retry_helps=False
    ),
    "unknown_host": Cause(
        "recipient",
        "theirs",
        "The domain doesn't exist or doesn't accept email.",
        "Check the part after the @ for typos.",
        retry_helps=False,
    ),
    "disabled": Cause(
        "recipient",
        "theirs",
        "The mailbox has been closed or disabled.",
        "Stop sending to this address.",
        retry_helps=False,
    ),
    "moved": Cause(
        "recipient",
        "theirs",
        "The recipient no longer uses this address.",
        "Ask the recipient for the new address.",
        retry_helps=False,
    ),
    "forwarding_failed": Cause(
        "recipient",
        "theirs",
        "The address forwards to another one, which rejected the email.",
        "Ask the recipient to fix the forwarding or for another address.",
        retry_helps=False,
    ),
    "provider_suppressed": Cause(
        "recipient",
        "carrier",
        "Not sent: the address is on the provider's suppression list.",
        "If the address works again, ask an operator to remove it from the provider's list, then resend.",
        retry_helps=False,
        fix_page="carriers",
        needs_no_action=False,
    ),
    # -- email: the mailbox and its server
    "mailbox_full": Cause(
        "recipient", "theirs", "The mailbox is full.", "Ask the recipient to free up space, then send again."
    ),
    "too_large": Cause(
        "content",
        "request",
        "The email is too large for the recipient's server.",
        "Use smaller attachments, or link to the files instead.",
        retry_helps=False,
    ),
    "loop": Cause(
        "infrastructure",
        "theirs",
        "The recipient's mail servers forward the email in a loop.",
        "Only their administrator can fix this. Tell the recipient another way.",
        retry_helps=False,
    ),
    "greylisted": Cause("policy", "theirs", "The server delays email from new senders (greylisting).", _RETRY_LATER),
    "rate": Cause("limit", "theirs", "The recipient's server is limiting how much email we can send.", _RETRY_LATER),
    "lookup": Cause("infrastructure", "theirs", "The recipient's server had a lookup failure.", _RETRY_LATER),
    "temporary": Cause("infrastructure", "theirs", "The recipient's server has a temporary problem.", _RETRY_LATER),
    "system": Cause("infrastructure", "theirs", "The recipient's server has a technical problem.", _RETRY_LATER),
    "unreachable": Cause("infrastructure", "theirs", "The recipient's mail server could not be reached.", _RETRY_LATER),
    "server_silent": Cause(
        "infrastructure",
        "theirs",
        "The recipient's server stopped responding. The email may have arrived.",
        _MAY_ARRIVE_TWICE,
    ),
    "given_up": Cause("infrastructure", "theirs", "The email could not be delivered in time.", _RETRY_LATER),
    "utf8": Cause(
        "infrastructure",
        "theirs",
        "The recipient's server doesn't support international characters in addresses.",
        "Use a different address for this person.",
        retry_helps=False,
    ),
    # -- email: policy of the server and authentication of the sender
    "authentication": Cause(
        "sender",
        "request",
        "The server couldn't verify that the email comes from your domain.",
        "Check the domain's SPF, DKIM and DMARC records.",
        retry_helps=False,
        fix_page="senders",
        needs_no_action=False,
    ),
    "blocklist": Cause(
        "sender",
        "carrier",
        "Our sending server is on a blocklist.",
        "Ask an operator to request removal from the list or use another carrier.",
        retry_helps=False,
        fix_page="carriers",
        needs_no_action=False,
    ),
    "spam": Cause(
        "content",
        "request",
        "The server classified the email as spam.",
        "Check its subject, text and links, and ask the recipient to allow your domain.",
        retry_helps=False,
    ),
    "encryption": Cause(
        "infrastructure",
        "theirs",
        "No encrypted connection to the recipient's server could be established.",
        "Only their administrator can fix this. Tell the recipient another way.",
    ),
    "complained": Cause(
        "recipient",
        "theirs",
        "The recipient reported it as spam to their mail provider.",
        "Stop sending to this address. Only email people who asked for it: complaints hurt your deliverability.",
        retry_helps=False,
    ),
    "policy": Cause(
        "policy",
        "theirs",
        "The email violates a policy of the recipient's server.",
        "See the response for details. Ask the recipient to allow your domain.",
        retry_helps=False,
    ),
    "refused": Cause(
        "policy",
        "theirs",
        "The server rejected the email without a clear reason.",
        "Ask the recipient to allow your domain, or use a different address.",
        retry_helps=False,
    ),
    # -- SMS and WhatsApp: the number
    "bad_number": Cause(
        "recipient", "request", "This is not a valid phone number for this channel.", _CHECK_NUMBER, retry_helps=False
    ),
    "gone_number": Cause(
        "recipient", "theirs", "The number is unknown or no longer in service.", _CHECK_NUMBER, retry_helps=False
    ),
    "landline": Cause(
        "recipient", "theirs", "The number is a landline or can't receive SMS.", _CHECK_NUMBER, retry_helps=False
    ),
    "phone_off": Cause("recipient", "theirs", "The phone is switched off or out of coverage.", "Send again later."),
    "opted_out": Cause(
        "recipient",
        "theirs",
        "The recipient has unsubscribed from this sender.",
        "Don't contact them again. They can resubscribe by messaging the sender.",
        retry_helps=False,
    ),
    "no_whatsapp": Cause(
        "recipient",
        "theirs",
        "This number can't receive WhatsApp: no WhatsApp, an old version, or terms not accepted.",
        "Send an SMS instead.",
        retry_helps=False,
    ),
    "same_number": Cause(
        "recipient",
        "request",
        "Sender and recipient are the same number.",
        "Send to a different number.",
        retry_helps=False,
    ),
    "test_number": Cause(
        "carrier",
        "carrier",
        "The carrier's test account can only send to approved numbers.",
        "Ask an operator to approve the number or use a live account.",
        retry_helps=False,
        fix_page="carriers",
        needs_no_action=False,
    ),
    # -- SMS and WhatsApp: the message, its sender and the route
    "filtered": Cause(
        "content",
        "request",
        "The carrier or the network filtered the message as unwanted.",
        "Check the text and links, and that the sender is registered in this country.",
        retry_helps=False,
    ),
    "sender": Cause(
        "sender",
        "request",
        "This sender isn't allowed for this number.",
        "Add or register a sender ID for this country.",
        retry_helps=False,
        fix_page="senders",
    ),
    "no_route": Cause(
        "carrier",
        "carrier",
        "The carrier has no route to this number.",
        "Ask an operator to allow this country or add another carrier.",
        retry_helps=False,
        fix_page="carriers",
        needs_no_action=False,
    ),
    "form": Cause(
        "content",
        "request",
        "The carrier doesn't accept the message in this form.",
        "Change the text, then send a new message.",
        retry_helps=False,
        fix_page="templates",
    ),
    "template": Cause(
        "content",
        "request",
        "WhatsApp doesn't accept the template or its variables.",
        "Compare the template with the one approved in WhatsApp Manager.",
        retry_helps=False,
        fix_page="templates",
    ),
    "template_unavailable": Cause(
        "content",
        "request",
        "Meta had rejected, paused or disabled the template when the message became due.",
        "Fix the template in WhatsApp Manager, or use another one.",
        retry_helps=False,
        fix_page="templates",
    ),
    "window": Cause(
        "policy",
        "request",
        "The recipient's last message is over 24 hours old, so this template can't be used.",
        "Use a template that can start a conversation.",
        retry_helps=False,
        fix_page="templates",
    ),
    "held_back": Cause(
        "limit",
        "theirs",
        "WhatsApp is currently blocking marketing messages to this recipient.",
        "Wait at least a day before you send again.",
    ),
    "account": Cause(
        "carrier",
        "carrier",
        "The carrier refuses our account (credentials, status or registration).",
        _OPERATOR_CHECKS_CARRIER,
        fix_page="carriers",
        needs_no_action=False,
    ),
    "canceled": Cause("sender", "request", "The message was canceled.", "Send again if it is still needed."),
    "suspended": Cause(
        "sender",
        "request",
        "The team was suspended when the message became due.",
        "Ask an operator to resume the team, then send again.",
    ),
    "suppressed": Cause(
        "recipient",
        "request",
        "The address was on the suppression list when the message became due.",
        "Remove it from the list if the recipient wants your email again.",
        retry_helps=False,
    ),
    "unsubscribed": Cause(
        "recipient",
        "request",
        "The recipient had unsubscribed from this category when the message became due.",
        "Stop sending this category to the recipient. Other emails can still be sent.",
        retry_helps=False,
    ),
    "lost": Cause(
        "carrier", "carrier", "The carrier lost track of the message. It may have arrived.", _MAY_ARRIVE_TWICE
    ),
    "rejected": Cause(
        "carrier",
        "carrier",
        "The carrier rejected the message without a clear reason.",
        _OPERATOR_CHECKS_CARRIER,
        fix_page="carriers",
        needs_no_action=False,
    ),
    "carrier_policy": Cause(
        "carrier",
        "carrier",
        "The message violates a policy of our carrier.",
        "See the response for details. An operator needs to check the carrier.",
        retry_helps=False,
        fix_page="carriers",
        needs_no_action=False,
    ),
    "carrier_limit": Cause(
        "limit",
        "carrier",
        "We have reached our carrier's sending limit.",
        "We retry automatically. If this continues, ask an operator to request a higher limit.",
        fix_page="carriers",
        needs_no_action=False,
    ),
    "carrier_trouble": Cause(
        "carrier",
        "carrier",
        "Our carrier has a technical problem.",
        "We retry automatically. If this continues, an operator needs to check the carrier.",
        fix_page="carriers",
        needs_no_action=False,
    ),
    "carrier_encryption": Cause(
        "carrier",
        "carrier",
        "No encrypted connection to our carrier could be established.",
        "Ask an operator to check the carrier's TLS settings.",
        fix_page="carriers",
        needs_no_action=False,
    ),
    # -- causes within this service
    "expired": Cause(
        "limit",
        "request",
        "The message expired before it could be sent.",
        "Send again with a later expires_at if it is still needed.",
    ),
    "no_carrier": Cause(
        "carrier",
        "carrier",
        "No carrier serves this destination.",
        "Ask an operator to add or enable one.",
        fix_page="carriers",
        needs_no_action=False,
    ),
    "out_of_reach": Cause(
        "carrier",
        "carrier",
        "Our carrier is unreachable.",
        _OPERATOR_CHECKS_CARRIER,
        fix_page="carriers",
        needs_no_action=False,
    ),
    "no_answer": Cause(
        "carrier", "carrier", "Our carrier stopped responding. The message may have been sent.", _MAY_ARRIVE_TWICE
    ),
    "uncertain": Cause(
        "carrier",
        "carrier",
        "Our carrier stopped responding. The message may have been sent, so we don't send it again.",
        _MAY_ARRIVE_TWICE,
    ),
    "broke_off": Cause(
        "infrastructure",
        "ours",
        "An internal error interrupted sending.",
        "An operator can find the error in the server log.",
        fix_page="carriers",
        needs_no_action=False,
    ),
    "not_ready": Cause(
        "infrastructure",
        "ours",
        "The message could not be prepared for sending.",
        "An operator needs to fix the problem shown below.",
        needs_no_action=False,
    ),
    "provider_rate": Cause(
        "limit",
        "ours",
        "It waits because the rate limit for the recipient's provider is reached.",
        "It is sent as soon as the limit permits.",
    ),
    "warmup": Cause(
        "limit",
        "ours",
        "It waits because the daily limit of a new source address is reached.",
        "It is sent as soon as the limit permits.",
    ),
    "approval": Cause(
        "limit",
        "ours",
        "It waits until a person releases it.",
        "An owner of the team, or an operator, can release or reject it.",
        needs_no_action=False,
    ),
    "approval_rejected": Cause(
        "policy",
        "request",
        "A person rejected the message before it was sent.",
        "Ask who rejected it, then send a changed message.",
        retry_helps=False,
    ),
    "approval_expired": Cause(
        "limit",
        "request",
        "Nobody released the message in time.",
        "Send again, and ask an owner of the team to release it in time.",
    ),
    "quarantined": Cause(
        "infrastructure",
        "ours",
        "Processing this message failed repeatedly, so it is held.",
        "An operator can review, retry or delete it.",
        fix_page="queues",
    ),
    "dropped": Cause(
        "infrastructure",
        "ours",
        "Processing this message failed repeatedly, and an operator deleted it.",
        "Send again if it is still needed.",
    ),
    "retried": Cause("infrastructure", "ours", "An operator queued the message again.", "No action is needed."),
    "unexplained": Cause("infrastructure", "theirs", "No reason was given.", _RETRY_LATER),
}

# Advice for operators on carrier failures, by cause; a cause that is missing here uses the advice in its `Cause`.
_CARRIER_ADVICE: dict[str, str] = {
    "out_of_reach": "Check host, port and encryption, that the server is running, and that no firewall blocks us.",
    "no_answer": "Check its status page or log: it accepted the connection but did not respond in time.",
    "carrier_encryption": "Choose the encryption for this port: usually STARTTLS on 587, TLS on 465.",
    "account": "Check the credentials, and that the account is allowed to send.",
    "carrier_policy": "Set a user name and password, or ask the provider to allow this server's IP address.",
    "carrier_limit": "Ask the provider for a higher limit, or use fewer connections.",
    "carrier_trouble": "Wait. If this continues, ask the provider.",
    "rejected": "Ask the provider, and quote the response above.",
    "unexplained": "Ask the provider, and quote the response above.",
    "unreachable": "Try another recipient: this one's server is unreachable. If all fail, check outbound port 25.",
}

# Specific causes of the bounce reason `policy`, by the normalised text; the first match counts. A blocked account is
# here and has no bounce reason of its own: it may be the sender's, so the address must not be suppressed.
_POLICY_PATTERNS = (
    ("utf8", re.compile(r"smtputf8")),
    ("blocklist", re.compile(r"reputation")),
    (
        "authentication",
        re.compile(r"\bspf\b|\bdkim\b|\bdmarc\b|unauthenticat|authentication level|\bptr\b|reverse dns|rdns"),
    ),
    ("encryption", re.compile(r"starttls|\btls\b|certificate|encrypt")),
    (
        "blocklist",
        re.compile(r"(?<!from )\b(?:this|your) ip (?:address )?(?:has been |is |was )(?:temporarily )?(?:block|bann)"),
    ),
    ("rate", re.compile(r"\brate[- ]?limit|at a rate|unusual rate|too (?:many|fast)|slow down")),
    ("policy", re.compile(r"\bnot (?:\w{1,12} )?rfc|duplicate header")),
    (
        "blocklist",
        re.compile(
            r"(?:block|black|deny)[- ]?list|spamhaus|spamcop|barracuda|sorbs|\brbl|dnsbl|\blisted\b"
            rf"|\blisting in\b|\bbanned|complaints?\b|permanently deferred|{BLOCKLIST_PHRASES}"
        ),
    ),
    ("spam", re.compile(rf"spam|unsolicited|\bjunk|phish|virus|malware|\bbulk\b|content|{SPAM_PHRASES}")),
    (
        "disabled",
        re.compile(
            r"(?:postfach|konto|ящик|аккаунт|запис|compte|conta|cuenta|account|mailbox|ucet|contul).{0,25}"
            r"(?:gesperrt|заблок|bloqu|zablok|geblok|blocat|sparr)"
        ),
    ),
)

# Codes that only one mailbox provider uses, as documented by NetEase, Yahoo, Cox, Comcast and Microsoft.
_PROVIDER_CODE_PATTERNS = (
    (
        "blocklist",
        re.compile(r"\b(?:hl:rep|dt:rbl|wm:bli|cxbl|cdrbl|ipbl[01]{4,5}|bl[01]{6}|s3150)\b|\[(?:tss?\d\d|bl\d\d)\]"),
    ),
    ("authentication", re.compile(r"\b(?:mi:spf|cxdns|cxsndr|pt0{5,6}\d|spf0{4}\d)\b")),
    ("rate", re.compile(r"\b(?:hl:i[cf]c|mi:(?:dmc|sfq|stc)|rp:[dqt]rc|cxcnct|cxmxrt|rl0{5}\d)\b")),
    ("spam", re.compile(r"\b(?:dt:spm|urlbl[01]{3,4})\b")),
)

# Enhanced status codes, without their first digit, that have exactly one meaning, as registered by IANA or defined by a
# large mail provider. They take precedence over the reply's text.
SPECIFIC_ENHANCED_CODES: dict[str, str] = {
    "1.90": "rate",
    "2.3": "too_large",
    "2.121": "rate",
    "2.122": "rate",
    "3.4": "too_large",
    "4.5": "rate",
    "4.6": "loop",
    "4.7": "given_up",
    "4.14": "loop",
    "4.300": "given_up",
    "4.317": "encryption",
    "5.3": "rate",
    "6.7": "utf8",
    "7.10": "encryption",
    **dict.fromkeys((f"7.{number}" for number in (*range(20, 28), 30, 31, 32, 40)), "authentication"),
    "7.28": "rate",
    "7.29": "encryption",
    **dict.fromkeys((f"7.{number}" for number in range(320, 326)), "encryption"),
    "7.508": "rate",
    "7.509": "authentication",
    "7.511": "blocklist",
    "7.513": "blocklist",
    "7.515": "authentication",
    **dict.fromkeys((f"7.{number}" for number in range(606, 651)), "blocklist"),
}

# Meaning of other enhanced status codes (RFC 3463), without their first digit, if the reply's text gives no reason. A
# code that is missing here has the meaning of its second number.
GENERAL_ENHANCED_CODES: dict[str, str] = {
    "1.0": "address_rejected",
    "1.1": "unknown_user",
    "1.2": "unknown_host",
    "1.3": "bad_address",
    "1.4": "unknown_user",
    "1.6": "moved",
    "1.7": "policy",
    "1.8": "policy",
    "1.9": "utf8",
    "1.10": "unknown_host",
    "1.351": "unknown_user",
    "1": "address_rejected",
    "2.1": "disabled",
    "2.2": "mailbox_full",
    "2": "system",
    "3": "system",
    "4.4": "unreachable",
    "4": "unreachable",
    "5": "refused",
    "6": "refused",
    "7": "policy",
}

# Bounce reasons whose cause has another name, because the cause `expired` means that we did not send in time.
_CAUSE_BY_REASON = {"expired": "given_up"}
# Causes of a relay's replies about itself or about us; from a mail exchanger they concern the recipient's server.
RELAY_CAUSES: dict[str, str] = {
    "unreachable": "out_of_reach",
    "server_silent": "no_answer",
    "encryption": "carrier_encryption",
    "rate": "carrier_limit",
    "greylisted": "carrier_limit",
    "lookup": "carrier_trouble",
    "temporary": "carrier_trouble",
    "system": "carrier_trouble",
    "policy": "carrier_policy",
    "refused": "carrier_policy",
    "unexplained": "rejected",
}
_RELAY_KIND = "smtp"  # value of `carrier` in the detail of an outcome if the carrier is an SMTP relay
_AUTH_REPLY_CODES = ("454", "530", "534", "535", "538")  # RFC 4954: replies of a relay that requires authentication

# Style and title of each state, and of `deferred` and `expired`, which are results of an attempt.
STATUS_TITLES: dict[str, tuple[BoxStyle, str]] = {
    "queued": ("wait", "Waiting to be sent"),
    "sending": ("wait", "Being sent"),
    "deferred": ("wait", "Not delivered yet, will retry"),
    "approval": ("wait", "Waiting for approval"),
    "sent": ("info", "Sent, not confirmed yet"),
    "delivered": ("good", "Delivered"),
    "read": ("good", "Delivered and read"),
    "complained": ("bad", "Delivered, but marked as spam"),
    "bounced": ("bad", "Not delivered: bounced"),
    "expired": ("bad", "Not delivered: retries exhausted"),
    "failed": ("bad", "Not delivered"),
}
# Texts of states that need no cause.
STATUS_TEXTS: dict[tuple[Channel | None, str], str] = {
    (None, "queued"): "The message is in the queue.",
    (None, "sending"): "The message is being sent.",
    ("email", "sent"): "The relay accepted the email. Relays only report back if delivery fails.",
    ("sms", "sent"): "The carrier accepted the message but hasn't confirmed delivery to the phone.",
    ("whatsapp", "sent"): "WhatsApp accepted the message and delivers it when the phone is online.",
    ("email", "delivered"): "The recipient's mail server accepted the email. It may still be filed as spam.",
    ("sms", "delivered"): "The network confirmed delivery to the phone.",
    ("whatsapp", "delivered"): "Delivered to the phone. Not read yet, or read receipts are off.",
    ("whatsapp", "read"): "The recipient read the message.",
}
FAILURE_STATUSES = ("bounced", "failed", "complained")  # states that are explained by a cause
PAUSED_TEXT = "Delivery is paused on this instance. Messages are sent when an operator resumes it."
SIMULATED_TEXT = "Simulated. Nothing was actually sent."
_OPERATOR_REASONS = ("retried", "dropped")  # operator actions on a dead letter, stored with the recipient
NO_ACTION_NEEDED = "No action is needed. We retry automatically."


def cause_of(channel: Channel, detail: Mapping[str, Any]) -> str:
    """Return the cause (a key of CAUSES) of a failure. `detail`: the detail of its outcome or report."""
    reason, code = str(detail.get("reason") or ""), str(detail.get("code") or "")
    if reason in CAUSES:
        return reason
    if channel == "email":
        from_relay = detail.get("carrier") == _RELAY_KIND
        if from_relay and code in _AUTH_REPLY_CODES:
            return "account"
        text, enhanced = str(detail.get("text") or ""), str(detail.get("enhanced") or "")
        name = detail.get("trouble") or _mail_cause(code, text, enhanced)
        return RELAY_CAUSES.get(name, name) if from_relay else name
    cause_by_code = CAUSE_BY_CODE.get(str(detail.get("carrier") or ""), {})
    cause = cause_by_code.get(code) or CAUSE_BY_RECEIPT_STATE.get(str(detail.get("state") or "")[:5])
    return cause or _cause_by_http_status(code)


def _mail_cause(code: str, text: str, enhanced: str) -> str:
    """Return the cause of a mail server's reply.

    Tried in this order: a specific enhanced status code, the text, a general enhanced status code, the reply code.
    """
    parts = enhanced.split(".")[1:]
    specific_cause = SPECIFIC_ENHANCED_CODES.get(".".join(parts)) or _first_match(_PROVIDER_CODE_PATTERNS, text.lower())
    if specific_cause:
        return specific_cause
    reason = find_reason(text)
    if reason and not reason.weak:
        if reason.name != "policy":
            return _CAUSE_BY_REASON.get(reason.name, reason.name)
        policy_cause = _policy_cause(text)
        return "system" if policy_cause == "policy" and enhanced.startswith("4.3.") else policy_cause
    code_cause = (
        GENERAL_ENHANCED_CODES.get(".".join(parts)) or GENERAL_ENHANCED_CODES.get(parts[0], "") if parts else ""
    )
    if code_cause and (code_cause != "policy" or reason is None or reason.name == "refused"):
        return _policy_cause(text) if code_cause == "policy" else code_cause
    return _CAUSE_BY_REASON.get(reason.name, reason.name) if reason else _cause_by_reply_code(code)


def _cause_by_reply_code(code: str) -> str:
    """Return the cause of a reply code alone (RFC 5321 4.2.3), if text and enhanced code give none."""
    if code == "552":  # exceeded storage allocation
        return "mailbox_full"
    return "temporary" if code.startswith("4") else "unexplained"


def _policy_cause(text: str) -> str:
    return _first_match(_POLICY_PATTERNS, normalize(text)) or "policy"


def _first_match(patterns: Iterable[tuple[str, re.Pattern[str]]], text: str) -> str | None:
    return next((name for name, pattern in patterns if pattern.search(text)), None)


def _cause_by_http_status(code: str) -> str:
    """Return the cause of an HTTP status, or of a carrier's code that no table has."""
    if code.isascii() and code.isdigit() and len(code) == 3:
        if code in ("401", "403", "404"):
            return "account"
        return "carrier_limit" if code == "429" else "carrier_trouble" if code[0] == "5" else "rejected"
    return "unexplained"


def explain(
    channel: Channel,
    status: str,
    detail: Mapping[str, Any],
    *,
    deferred: bool = False,  # the last attempt was deferred
    paused: bool = False,  # delivery is paused for the whole instance
) -> Explanation:
    """Explain the result for one recipient, from its state and the last reply."""
    if status in ("queued", "sending") and not deferred:
        return Explanation(*STATUS_TITLES[status], PAUSED_TEXT if paused else STATUS_TEXTS[None, status])
    if status in ("queued", "sending", "sent") and deferred:
        name = cause_of(channel, detail)
        cause = CAUSES[name]
        advice = PAUSED_TEXT if paused else NO_ACTION_NEEDED if cause.needs_no_action else cause.advice
        fix_page: FixPage = "" if cause.needs_no_action else cause.fix_page
        title = STATUS_TITLES["approval" if name == APPROVAL else "deferred"]
        return Explanation(*title, cause.text, advice, name, cause.retry_helps, fix_page)
    if status in FAILURE_STATUSES:
        name = status if status in CAUSES else cause_of(channel, detail)
        cause = CAUSES[name]
        if not detail.get(EXPIRED):
            return Explanation(
                *STATUS_TITLES[status], cause.text, cause.advice, name, cause.retry_helps, cause.fix_page
            )
        text = f"{cause.text} We stopped retrying after {retry_window_text(channel)}."
        return Explanation(*STATUS_TITLES["expired"], text, cause.advice, name, True, cause.fix_page)
    return Explanation(*STATUS_TITLES[status], STATUS_TEXTS[channel, status])


def carrier_advice(channel: Channel, detail: Mapping[str, Any]) -> str:
    """Return advice for an operator if a carrier did not accept a message."""
    name = cause_of(channel, detail)
    if name == "unexplained" and not detail.get("code"):  # the HTTP API or SMSC did not respond
        name = "out_of_reach"
    return _CARRIER_ADVICE.get(name) or CAUSES[name].advice


def deciding_detail(
    recipient_detail: Mapping[str, Any], event_type: str, event_detail: Mapping[str, Any]
) -> tuple[Mapping[str, Any], bool]:
    """Return the detail that explains the recipient's status, and whether the last attempt was deferred.

    `event_type` and `event_detail`: type and detail of the recipient's last event.
    """
    if recipient_detail.get("reason") == APPROVAL:
        return recipient_detail, True
    detail = recipient_detail if recipient_detail.get("reason") in _OPERATOR_REASONS else event_detail
    return detail, event_type in ("deferred", DELAYED) or recipient_detail.get("reason") == "retried"


def explanation_record(explanation: Explanation) -> ExplanationRecord | None:
    """Return the explanation in API format; None if there is nothing to explain."""
    if not explanation.cause:
        return None
    return _build_record(explanation.cause, explanation.text, explanation.advice, explanation.retry_helps)


def all_causes() -> list[ExplanationRecord]:
    return [_build_record(name, cause.text, cause.advice, cause.retry_helps) for name, cause in CAUSES.items()]


def _build_record(cause: str, text: str, advice: str, retry_helps: bool) -> ExplanationRecord:
    return ExplanationRecord(
        cause=cause, category=CAUSES[cause].category, text=text, advice=advice, retry_helps=retry_helps
    )


def with_explanation(event: StoredEvent) -> StoredEvent:
    """Add an explanation to an event that reports a failure or delay of a message (contract 17)."""
    channel, _, status = event.type.partition(".")
    if event.record is None or (status not in FAILURE_STATUSES and event.type != DELAYED):
        return event
    detail = msgspec.json.decode(event.detail or "{}", type=dict[str, Any])
    explanation = explain(cast(Channel, channel), "sending" if event.type == DELAYED else status, detail, deferred=True)
    record = explanation_record(explanation)
    return replace(event, explanation=record and msgspec.structs.asdict(record))


def retry_window_text(channel: Channel) -> str:
    """Return how long a message is retried, such as `5 days`."""
    window = SCHEDULE_BY_CHANNEL[channel].window
    return f"{window // DAY_MS} days" if window >= DAY_MS else f"{window // MINUTE_MS} minutes"
