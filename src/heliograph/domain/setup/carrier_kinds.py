"""Carrier kinds, each defined once: options, defaults and labels.

These structs are used by the setup file, the dashboard form and its errors, the encryption of secrets, and the
carriers themselves; `tests/test_docs.py` compares the table in docs/configuration.md with these structs.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import field

from heliograph.domain.setup.records import CHANNELS
from heliograph.domain.setup.secrets import Seal
from heliograph.domain.setup.values import (
    Count,
    Domain,
    Host,
    Ip,
    JsonPath,
    Line,
    Network,
    Port,
    Positive,
    Statuses,
    Target,
    Uncertain,
    Url,
    between,
    like,
)

CarrierKind = tuple[str, str]  # channel, kind
Control = Literal["text", "secret", "number", "checkbox", "choice", "list", "lines", "text area"]
Long = Literal["udh", "payload"]  # how a text that exceeds one part is sent
IdForm = Literal["same", "hex", "decimal"]  # format of message ids in receipts, if different from submit_sm_resp
MailProviderName = Literal["ses", "postmark", "mailgun", "sendgrid", "resend", "brevo"]

PLACEHOLDERS = ("to", "to_digits", "from", "text", "message_id", "callback_url", "country")
PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")


class Label(msgspec.Struct, frozen=True):
    """Label and hint of an option; `{}` in the hint is replaced by the default."""

    text: str
    hint: str = ""
    more: bool = False  # advanced option, rarely changed
    secret: bool = False  # encrypted in the database and never shown again
    control: Control | None = None  # None: derived from the type


def more(text: str, hint: str = "", *, secret: bool = False) -> Label:
    """Return the label of an advanced option."""
    return Label(text, hint, more=True, secret=secret)


_HOST = Label("Host", "Its name or address. It may be in a private network.")
_SENDER = "The sender for teams without an approved sender ID. Empty: the platform's brand."
_UNCERTAIN = "When it is unknown whether a message was sent: send it once more, or stop and fail it."


class CarrierOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a carrier kind; fields without a default are required."""

    title: ClassVar[str]
    about: ClassVar[str]  # one sentence on who should use this kind


class RelayOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "SMTP relay"
    about = "A mail server of yours or of a provider's takes all mail. The quickest way to start."

    host: Annotated[Host, _HOST]
    port: Annotated[Port, Label("Port", "Empty: 587 with STARTTLS, 465 with TLS, 25 without.")] = 0
    tls: Annotated[
        Literal["none", "starttls", "tls"],
        Label("Encryption", "STARTTLS unless the relay needs another. Certificates are verified."),
    ] = "starttls"
    username: Annotated[str, Label("Username", "Empty: the relay asks for none.")] = ""
    password: Annotated[str, Label("Password", secret=True)] = ""
    connections: Annotated[Positive, more("Connections", "At once, for each process. Empty: {}.")] = 4
    final: Annotated[bool, more("The relay is the recipients' own mail server: accepted means delivered")] = False
    provider: Annotated[
        MailProviderName | None, more("Provider", "Whose relay it is, so that its callbacks are understood.")
    ] = None
    callback_secret: Annotated[
        str,
        more(
            "Secret of its callbacks",
            "Mailgun: signing key. Postmark: user:password. Resend: whsec_…. Brevo: Bearer token.",
            secret=True,
        ),
    ] = ""
    callback_key: Annotated[str, more("Public key of its callbacks", "SendGrid's verification key.")] = ""
    callback_topic: Annotated[Line, more("SNS topic", "Amazon SES: the topic's ARN.")] = ""
    callback_cert: Annotated[
        str, more("Pinned certificate", "Amazon SES: PEM, or a file's path. Empty: fetched from SNS.")
    ] = ""


class MxOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "Straight to mail exchangers"
    about = "This server hands mail to each recipient's own server. It needs port 25 open and a name in reverse DNS."

    helo: Annotated[
        Domain,
        Label("Greeting name", "The name that reverse DNS gives this server. Empty: the public URL's host."),
    ] = ""  # without a name: our address as a literal
    tls: Annotated[
        Literal["opportunistic", "required"],
        Label("Encryption", "Opportunistic by default. Required: mail waits where there is no TLS."),
    ] = "opportunistic"
    source_ips: Annotated[list[Ip], more("Source addresses", "IP addresses to send from.")] = []
    per_host: Annotated[Positive, more("Connections to one host", "Empty: {}.")] = 8
    port: Annotated[Port, more("Port", "Empty: {}.")] = 25
    resolver: Annotated[
        str, like(r".+:[0-9]{1,5}", "host:port"), more("DNS server", "host:port. Empty: the system's.")
    ] = ""
    allow_private: Annotated[
        list[Network], more("Private ranges", "Ranges that mail exchangers may be in, for tests.")
    ] = []


class SmppOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "SMPP"
    about = "An SMS center that speaks SMPP 3.4: most aggregators and operators."

    host: Annotated[Host, _HOST]
    port: Annotated[Port, Label("Port", "Empty: {}.")] = 2775
    tls: Annotated[bool, Label("TLS with a trusted certificate")] = False
    system_id: Annotated[str, Label("System ID")]
    password: Annotated[str, Label("Password", secret=True)]
    source_addr: Annotated[Line, Label("Sender", _SENDER)] = ""
    system_type: Annotated[str, more("System type", "As the SMS center requires.")] = ""
    window: Annotated[Positive, more("Window", "Unanswered messages in flight. Empty: {}.")] = 10
    throughput: Annotated[Count, more("Messages a second", "For each process. Empty: no limit.")] = 0
    long: Annotated[Long, more("Long texts", "In parts (udh), or whole (payload).")] = "udh"
    receipt_id: Annotated[IdForm, more("IDs in receipts", "As issued, or written in hex or decimal.")] = "same"
    opted_out: Annotated[list[Line], more("Codes for opted out", "Of command_status (0x…), or err of receipts.")] = []
    uncertain: Annotated[Uncertain, more("When uncertain", _UNCERTAIN)] = "resend"


class TwilioOptions(CarrierOptions, frozen=True, kw_only=True, rename={"sender": "from"}):
    title = "Twilio"
    about = "Twilio's Messages API, or a service with the same API."

    account_sid: Annotated[Line, Label("Account SID", "AC and 32 characters.")]
    auth_token: Annotated[str, Label("Auth token", "The primary one: it also signs Twilio's callbacks.", secret=True)]
    sender: Annotated[Line, Label("Sender", f"A number, a sender ID or a messaging service (MG…). {_SENDER}")] = ""
    signing_key: Annotated[str, more("Signing key", "Only where a shared key signs the callbacks.", secret=True)] = ""
    base_url: Annotated[Target, more("API address", "Empty: {}")] = "https://api.twilio.com"
    uncertain: Annotated[
        Literal["lookup", "resend", "stop"],
        more("When uncertain", f"{_UNCERTAIN} Lookup, the default, asks Twilio first."),
    ] = "lookup"


class AcceptedRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[Statuses, Label("Accepted: statuses", "Such as 200, 202.")] = field(
        default_factory=lambda: [200, 201, 202]
    )
    # A response without the id is not accepted.
    id: Annotated[JsonPath, Label("Accepted: where the id is", "A path such as $.message_id.")] = ""


class RefusedRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[Statuses, Label("Refused: statuses", "Such as 400, 422. Everything else is tried again.")] = (
        field(default_factory=lambda: [400, 422])
    )
    text: Annotated[JsonPath, Label("Refused: where the reason is", "A path such as $.error.")] = ""


class CallbackMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    each: Annotated[JsonPath, more("Reports: where their list is", "If one carries several: $.results")] = ""
    id: Annotated[JsonPath, more("Reports: where the id is", "A path such as $.id.")] = "$.id"
    status: Annotated[JsonPath, more("Reports: where the state is", "A path such as $.status.")] = "$.status"
    delivered: Annotated[list[str], more("Reports: words for delivered", "Such as DELIVRD.")] = []
    failed: Annotated[list[str], more("Reports: words for failed", "Such as UNDELIV, EXPIRED.")] = []


class IncomingMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"sender": "from"}):
    sender: Annotated[JsonPath, more("Incoming texts: where the author is", "A path such as $.from.")]
    to: Annotated[JsonPath, more("Incoming texts: where our number is", "A path such as $.to.")]
    text: Annotated[JsonPath, more("Incoming texts: where the words are", "A path such as $.text.")]
    id: Annotated[JsonPath, more("Incoming texts: where the id is", "A path such as $.id.")] = ""


class HttpOptions(CarrierOptions, frozen=True, kw_only=True, rename={"sender": "from"}):
    title = "Any HTTP API"
    about = "A provider that takes a message by one HTTP request: describe the request and its answers."

    # The first four options may contain a provider's key.
    url: Annotated[
        Url,
        Label("Address", "With placeholders such as {{to}}, {{from}}, {{text}}.", secret=True, control="text"),
    ]
    method: Annotated[Literal["GET", "POST", "PUT"], Label("Method", "Empty: {}.")] = "POST"
    headers: Annotated[
        dict[Annotated[str, like("[A-Za-z0-9-]+", "a header's name")], str],
        Label("Headers", "One a line: Authorization: Bearer …", secret=True, control="lines"),
    ] = {}
    body: Annotated[
        str,
        Label(
            "Body",
            'Such as {"to": "{{to}}", "text": "{{text}}", "dlr": "{{callback_url}}"}',
            secret=True,
            control="text area",
        ),
    ] = ""
    sender: Annotated[Line, Label("Sender", _SENDER)] = ""
    accepted: AcceptedRule = AcceptedRule()
    refused: RefusedRule = RefusedRule()
    callback: CallbackMap | None = None
    incoming: IncomingMap | None = None
    callback_secret: Annotated[str, more("Callback secret", "Without it no reports are accepted.", secret=True)] = ""
    callback_check: Annotated[
        Literal["signature", "token"], more("Callback check", "HMAC-SHA256 in X-Signature, or a token in the URL.")
    ] = "signature"
    callback_timestamp: Annotated[JsonPath, more("Where a callback has its time", "A path such as $.timestamp.")] = (
        ""  # checked if set
    )
    uncertain: Annotated[Uncertain, more("When uncertain", _UNCERTAIN)] = "resend"

    def __post_init__(self) -> None:
        for template in (self.url, self.body, *self.headers.values()):
            for name in PLACEHOLDER.findall(template):
                if name not in PLACEHOLDERS:
                    raise ValueError(f"{{{{{name}}}}} is not a placeholder. Known: {', '.join(PLACEHOLDERS)}")


class CloudApiOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "WhatsApp Cloud API"
    about = "Meta's own API, with an app and a phone number of your business account."

    phone_number_id: Annotated[Line, Label("Phone number ID", "In the app's WhatsApp settings: not the number itself.")]
    access_token: Annotated[
        str, Label("Access token", "Of a system user with whatsapp_business_messaging.", secret=True)
    ]
    app_secret: Annotated[
        str, Label("App secret", "From App settings, Basic. Without it no reports are accepted.", secret=True)
    ] = ""
    verify_token: Annotated[
        str, Label("Verify token", "Any text of your own: Meta sends it back when you add the callback.", secret=True)
    ] = ""
    base_url: Annotated[Target, more("API address", "Empty: {}")] = "https://graph.facebook.com/v23.0"
    uncertain: Annotated[Uncertain, more("When uncertain", _UNCERTAIN)] = "resend"


class SimulatorOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "Simulator"
    about = "Sends nothing: what it takes lands in the test inbox."

    step_ms: Annotated[
        int, between(0, 3_600_000), Label("Milliseconds between two states", "Empty: as the service is set.")
    ] = 0


SIMULATORS: frozenset[CarrierKind] = frozenset((channel, "simulator") for channel in CHANNELS)
CARRIER_KINDS: dict[CarrierKind, type[CarrierOptions]] = {  # in the order shown to users
    ("email", "smtp"): RelayOptions,
    ("email", "mx"): MxOptions,
    ("sms", "smpp"): SmppOptions,
    ("sms", "twilio"): TwilioOptions,
    ("sms", "http"): HttpOptions,
    ("whatsapp", "cloud_api"): CloudApiOptions,
    **dict.fromkeys(sorted(SIMULATORS), SimulatorOptions),
}


def label_of(type_: Any) -> Label | None:
    return next((one for one in getattr(type_, "__metadata__", ()) if isinstance(one, Label)), None)


def option_names(kind: CarrierKind) -> list[str]:
    return [one.encode_name for one in msgspec.structs.fields(CARRIER_KINDS[kind])]


SECRETS = frozenset(
    one.encode_name
    for options in CARRIER_KINDS.values()
    for one in msgspec.structs.fields(options)
    if (label := label_of(one.type)) and label.secret
)


def sealed(options: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    """Return the options with each secret encrypted as `{"sealed": "…"}`."""
    return {
        name: {"sealed": seal(msgspec.json.encode(value), name)} if name in SECRETS else value
        for name, value in options.items()
    }
