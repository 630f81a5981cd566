"""Carriers as people fill them in: one description of each kind's fields, for the form, its errors and the docs.

What a field may hold is said once, by the tables that `apply` reads (`file.py`): the form is made from their types.
"""

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from heliograph.rules.setup.file import CARRIER_KINDS, CarrierKind, carrier_fields
from heliograph.rules.setup.secrets import FIELDS
from heliograph.rules.shape import Misfit, read

Control = Literal["text", "secret", "number", "checkbox", "choice", "list", "lines", "text area"]
ADDRESS = ("host", "port", "tls", "base_url")  # where secrets go, and whether others can read them on their way
SENDER = "The sender for teams without an approved sender ID. Empty: the platform's brand."
UNCERTAIN = "When it is unknown whether a message was sent: send it once more, or stop and fail it."


class FieldWords(msgspec.Struct, frozen=True):
    """What a form says about a field. `more`: of those that most people leave alone."""

    label: str
    hint: str = ""
    more: bool = False


class KindWords(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    about: str  # one sentence: whom it is for
    fields: dict[str, FieldWords]


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A control of the form."""

    name: str  # as in the file; a part of a table is `accepted.status`
    said: FieldWords
    control: Control
    required: bool = False
    options: tuple[str, ...] = ()

    @property
    def secret(self) -> bool:
        return self.name in FIELDS


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """A form as it was read. Empty fields are absent."""

    fields: dict[str, Any]  # as a file would give them
    errors: dict[str, str]  # by the name of the input
    forget: frozenset[str]  # secrets to be removed


_HOST = FieldWords("Host", "Its name or address. It may be in a private network.")
_COUNTRIES = FieldWords("Countries", "ISO codes such as GB, DE, or * for all.", more=True)
_CALLBACK = "Reports"
_CONTROLS: dict[str, Control] = {"url": "text", "headers": "lines", "body": "text area"}  # secret, and yet to be read

KINDS: dict[CarrierKind, KindWords] = {
    ("email", "smtp"): KindWords(
        title="SMTP relay",
        about="A mail server of yours or of a provider's takes all mail. The quickest way to start.",
        fields={
            "host": _HOST,
            "port": FieldWords("Port", "Empty: 587 with STARTTLS, 465 with TLS, 25 without."),
            "tls": FieldWords("Encryption", "STARTTLS unless the relay needs another. Certificates are verified."),
            "username": FieldWords("Username", "Empty: the relay asks for none."),
            "password": FieldWords("Password"),
            "connections": FieldWords("Connections", "At once, for each process. Empty: 4.", more=True),
            "final": FieldWords("The relay is the recipients' own mail server: accepted means delivered", more=True),
            "provider": FieldWords("Provider", "Whose relay it is, so that its callbacks are understood.", more=True),
            "callback_secret": FieldWords(
                "Secret of its callbacks",
                "Mailgun: signing key. Postmark: user:password. Resend: whsec_…. Brevo: Bearer token.",
                more=True,
            ),
            "callback_key": FieldWords("Public key of its callbacks", "SendGrid's verification key.", more=True),
            "callback_topic": FieldWords("SNS topic", "Amazon SES: the topic's ARN.", more=True),
            "callback_cert": FieldWords(
                "Pinned certificate", "Amazon SES: PEM, or a file's path. Empty: fetched from SNS.", more=True
            ),
        },
    ),
    ("email", "mx"): KindWords(
        title="Straight to mail exchangers",
        about="This server hands mail to each recipient's own server. It needs port 25 open and a name in reverse DNS.",
        fields={
            "helo": FieldWords(
                "Greeting name", "The name that reverse DNS gives this server. Empty: the public URL's host."
            ),
            "tls": FieldWords("Encryption", "Opportunistic by default. Required: mail waits where there is no TLS."),
            "source_ips": FieldWords("Source addresses", "IP addresses to send from.", more=True),
            "per_host": FieldWords("Connections to one host", "Empty: 8.", more=True),
            "port": FieldWords("Port", "Empty: 25.", more=True),
            "resolver": FieldWords("DNS server", "host:port. Empty: the system's.", more=True),
            "allow_private": FieldWords(
                "Private ranges", "Ranges that mail exchangers may be in, for tests.", more=True
            ),
        },
    ),
    ("sms", "smpp"): KindWords(
        title="SMPP",
        about="An SMS center that speaks SMPP 3.4: most aggregators and operators.",
        fields={
            "host": _HOST,
            "port": FieldWords("Port", "Empty: 2775."),
            "tls": FieldWords("TLS with a trusted certificate"),
            "system_id": FieldWords("System ID"),
            "password": FieldWords("Password"),
            "source_addr": FieldWords("Sender", SENDER),
            "system_type": FieldWords("System type", "As the SMS center requires.", more=True),
            "window": FieldWords("Window", "Unanswered messages in flight. Empty: 10.", more=True),
            "throughput": FieldWords("Messages a second", "For each process. Empty: no limit.", more=True),
            "long": FieldWords("Long texts", "In parts (udh), or whole (payload).", more=True),
            "receipt_id": FieldWords("IDs in receipts", "As issued, or written in hex or decimal.", more=True),
            "uncertain": FieldWords("When uncertain", UNCERTAIN, more=True),
        },
    ),
    ("sms", "twilio"): KindWords(
        title="Twilio",
        about="Twilio's Messages API, or a service with the same API.",
        fields={
            "account_sid": FieldWords("Account SID", "AC and 32 characters."),
            "auth_token": FieldWords("Auth token", "The primary one: it also signs Twilio's callbacks."),
            "from": FieldWords("Sender", f"A number, a sender ID or a messaging service (MG…). {SENDER}"),
            "signing_key": FieldWords("Signing key", "Only where a shared key signs the callbacks.", more=True),
            "base_url": FieldWords("API address", "Empty: https://api.twilio.com", more=True),
            "uncertain": FieldWords(
                "When uncertain", f"{UNCERTAIN} Lookup, the default, asks Twilio first.", more=True
            ),
        },
    ),
    ("sms", "http"): KindWords(
        title="Any HTTP API",
        about="A provider that takes a message by one HTTP request: describe the request and its answers.",
        fields={
            "url": FieldWords("Address", "With placeholders such as {{to}}, {{from}}, {{text}}."),
            "method": FieldWords("Method", "Empty: POST."),
            "headers": FieldWords("Headers", "One a line: Authorization: Bearer …"),
            "body": FieldWords("Body", 'Such as {"to": "{{to}}", "text": "{{text}}", "dlr": "{{callback_url}}"}'),
            "from": FieldWords("Sender", SENDER),
            "accepted.status": FieldWords("Accepted: statuses", "Such as 200, 202."),
            "accepted.id": FieldWords("Accepted: where the id is", "A path such as $.message_id."),
            "refused.status": FieldWords("Refused: statuses", "Such as 400, 422. Everything else is tried again."),
            "refused.text": FieldWords("Refused: where the reason is", "A path such as $.error."),
            "callback.each": FieldWords(
                f"{_CALLBACK}: where their list is", "If one carries several: $.results", more=True
            ),
            "callback.id": FieldWords(f"{_CALLBACK}: where the id is", "A path such as $.id.", more=True),
            "callback.status": FieldWords(f"{_CALLBACK}: where the state is", "A path such as $.status.", more=True),
            "callback.delivered": FieldWords(f"{_CALLBACK}: words for delivered", "Such as DELIVRD.", more=True),
            "callback.failed": FieldWords(f"{_CALLBACK}: words for failed", "Such as UNDELIV, EXPIRED.", more=True),
            "incoming.from": FieldWords("Incoming texts: where the author is", "A path such as $.from.", more=True),
            "incoming.to": FieldWords("Incoming texts: where our number is", "A path such as $.to.", more=True),
            "incoming.text": FieldWords("Incoming texts: where the words are", "A path such as $.text.", more=True),
            "incoming.id": FieldWords("Incoming texts: where the id is", "A path such as $.id.", more=True),
            "callback_secret": FieldWords("Callback secret", "Without it no reports are accepted.", more=True),
            "callback_check": FieldWords(
                "Callback check", "HMAC-SHA256 in X-Signature, or a token in the URL.", more=True
            ),
            "callback_timestamp": FieldWords("Where a callback has its time", "A path such as $.timestamp.", more=True),
            "uncertain": FieldWords("When uncertain", UNCERTAIN, more=True),
        },
    ),
    ("whatsapp", "cloud_api"): KindWords(
        title="WhatsApp Cloud API",
        about="Meta's own API, with an app and a phone number of your business account.",
        fields={
            "phone_number_id": FieldWords("Phone number ID", "In the app's WhatsApp settings: not the number itself."),
            "access_token": FieldWords("Access token", "Of a system user with whatsapp_business_messaging."),
            "app_secret": FieldWords("App secret", "From App settings, Basic. Without it no reports are accepted."),
            "verify_token": FieldWords(
                "Verify token", "Any text of your own: Meta sends it back when you add the callback."
            ),
            "base_url": FieldWords("API address", "Empty: https://graph.facebook.com/v23.0", more=True),
            "uncertain": FieldWords("When uncertain", UNCERTAIN, more=True),
        },
    ),
    **{
        (channel, "simulator"): KindWords(
            title="Simulator",
            about="Sends nothing: what it takes lands in the test inbox.",
            fields={"step_ms": FieldWords("Milliseconds between two states", "Empty: as the service is set.")},
        )
        for channel in ("email", "sms", "whatsapp")
    },
}


def inputs(kind: CarrierKind) -> list[Input]:
    """Those of most people first, each as its type wants it."""
    types = {name: (type_, required) for name, type_, required in _flat(kind)}
    said = KINDS[kind].fields | ({} if kind[0] == "email" else {"countries": _COUNTRIES})
    made = [
        Input(
            name=name,
            said=words,
            control=_CONTROLS.get(name) or ("secret" if name in FIELDS else _control(types[name][0])),
            required=types[name][1],
            options=get_args(_bare(types[name][0])) if _control(types[name][0]) == "choice" else (),
        )
        for name, words in said.items()
    ]
    return sorted(made, key=lambda one: one.said.more)


def _flat(kind: CarrierKind) -> Iterator[tuple[str, Any, bool]]:
    """Name, type and whether it must be given; the fields of a table one by one."""
    for field in carrier_fields(kind):
        bare = _bare(field.type)
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            parts = msgspec.structs.fields(bare)
            yield from ((f"{field.encode_name}.{one.encode_name}", one.type, False) for one in parts)
        else:
            yield field.encode_name, field.type, field.required


def _bare(type_: Any) -> Any:
    bare = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    if get_origin(bare) in (Union, UnionType):
        return _bare(get_args(bare)[0])
    return bare


def _control(type_: Any) -> Control:
    bare = _bare(type_)
    origin = get_origin(bare) or bare
    controls: dict[Any, Control] = {
        Literal: "choice",
        bool: "checkbox",
        int: "number",
        list: "list",
        dict: "lines",
        str: "text",
    }
    return controls[origin]


# -- reading -----------------------------------------------------------------------------------------------------


def read_form(kind: CarrierKind, form: Mapping[str, str], before: Mapping[str, Any] = {}) -> Filled:
    """`before`: the options of a carrier that is there. Its secrets stay where the form leaves them empty, unless
    they would go to another address then.
    """
    types = {name: type_ for name, type_, _ in _flat(kind)}
    fields: dict[str, Any] = {}
    errors: dict[str, str] = {}
    forget = {one.name for one in inputs(kind) if one.secret and not one.required and form.get(f"forget-{one.name}")}
    empty: list[Input] = []
    for one in inputs(kind):
        given = form.get(one.name, "").strip() if one.name != "body" else form.get(one.name, "")
        if not given.strip():
            empty.append(one)
            continue
        try:
            value = read(_value(one, given, types[one.name]), types[one.name])
        except (Misfit, ValueError) as error:
            why = error.why if isinstance(error, Misfit) else str(error)
            errors[one.name] = _sentence(why.partition(", got ")[0] if one.secret else why)
        else:
            table, _, part = one.name.rpartition(".")
            (fields.setdefault(table, {}) if table else fields)[part] = value
    moved = "url" in fields or any((fields.get(name) or None) != (before.get(name) or None) for name in ADDRESS)
    for one in empty:
        if one.secret and one.name in before:
            if moved and one.name not in forget:
                errors[one.name] = "Type it again: it would go to another address than before."
        elif one.required:
            errors[one.name] = "Fill this in."
    return Filled(fields=fields, errors=errors, forget=frozenset(forget))


def _value(one: Input, given: str, type_: Any) -> Any:
    """The text of a control as a file would have it. ValueError in plain words."""
    if one.control == "checkbox":
        return True
    if one.control == "number":
        return _number(given)
    if one.control == "list":
        words = [word.strip() for word in re.split(r"[,\n]+|\s+(?=\S)", given) if word.strip()]
        return [_number(word) for word in words] if _bare(get_args(_bare(type_))[0]) is int else words
    if one.control == "lines":
        pairs = [line.partition(":") for line in given.splitlines() if line.strip()]
        if any(not colon or not value.strip() for _, colon, value in pairs):
            raise ValueError("write one a line, such as Authorization: Bearer …")
        return {name.strip(): value.strip() for name, _, value in pairs}
    return given


def _number(given: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,15}", given):
        raise ValueError("expected a whole number")
    return int(given)


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "…")) else f"{text}."


# -- showing -----------------------------------------------------------------------------------------------------


def shown(kind: CarrierKind, options: Mapping[str, Any]) -> dict[str, str]:
    """What a carrier has, as the controls show it. Secrets are never among it."""
    texts: dict[str, str] = {}
    for one in inputs(kind):
        table, _, part = one.name.rpartition(".")
        value = (options.get(table) or {}).get(part) if table else options.get(part)
        if value is None or one.secret or value is False:
            continue
        texts[one.name] = "yes" if value is True else _text(value)
    return texts


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def kind_of(text: str) -> CarrierKind | None:
    """From an address: `email-smtp`."""
    channel, _, kind = text.partition("-")
    return (channel, kind) if (channel, kind) in CARRIER_KINDS else None
