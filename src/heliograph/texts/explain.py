"""Explanations of delivery results: what happened, whose side the cause is on, and what to do.

One table of causes serves all sources. `domain/phones/carrier_codes.py` maps the codes of SMS and WhatsApp carriers to
these causes, `inbound/policy/bounce_classifier.py` the texts of mail servers; internal outcomes name their cause (`Own`
and `Trouble`). An error of a relay itself is attributed to our carrier, not to the recipient.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

import msgspec
from msgspec.structs import replace

from heliograph.domain.delivery.retry import SCHEDULES
from heliograph.domain.events import DELAYED, EXPIRED, StoredEvent
from heliograph.domain.field_docs import says
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.domain.phones.carrier_codes import CODES, STATES
from heliograph.domain.setup.records import Channel
from heliograph.inbound.policy.bounce_classifier import BLOCKLIST, SPAM, plain, read_reason

Kind = Literal["good", "info", "wait", "bad"]  # style of the box
Place = Literal["", "senders", "templates", "carriers", "queues"]  # page on which the cause can be fixed


# Category of a cause (contract 17).
Category = Literal["recipient", "content", "policy", "infrastructure", "sender", "carrier", "limit"]
# Side of a cause: the recipient and their server, our carrier, the request with the team's setup, or this service.
Side = Literal["theirs", "carrier", "request", "ours"]


class Cause(NamedTuple):
    category: Category
    side: Side
    what: str  # what happened, in one sentence
    cure: str
    again: bool = True  # whether a resend without changes may succeed
    see: Place = ""
    waits: bool = True  # whether no action is needed while the message is retried


class Explanation(NamedTuple):
    kind: Kind
    title: str
    text: str
    cure: str = ""
    cause: str = ""  # key of CAUSES
    again: bool = True
    see: Place = ""

    @property
    def side(self) -> str:
        """Return the side of the cause as text; empty if there is no cause."""
        return SIDES[CAUSES[self.cause].side] if self.cause else ""


class ExplanationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An explanation as requests and webhooks are told it."""

    cause: Annotated[str, says("The name to branch on: one of `GET /v1/causes`.", example="mailbox_full")]
    category: Annotated[str, says("What it is about.", enum=list(get_args(Category)))]
    text: Annotated[str, says("What happened, for people.", example="The mailbox is full.")]
    advice: Annotated[str, says("What to do about it.", example="Ask the recipient to make room, then send it again.")]
    retry_helps: Annotated[bool, says("Whether the same message may get through when it is sent again.")]


SIDES: dict[Side, str] = {
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

_ADDRESS = "Check the address for typing mistakes. If it is right, stop writing to it."
_THEIR_SIDE = "Send it again later. If it happens again, ask the recipient by other means."
_OPERATOR = "An operator has to look at the carrier."
_MAYBE_SENT = "Ask the recipient before you send it again: it may arrive twice."
_NUMBER = "Check the number for typing mistakes. If it is right, use another way to reach this person."

CAUSES: dict[str, Cause] = {
    # -- email: the address
    "unknown_user": Cause("recipient", "theirs", "There is no such mailbox.", _ADDRESS, again=False),
    "address_rejected": Cause("recipient", "theirs", "The mail server refuses this address.", _ADDRESS, again=False),
    "bad_address": Cause(
        "recipient", "theirs", "The address has a form that mail servers do not take.", _ADDRESS, again=False
    ),
    "unknown_host": Cause(
        "recipient",
        "theirs",
        "The domain does not exist, or takes no mail.",
        "Check the part after the @ for typing mistakes.",
        again=False,
    ),
    "disabled": Cause(
        "recipient", "theirs", "The mailbox has been closed or disabled.", "Stop writing to this address.", again=False
    ),
    "moved": Cause(
        "recipient",
        "theirs",
        "The recipient no longer uses this address.",
        "Ask the recipient for the new address.",
        again=False,
    ),
    "forwarding_failed": Cause(
        "recipient",
        "theirs",
        "The address passes its mail on to another one, and there it was refused.",
        "Ask the recipient to mend the forwarding, or for another address.",
        again=False,
    ),
    "provider_suppressed": Cause(
        "recipient",
        "carrier",
        "The provider did not try it: the address is on the provider's own suppression list.",
        "If the address is right again, an operator takes it off the provider's list. Then send it again.",
        again=False,
        see="carriers",
        waits=False,
    ),
    # -- email: the mailbox and its server
    "mailbox_full": Cause(
        "recipient", "theirs", "The mailbox is full.", "Ask the recipient to make room, then send it again."
    ),
    "too_large": Cause(
        "content",
        "request",
        "The email is too large for the recipient's server.",
        "Make its attachments smaller, or link to them instead.",
        again=False,
    ),
    "loop": Cause(
        "infrastructure",
        "theirs",
        "The recipient's mail servers pass the email around in a circle.",
        "Only their administrator can mend that: tell the recipient by other means.",
        again=False,
    ),
    "greylisted": Cause(
        "policy",
        "theirs",
        "The server asks senders that it does not know yet to come back later, which is common.",
        _THEIR_SIDE,
    ),
    "rate": Cause("limit", "theirs", "The recipient's server takes no more from us for the moment.", _THEIR_SIDE),
    "lookup": Cause("infrastructure", "theirs", "The recipient's server could not look something up.", _THEIR_SIDE),
    "temporary": Cause("infrastructure", "theirs", "The recipient's server has a problem for the moment.", _THEIR_SIDE),
    "system": Cause("infrastructure", "theirs", "The recipient's server has a technical problem.", _THEIR_SIDE),
    "unreachable": Cause("infrastructure", "theirs", "The recipient's mail server could not be reached.", _THEIR_SIDE),
    "server_silent": Cause(
        "infrastructure", "theirs", "The recipient's server fell silent: the email may have arrived.", _MAYBE_SENT
    ),
    "given_up": Cause("infrastructure", "theirs", "It was on its way for too long, and was given up.", _THEIR_SIDE),
    "utf8": Cause(
        "infrastructure",
        "theirs",
        "The recipient's server does not take addresses with international letters.",
        "Use another address of this person.",
        again=False,
    ),
    # -- email: policy of the server and authentication of the sender
    "authentication": Cause(
        "sender",
        "request",
        "The server could not verify that the email comes from your domain.",
        "Check the domain's SPF, DKIM and DMARC records.",
        again=False,
        see="senders",
        waits=False,
    ),
    "blocklist": Cause(
        "sender",
        "carrier",
        "The server we send from is on a blocklist.",
        "An operator asks the owner of the list to remove it, or sends through another carrier.",
        again=False,
        see="carriers",
        waits=False,
    ),
    "spam": Cause(
        "content",
        "request",
        "The server took the email for spam.",
        "Check its subject, text and links, and ask the recipient to allow your domain.",
        again=False,
    ),
    "encryption": Cause(
        "infrastructure",
        "theirs",
        "No encrypted connection to the recipient's server could be agreed on.",
        "Only their administrator can mend that: tell the recipient by other means.",
    ),
    "complained": Cause(
        "recipient",
        "theirs",
        "The recipient reported it as spam to their mail provider.",
        "Stop writing to this address. Send only what people have asked for: complaints harm all of your mail.",
        again=False,
    ),
    "policy": Cause(
        "policy",
        "theirs",
        "The server does not accept the email, by a rule of its own.",
        "The reply says which one. Ask the recipient to allow your domain.",
        again=False,
    ),
    "refused": Cause(
        "policy",
        "theirs",
        "The server refused the email without a clear reason.",
        "Ask the recipient to allow your domain, or use another address.",
        again=False,
    ),
    # -- SMS and WhatsApp: the number
    "bad_number": Cause(
        "recipient", "request", "This is not a valid phone number for this channel.", _NUMBER, again=False
    ),
    "gone_number": Cause(
        "recipient", "theirs", "The number is unknown, or no longer in service.", _NUMBER, again=False
    ),
    "landline": Cause("recipient", "theirs", "The number is a landline, or cannot receive SMS.", _NUMBER, again=False),
    "phone_off": Cause(
        "recipient",
        "theirs",
        "The phone could not be reached: switched off, or out of coverage.",
        "Send it again later.",
    ),
    "opted_out": Cause(
        "recipient",
        "theirs",
        "The recipient has unsubscribed from this sender.",
        "Respect it. They can subscribe again by writing to the sender.",
        again=False,
    ),
    "no_whatsapp": Cause(
        "recipient",
        "theirs",
        "The number cannot receive WhatsApp messages: no WhatsApp, an old version, or terms not accepted.",
        "Send an SMS instead.",
        again=False,
    ),
    "same_number": Cause(
        "recipient", "request", "Sender and recipient are the same number.", "Send it to another number.", again=False
    ),
    "test_number": Cause(
        "carrier",
        "carrier",
        "The carrier's test account sends only to numbers on its list.",
        "An operator adds the number to the list, or uses a live account.",
        again=False,
        see="carriers",
        waits=False,
    ),
    # -- SMS and WhatsApp: the message, its sender and the route
    "filtered": Cause(
        "content",
        "request",
        "The carrier or the network filtered the message as unwanted.",
        "Check its text and links, and that the sender is registered for the country.",
        again=False,
    ),
    "sender": Cause(
        "sender",
        "request",
        "The sender is not allowed for this number.",
        "Set or register a sender ID for the country.",
        again=False,
        see="senders",
    ),
    "no_route": Cause(
        "carrier",
        "carrier",
        "The carrier has no way to this number.",
        "An operator allows the country, or adds another carrier.",
        again=False,
        see="carriers",
        waits=False,
    ),
    "form": Cause(
        "content",
        "request",
        "The carrier does not accept the message as it is.",
        "Change its text, then send a new message.",
        again=False,
        see="templates",
    ),
    "template": Cause(
        "content",
        "request",
        "WhatsApp does not accept the template, or its variables.",
        "Compare the template with the one approved in WhatsApp Manager.",
        again=False,
        see="templates",
    ),
    "template_unavailable": Cause(
        "content",
        "request",
        "Meta had rejected, paused or disabled the template when the message became due.",
        "Mend the template in WhatsApp Manager, or send by another one.",
        again=False,
        see="templates",
    ),
    "window": Cause(
        "policy",
        "request",
        "The recipient last wrote more than 24 hours ago, and this template may not be sent then.",
        "Use a template that is approved for starting a conversation.",
        again=False,
        see="templates",
    ),
    "held_back": Cause(
        "limit",
        "theirs",
        "WhatsApp holds back marketing from this recipient for now.",
        "Send it again after a day at the earliest.",
    ),
    "account": Cause(
        "carrier",
        "carrier",
        "The carrier does not let us send: account, credentials or registration.",
        _OPERATOR,
        see="carriers",
        waits=False,
    ),
    "canceled": Cause("sender", "request", "The message was canceled.", "Send it again if it is still wanted."),
    "suspended": Cause(
        "sender",
        "request",
        "The team was suspended when the message became due.",
        "Ask the operator to lift the suspension, then send it again.",
    ),
    "suppressed": Cause(
        "recipient",
        "request",
        "The address was on the suppression list when the message became due.",
        "Remove it from the list if the recipient wants your mail again.",
        again=False,
    ),
    "lost": Cause("carrier", "carrier", "The carrier has lost track of the message: it may have arrived.", _MAYBE_SENT),
    "rejected": Cause(
        "carrier",
        "carrier",
        "The carrier rejected the message without a clear reason.",
        _OPERATOR,
        see="carriers",
        waits=False,
    ),
    "carrier_policy": Cause(
        "carrier",
        "carrier",
        "Our carrier does not accept the message, by a rule of its own.",
        "The reply says which one. An operator has to look at the carrier.",
        again=False,
        see="carriers",
        waits=False,
    ),
    "carrier_limit": Cause(
        "limit",
        "carrier",
        "Our carrier takes no more from us for the moment.",
        "It is tried again by itself. If this goes on, an operator asks the carrier for a higher limit.",
        see="carriers",
        waits=False,
    ),
    "carrier_trouble": Cause(
        "carrier",
        "carrier",
        "Our carrier has a technical problem.",
        "It is tried again by itself. If this goes on, an operator has to look at the carrier.",
        see="carriers",
        waits=False,
    ),
    "carrier_encryption": Cause(
        "carrier",
        "carrier",
        "No encrypted connection to our carrier could be agreed on.",
        "An operator checks the carrier's TLS settings.",
        see="carriers",
        waits=False,
    ),
    # -- causes within this service
    "expired": Cause(
        "limit",
        "request",
        "The time that the request gave it was over before it could be sent.",
        "Send it again with a later expires_at, if it is still wanted.",
    ),
    "no_carrier": Cause(
        "carrier",
        "carrier",
        "No carrier serves this destination.",
        "An operator sets up or enables one.",
        see="carriers",
        waits=False,
    ),
    "out_of_reach": Cause(
        "carrier", "carrier", "Our carrier cannot be reached.", _OPERATOR, see="carriers", waits=False
    ),
    "no_answer": Cause("carrier", "carrier", "Our carrier fell silent: the message may have been sent.", _MAYBE_SENT),
    "uncertain": Cause(
        "carrier",
        "carrier",
        "Our carrier fell silent, so nobody knows whether it was sent. It is not sent a second time.",
        _MAYBE_SENT,
    ),
    "broke_off": Cause(
        "infrastructure",
        "ours",
        "An error of our own ended the hand-over.",
        "An operator finds it in the service's log.",
        see="carriers",
        waits=False,
    ),
    "not_ready": Cause(
        "infrastructure",
        "ours",
        "The message could not be prepared for sending.",
        "An operator has to mend what is named below.",
        waits=False,
    ),
    "quarantined": Cause(
        "infrastructure",
        "ours",
        "Delivery crashed repeatedly with this message, so it is parked.",
        "An operator looks at it, and tries it again or drops it.",
        see="queues",
    ),
    "dropped": Cause(
        "infrastructure",
        "ours",
        "Delivery crashed repeatedly with this message, and an operator gave it up.",
        "Send it again if it is still wanted.",
    ),
    "retried": Cause("infrastructure", "ours", "An operator put it into the queue again.", "Nothing has to be done."),
    "unexplained": Cause("infrastructure", "theirs", "The other side gave no reason.", _THEIR_SIDE),
}

# Advice for operators on carrier failures, by cause; other causes use their own advice.
_CARRIER_CURES: dict[str, str] = {
    "out_of_reach": "Check its host, port and encryption, that the other side runs, and that a firewall lets us out.",
    "no_answer": "Look at its own status page or log: it took the connection and did not answer in time.",
    "carrier_encryption": "Choose the encryption that it has on this port: STARTTLS is usual on 587, TLS on 465.",
    "account": "Check user name and password, or the token, and that the account may send.",
    "carrier_policy": "Log in with a user name and password, or have the other side allow this machine's address.",
    "carrier_limit": "Ask it for a higher limit, or use fewer connections.",
    "carrier_trouble": "Wait, and ask whoever runs it if this goes on.",
    "rejected": "Ask whoever runs it, with the words above.",
    "unexplained": "Ask whoever runs it, with the words above.",
    "unreachable": "Try another recipient: this one's server cannot be reached. If none can, check port 25 outwards.",
}

# Refines `policy` by the normalised text. A blocked account may be the sender's, so the recipient is not blamed.
_POLICIES = (
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
            rf"|\blisting in\b|\bbanned|complaints?\b|permanently deferred|{BLOCKLIST}"
        ),
    ),
    ("spam", re.compile(rf"spam|unsolicited|\bjunk|phish|virus|malware|\bbulk\b|content|{SPAM}")),
    (
        "disabled",
        re.compile(
            r"(?:postfach|konto|ящик|аккаунт|запис|compte|conta|cuenta|account|mailbox|ucet|contul).{0,25}"
            r"(?:gesperrt|заблок|bloqu|zablok|geblok|blocat|sparr)"
        ),
    ),
)

# Operator-specific codes, as documented by NetEase, Yahoo, Cox, Comcast and Microsoft.
_OPERATOR_CODES = (
    (
        "blocklist",
        re.compile(r"\b(?:hl:rep|dt:rbl|wm:bli|cxbl|cdrbl|ipbl[01]{4,5}|bl[01]{6}|s3150)\b|\[(?:tss?\d\d|bl\d\d)\]"),
    ),
    ("authentication", re.compile(r"\b(?:mi:spf|cxdns|cxsndr|pt0{5,6}\d|spf0{4}\d)\b")),
    ("rate", re.compile(r"\b(?:hl:i[cf]c|mi:(?:dmc|sfq|stc)|rp:[dqt]rc|cxcnct|cxmxrt|rl0{5}\d)\b")),
    ("spam", re.compile(r"\b(?:dt:spm|urlbl[01]{3,4})\b")),
)

# Enhanced codes with one specific meaning, at IANA or at the large operators that defined them. They take precedence
# over the text. The class is omitted.
NARROW: dict[str, str] = {
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

# Meaning of other enhanced codes (RFC 3463) if the text gives no reason; the longest matching prefix counts.
ENHANCED: dict[str, str] = {
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

# Reasons of `inbound/policy/bounce_classifier.py` with another name here, where `expired` is an internal cause.
_RENAMED = {"expired": "given_up"}
# Causes of a relay's replies about itself or about us; from a mail exchanger they concern the recipient's server.
RELAYED: dict[str, str] = {
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
_RELAY = "smtp"  # kind of carrier in a detail
_LOGIN = ("454", "530", "534", "535", "538")  # RFC 4954: replies of a relay that requires authentication

# Title and style of each state; `deferred` and `expired` are results of an attempt.
TITLES: dict[str, tuple[Kind, str]] = {
    "queued": ("wait", "Waiting to be sent"),
    "sending": ("wait", "Being sent"),
    "deferred": ("wait", "Not delivered yet: waiting for the next try"),
    "sent": ("info", "Handed over, no confirmation yet"),
    "delivered": ("good", "Delivered"),
    "read": ("good", "Delivered and read"),
    "complained": ("bad", "Delivered, but marked as spam"),
    "bounced": ("bad", "Not delivered: bounced"),
    "expired": ("bad", "Not delivered: given up"),
    "failed": ("bad", "Not delivered"),
}
# Texts of states that need no cause.
MEANINGS: dict[tuple[Channel | None, str], str] = {
    (None, "queued"): "It is in the queue and goes out next.",
    (None, "sending"): "It is being handed over right now.",
    ("email", "sent"): "The relay took it. Relays only write back when an email cannot be delivered.",
    ("sms", "sent"): "The carrier took it and has not confirmed that it reached the phone.",
    ("whatsapp", "sent"): "WhatsApp took it. It reaches the phone when the phone is online.",
    ("email", "delivered"): "The recipient's mail server accepted it. No server says whether it shows it as spam.",
    ("sms", "delivered"): "The network confirms that it reached the phone.",
    ("whatsapp", "delivered"): "It reached the phone. It has not been read yet, or read receipts are off.",
    ("whatsapp", "read"): "The recipient has opened it.",
}
BAD_NEWS = ("bounced", "failed", "complained")  # states that have a cause
PAUSED = "Delivery is paused on this instance: it goes out when an operator resumes it."
SIMULATED = "Simulated: nothing left this instance, and it reached nobody."
_BY_OPERATOR = ("retried", "dropped")  # reasons stored with the recipient, without an event
NOTHING = "Nothing has to be done: it is tried again by itself."


def cause_of(channel: Channel, detail: Mapping[str, Any]) -> str:
    """Return the name of the cause for a detail."""
    reason, text = str(detail.get("reason") or ""), str(detail.get("text") or "")
    if reason in CAUSES:
        return reason
    if channel == "email":
        code, by_relay = str(detail.get("code") or ""), detail.get("carrier") == _RELAY
        if by_relay and code in _LOGIN:
            return "account"
        name = detail.get("trouble") or _mail_cause(code, text, str(detail.get("enhanced") or ""))
        return RELAYED.get(name, name) if by_relay else name
    table = CODES.get(str(detail.get("carrier") or ""), {})
    known = table.get(str(detail.get("code") or "")) or STATES.get(str(detail.get("state") or "")[:5])
    return known or _by_status(str(detail.get("code") or ""))


def _mail_cause(code: str, text: str, enhanced: str) -> str:
    """Return the cause of a mail server's reply: by a specific enhanced code, then the text, then any code."""
    parts = enhanced.split(".")[1:]
    narrow = NARROW.get(".".join(parts)) or _first(_OPERATOR_CODES, text.lower())
    if narrow:
        return narrow
    reason = read_reason(text)
    if reason and not reason.weak:
        if reason.name != "policy":
            return _RENAMED.get(reason.name, reason.name)
        policy = _policy(text)
        return "system" if policy == "policy" and enhanced.startswith("4.3.") else policy
    by_code = ENHANCED.get(".".join(parts)) or ENHANCED.get(parts[0], "") if parts else ""
    if by_code and (by_code != "policy" or reason is None or reason.name == "refused"):
        return _policy(text) if by_code == "policy" else by_code
    return _RENAMED.get(reason.name, reason.name) if reason else _by_reply(code)


def _by_reply(code: str) -> str:
    """Return the cause of a reply code alone (RFC 5321 4.2.3), if text and enhanced code give none."""
    if code == "552":  # exceeded storage allocation
        return "mailbox_full"
    return "temporary" if code.startswith("4") else "unexplained"


def _policy(text: str) -> str:
    return _first(_POLICIES, plain(text)) or "policy"


def _first(table: Iterable[tuple[str, re.Pattern[str]]], words: str) -> str | None:
    return next((name for name, phrases in table if phrases.search(words)), None)


def _by_status(code: str) -> str:
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
        return Explanation(*TITLES[status], PAUSED if paused else MEANINGS[None, status])
    if status in ("queued", "sending", "sent") and deferred:
        name = cause_of(channel, detail)
        cause = CAUSES[name]
        cure = PAUSED if paused else NOTHING if cause.waits else cause.cure
        see: Place = "" if cause.waits else cause.see
        return Explanation(*TITLES["deferred"], cause.what, cure, name, cause.again, see)
    if status in BAD_NEWS:
        name = status if status in CAUSES else cause_of(channel, detail)
        cause = CAUSES[name]
        if not detail.get(EXPIRED):
            return Explanation(*TITLES[status], cause.what, cause.cure, name, cause.again, cause.see)
        text = f"{cause.what} It was tried for {tried_for(channel)}, and then given up."
        return Explanation(*TITLES["expired"], text, cause.cure, name, True, cause.see)
    return Explanation(*TITLES[status], MEANINGS[channel, status])


def cure_of_carrier(channel: Channel, detail: Mapping[str, Any]) -> str:
    """Return advice for an operator if a carrier did not accept a message."""
    name = cause_of(channel, detail)
    if name == "unexplained" and not detail.get("code"):  # an HTTP API or SMSC that did not respond
        name = "out_of_reach"
    return _CARRIER_CURES.get(name) or CAUSES[name].cure


def last_words(own: Mapping[str, Any], type_: str, said: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the decisive detail, and whether the last attempt was deferred.

    `own`: the recipient's own detail; `type_` and `said`: its last event.
    """
    detail = own if own.get("reason") in _BY_OPERATOR else said
    return detail, type_ in ("deferred", DELAYED) or own.get("reason") == "retried"


def explanation_record(found: Explanation) -> ExplanationRecord | None:
    """Return the explanation in API format; None if there is nothing to explain."""
    return _record(found.cause, found.text, found.cure, found.again) if found.cause else None


def all_causes() -> list[ExplanationRecord]:
    return [_record(name, cause.what, cause.cure, cause.again) for name, cause in CAUSES.items()]


def _record(cause: str, text: str, advice: str, again: bool) -> ExplanationRecord:
    return ExplanationRecord(cause=cause, category=CAUSES[cause].category, text=text, advice=advice, retry_helps=again)


def explained(event: StoredEvent) -> StoredEvent:
    """Add an explanation to an event that reports a failure or delay of a message (contract 17)."""
    channel, _, word = event.type.partition(".")
    if event.record is None or (word not in BAD_NEWS and event.type != DELAYED):
        return event
    detail = msgspec.json.decode(event.detail or "{}", type=dict[str, Any])
    told = explain(cast(Channel, channel), "sending" if event.type == DELAYED else word, detail, deferred=True)
    found = explanation_record(told)
    return replace(event, explanation=found and msgspec.structs.asdict(found))


def tried_for(channel: Channel) -> str:
    """Return how long a message is retried, as text."""
    window = SCHEDULES[channel].window
    return f"{window // DAY_MS} days" if window >= DAY_MS else f"{window // MINUTE_MS} minutes"
