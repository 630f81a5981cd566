"""Did it arrive, and if not, why and what to do: one table of causes for whatever others and we ourselves say.

`rules/carrier_codes.py` leads from the codes of SMS and WhatsApp to these causes, `rules/blame.py` from the words of
mail servers, `OWN_WORDS` from ours.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from heliograph.rules.blame import read_reason
from heliograph.rules.carrier_codes import CODES, STATES
from heliograph.rules.event import EXPIRED
from heliograph.rules.limits import DAY_MS, MINUTE_MS
from heliograph.rules.retry import SCHEDULES
from heliograph.rules.setup.records import Channel

Kind = Literal["good", "info", "wait", "bad"]  # of the box
Place = Literal["", "senders", "templates", "carriers", "queues"]  # where it is mended


class Cause(NamedTuple):
    what: str  # happened, in one sentence
    cure: str
    again: bool = True  # another try may get through as it is
    see: Place = ""
    waits: bool = True  # while it is being tried again, nobody has to do anything


class Explanation(NamedTuple):
    kind: Kind
    title: str
    text: str
    cure: str = ""
    cause: str = ""  # of CAUSES
    again: bool = True
    see: Place = ""


_ADDRESS = "Check the address for typing mistakes. If it is right, stop writing to it."
_THEIR_SIDE = "Send it again later. If it happens again, ask the recipient by other means."
_OPERATOR = "An operator has to look at the carrier."
_MAYBE_SENT = "Ask the recipient before you send it again: it may arrive twice."
_NUMBER = "Check the number for typing mistakes. If it is right, use another way to reach this person."

CAUSES: dict[str, Cause] = {
    # -- email: the address
    "unknown_user": Cause("There is no such mailbox.", _ADDRESS, again=False),
    "address_rejected": Cause("The mail server refuses this address.", _ADDRESS, again=False),
    "bad_address": Cause("The address has a form that mail servers do not take.", _ADDRESS, again=False),
    "unknown_host": Cause(
        "The domain does not exist, or takes no mail.", "Check the part after the @ for typing mistakes.", again=False
    ),
    "disabled": Cause("The mailbox has been closed or disabled.", "Stop writing to this address.", again=False),
    "moved": Cause("The recipient no longer uses this address.", "Ask the recipient for the new address.", again=False),
    "forwarding_failed": Cause(
        "The address passes its mail on to another one, and there it was refused.",
        "Ask the recipient to mend the forwarding, or for another address.",
        again=False,
    ),
    # -- email: the mailbox and its server
    "mailbox_full": Cause("The mailbox is full.", "Ask the recipient to make room, then send it again."),
    "too_large": Cause(
        "The email is too large for the recipient's server.",
        "Make its attachments smaller, or link to them instead.",
        again=False,
    ),
    "loop": Cause(
        "The recipient's mail servers pass the email around in a circle.",
        "Only their administrator can mend that: tell the recipient by other means.",
        again=False,
    ),
    "greylisted": Cause(
        "The server asks senders that it does not know yet to come back later, which is common.", _THEIR_SIDE
    ),
    "rate": Cause("The other side takes no more from us for the moment.", _THEIR_SIDE),
    "lookup": Cause("The other side could not look something up.", _THEIR_SIDE),
    "temporary": Cause("The other side has a problem for the moment.", _THEIR_SIDE),
    "system": Cause("The other side has a technical problem.", _THEIR_SIDE),
    "unreachable": Cause("The recipient's mail server could not be reached.", _THEIR_SIDE),
    "expired": Cause("It was on its way for too long, and was given up.", _THEIR_SIDE),
    "utf8": Cause(
        "The recipient's server does not take addresses with international letters.",
        "Use another address of this person.",
        again=False,
    ),
    # -- email: what the server thinks of us or of the mail
    "authentication": Cause(
        "The server could not verify that the email comes from your domain.",
        "Check the domain's SPF, DKIM and DMARC records.",
        again=False,
        see="senders",
        waits=False,
    ),
    "blocklist": Cause(
        "The server we send from is on a blocklist.",
        "An operator asks the owner of the list to remove it, or sends through another carrier.",
        again=False,
        see="carriers",
        waits=False,
    ),
    "spam": Cause(
        "The server took the email for spam.",
        "Check its subject, text and links, and ask the recipient to allow your domain.",
        again=False,
    ),
    "encryption": Cause(
        "No encrypted connection to the server could be agreed on.",
        "An operator checks the carrier's TLS settings.",
        see="carriers",
        waits=False,
    ),
    "policy": Cause(
        "The server does not accept the email, by a rule of its own.",
        "The reply says which one. Ask the recipient to allow your domain.",
        again=False,
    ),
    "refused": Cause(
        "The server refused the email without a clear reason.",
        "Ask the recipient to allow your domain, or use another address.",
        again=False,
    ),
    # -- SMS and WhatsApp: the number
    "bad_number": Cause("This is not a valid phone number for this channel.", _NUMBER, again=False),
    "gone_number": Cause("The number is unknown, or no longer in service.", _NUMBER, again=False),
    "landline": Cause("The number is a landline, or cannot receive SMS.", _NUMBER, again=False),
    "phone_off": Cause("The phone could not be reached: switched off, or out of coverage.", "Send it again later."),
    "opted_out": Cause(
        "The recipient has unsubscribed from this sender.",
        "Respect it. They can subscribe again by writing to the sender.",
        again=False,
    ),
    "no_whatsapp": Cause(
        "The number cannot receive WhatsApp messages: no WhatsApp, an old version, or terms not accepted.",
        "Send an SMS instead.",
        again=False,
    ),
    "same_number": Cause("Sender and recipient are the same number.", "Send it to another number.", again=False),
    "test_number": Cause(
        "The carrier's test account sends only to numbers on its list.",
        "An operator adds the number to the list, or uses a live account.",
        again=False,
        see="carriers",
    ),
    # -- SMS and WhatsApp: the message, its sender and the way
    "filtered": Cause(
        "The carrier or the network filtered the message as unwanted.",
        "Check its text and links, and that the sender is registered for the country.",
        again=False,
    ),
    "sender": Cause(
        "The sender is not allowed for this number.",
        "Set or register a sender ID for the country.",
        again=False,
        see="senders",
    ),
    "no_route": Cause(
        "The carrier has no way to this number.",
        "An operator allows the country, or adds another carrier.",
        again=False,
        see="carriers",
    ),
    "form": Cause(
        "The carrier does not accept the message as it is.",
        "Change its text, then send a new message.",
        again=False,
        see="templates",
    ),
    "template": Cause(
        "WhatsApp does not accept the template, or its variables.",
        "Compare the template with the one approved in WhatsApp Manager.",
        again=False,
        see="templates",
    ),
    "window": Cause(
        "The recipient last wrote more than 24 hours ago, and this template may not be sent then.",
        "Use a template that is approved for starting a conversation.",
        again=False,
        see="templates",
    ),
    "held_back": Cause(
        "WhatsApp holds back marketing from this recipient for now.", "Send it again after a day at the earliest."
    ),
    "account": Cause(
        "The carrier does not let us send: account, credentials or registration.",
        _OPERATOR,
        see="carriers",
        waits=False,
    ),
    "canceled": Cause("The message was canceled.", "Send it again if it is still wanted."),
    "suspended": Cause(
        "The team was suspended when the message became due.",
        "Ask the operator to lift the suspension, then send it again.",
    ),
    "suppressed": Cause(
        "The address was on the suppression list when the message became due.",
        "Remove it from the list if the recipient wants your mail again.",
        again=False,
    ),
    "lost": Cause("The carrier has lost track of the message: it may have arrived.", _MAYBE_SENT),
    "rejected": Cause("The carrier rejected the message without a clear reason.", _OPERATOR, see="carriers"),
    # -- our own words
    "no_carrier": Cause(
        "No carrier serves this destination.", "An operator sets up or enables one.", see="carriers", waits=False
    ),
    "out_of_reach": Cause("Our carrier cannot be reached.", _OPERATOR, see="carriers", waits=False),
    "no_answer": Cause("The other side fell silent: the message may have been sent.", _MAYBE_SENT),
    "uncertain": Cause(
        "The other side fell silent, so nobody knows whether it was sent. It is not sent a second time.", _MAYBE_SENT
    ),
    "broke_off": Cause(
        "An error of our own ended the hand-over.",
        "An operator finds it in the service's log.",
        see="carriers",
        waits=False,
    ),
    "not_ready": Cause(
        "The message could not be prepared for sending.", "An operator has to mend what is named below.", waits=False
    ),
    "quarantined": Cause(
        "Delivery crashed repeatedly with this message, so it is parked.",
        "An operator looks at it, and tries it again or drops it.",
        see="queues",
    ),
    "dropped": Cause(
        "Delivery crashed repeatedly with this message, and an operator gave it up.",
        "Send it again if it is still wanted.",
    ),
    "retried": Cause("An operator put it into the queue again.", "Nothing has to be done."),
    "unexplained": Cause("The other side gave no reason.", _THEIR_SIDE),
}

# What `policy` is about, where the words or codes say it.
_POLICIES = (
    ("utf8", re.compile(r"smtputf8", re.I)),
    (
        "authentication",
        re.compile(r"\bspf\b|\bdkim\b|\bdmarc\b|unauthenticat|5\.7\.2[0-7]\b|\bptr\b|reverse dns", re.I),
    ),
    ("encryption", re.compile(r"starttls|\btls\b|certificate|encrypt", re.I)),
    (
        "blocklist",
        re.compile(r"(?:block|black|deny)[- ]?list|spamhaus|spamcop|barracuda|sorbs|\brbl|dnsbl|\blisted\b", re.I),
    ),
    ("spam", re.compile(r"spam|unsolicited|\bjunk|phish|virus|malware|\bbulk\b|content", re.I)),
)

# What an enhanced code (RFC 3463) says by itself: the longest beginning that is here. The class is left out.
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
    "2.3": "too_large",
    "2": "system",
    "3.4": "too_large",
    "3": "system",
    "4.4": "unreachable",
    "4.6": "loop",
    "4.7": "expired",
    "4": "unreachable",
    "5.2": "rate",
    "5.3": "rate",
    "5": "refused",
    "6.7": "utf8",
    "6": "refused",
    "7.10": "encryption",
    "7.20": "authentication",
    "7.21": "authentication",
    "7.22": "authentication",
    "7.23": "authentication",
    "7.24": "authentication",
    "7.25": "authentication",
    "7.26": "authentication",
    "7.27": "authentication",
    "7.28": "rate",
    "7": "policy",
}

# Our own words about mail, where nothing was replied.
OWN_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("no_answer", re.compile(r"after the whole mail: it may have arrived")),
    (
        "unreachable",
        re.compile(r"cannot connect to|was silent for|was not asked|\(at \w+\)$|DNS does not say|has no address"),
    ),
    ("encryption", re.compile(r"MTA-STS|STARTTLS|certificate|\bTLS\b")),
    ("account", re.compile(r"offers neither AUTH")),
    ("unreachable", re.compile(r"none of source_ips|address that no mail may go to")),
)

# What each state is called, and the colour of its box; `deferred` and `expired` are what became of a try.
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
# What a state means that needs no cause.
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
    ("email", "complained"): "The recipient reported it as spam to their mail provider.",
}
PAUSED = "Delivery is paused on this instance: it goes out when an operator resumes it."
COMPLAINED = "Stop writing to this address. Send only what people have asked for: complaints harm all of your mail."
SIMULATED = "Simulated: nothing left this instance, and it reached nobody."
NOTHING = "Nothing has to be done: it is tried again by itself."


def cause_of(channel: Channel, detail: Mapping[str, Any]) -> str:
    """The name of the cause that a detail gives."""
    reason, text = str(detail.get("reason") or ""), str(detail.get("text") or "")
    if reason in CAUSES:
        return reason
    if channel == "email":
        return _mail_cause(text, str(detail.get("enhanced") or ""), bool(detail.get("code")))
    table = CODES.get(str(detail.get("carrier") or ""), {})
    known = table.get(str(detail.get("code") or "")) or STATES.get(str(detail.get("state") or "")[:5])
    return known or _by_status(str(detail.get("code") or ""))


def _mail_cause(text: str, enhanced: str, replied: bool) -> str:
    if not replied and not enhanced:
        for name, words in OWN_WORDS:
            if words.search(text):
                return name
    reason = read_reason(text)
    if reason and not reason.weak:
        return _policy(text) if reason.name == "policy" else reason.name
    by_code = _by_enhanced(enhanced)
    if by_code and (by_code != "policy" or reason is None):
        return _policy(f"{text} {enhanced}") if by_code == "policy" else by_code
    return reason.name if reason else "unexplained"


def _policy(text: str) -> str:
    return next((name for name, words in _POLICIES if words.search(text)), "policy")


def _by_enhanced(code: str) -> str:
    parts = code.split(".")[1:]
    return ENHANCED.get(".".join(parts)) or ENHANCED.get(parts[0], "") if parts else ""


def _by_status(code: str) -> str:
    """An HTTP status, or a carrier's own word that no table has."""
    if code.isascii() and code.isdigit() and len(code) == 3:
        if code in ("401", "403", "404"):
            return "account"
        return "rate" if code == "429" else "system" if code[0] == "5" else "rejected"
    return "unexplained"


def explain(
    channel: Channel,
    status: str,
    detail: Mapping[str, Any],
    *,
    deferred: bool = False,  # the last try was put off
    paused: bool = False,  # delivery as a whole
) -> Explanation:
    """What became of one recipient, by its state and by what was said last."""
    if status in ("queued", "sending") and not deferred:
        return Explanation(*TITLES[status], PAUSED if paused else MEANINGS[None, status])
    if status in ("queued", "sending"):
        name = cause_of(channel, detail)
        cause = CAUSES[name]
        cure = PAUSED if paused else NOTHING if cause.waits else cause.cure
        see: Place = "" if cause.waits else cause.see
        return Explanation(*TITLES["deferred"], cause.what, cure, name, cause.again, see)
    if status == "complained":
        return Explanation(*TITLES[status], MEANINGS["email", status], COMPLAINED, again=False)
    if status in ("bounced", "failed"):
        name = cause_of(channel, detail)
        cause = CAUSES[name]
        if not detail.get(EXPIRED):
            return Explanation(*TITLES[status], cause.what, cause.cure, name, cause.again, cause.see)
        text = f"{cause.what} It was tried for {tried_for(channel)}, and then given up."
        return Explanation(*TITLES["expired"], text, cause.cure, name, True, cause.see)
    return Explanation(*TITLES[status], MEANINGS[channel, status])


def tried_for(channel: Channel) -> str:
    """How long a message is tried, for people."""
    window = SCHEDULES[channel].window
    return f"{window // DAY_MS} days" if window >= DAY_MS else f"{window // MINUTE_MS} minutes"
