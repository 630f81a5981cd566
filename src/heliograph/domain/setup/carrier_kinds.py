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
from heliograph.domain.setup.secrets import Encrypt
from heliograph.domain.setup.source_options import Pools, Providers, Sources
from heliograph.domain.setup.values import (
    Count,
    Domain,
    Host,
    JsonPath,
    Line,
    Network,
    Port,
    Positive,
    Statuses,
    Target,
    Uncertain,
    Url,
    in_range,
    matching,
)

CarrierKind = tuple[str, str]  # channel, kind
Control = Literal["text", "secret", "number", "checkbox", "choice", "list", "lines", "text area", "toml"]
LongTextMode = Literal["udh", "payload"]  # how a text that exceeds one part is sent
IdForm = Literal["same", "hex", "decimal"]  # format of message ids in receipts, if different from submit_sm_resp
MailProviderName = Literal["ses", "postmark", "mailgun", "sendgrid", "resend", "brevo"]

PLACEHOLDERS = ("to", "to_digits", "from", "text", "message_id", "callback_url", "country")
PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")


class Label(msgspec.Struct, frozen=True):
    """Label and hint of an option in the form. In the hint, `{}` is replaced by the default."""

    text: str
    hint: str = ""
    advanced: bool = False  # rarely changed, shown among the advanced options
    secret: bool = False  # encrypted in the database and never shown again
    control: Control | None = None  # None: derived from the type


def advanced(text: str, hint: str = "", *, secret: bool = False) -> Label:
    """Return the label of an option that the form shows as advanced."""
    return Label(text, hint, advanced=True, secret=secret)


_HOST = Label("Host", "Host name or IP address. Private networks are allowed.")
_SENDER = "Sender for teams without an approved sender ID. Default: the platform's brand."
_UNCERTAIN = "When it is unknown whether a message was sent: send it again, or mark it as failed."


class CarrierOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a carrier kind; fields without a default are required."""

    title: ClassVar[str]
    about: ClassVar[str]  # one sentence on who should use this kind


class RelayOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "SMTP relay"
    about = "Sends through your own or a provider's mail server. The quickest way to start."

    host: Annotated[Host, _HOST]
    port: Annotated[Port, Label("Port", "Default: 587 with STARTTLS, 465 with TLS, 25 without encryption.")] = 0
    tls: Annotated[
        Literal["none", "starttls", "tls"],
        Label("Encryption", "Usually STARTTLS. Certificates are verified."),
    ] = "starttls"
    username: Annotated[str, Label("Username", "Leave empty if the relay needs no login.")] = ""
    password: Annotated[str, Label("Password", secret=True)] = ""
    connections: Annotated[Positive, advanced("Connections", "Maximum per process. Default: {}.")] = 4
    final: Annotated[bool, advanced("This is the recipients' own mail server (accepted means delivered)")] = False
    provider: Annotated[
        MailProviderName | None,
        advanced("Provider", "The provider that runs the relay, to process its callbacks."),
    ] = None
    callback_secret: Annotated[
        str,
        advanced(
            "Callback secret",
            "Mailgun: signing key. Postmark: user:password. Resend: whsec_…. Brevo: Bearer token.",
            secret=True,
        ),
    ] = ""
    callback_key: Annotated[str, advanced("Callback public key", "SendGrid's verification key.")] = ""
    callback_topic: Annotated[Line, advanced("SNS topic", "Amazon SES: the topic's ARN.")] = ""
    callback_cert: Annotated[
        str, advanced("Pinned certificate", "Amazon SES: PEM or a file path. Default: fetched from SNS.")
    ] = ""


class MxOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "Direct delivery (MX)"
    about = "Delivers to each recipient's mail server. Needs outbound port 25 and reverse DNS."

    helo: Annotated[
        Domain,
        Label("Greeting name", "This server's reverse DNS name. Default: the host of the public URL."),
    ] = ""  # if empty, an address literal with our IP address
    tls: Annotated[
        Literal["opportunistic", "required"],
        Label("Encryption", "Default: opportunistic. With required, email is queued while TLS is unavailable."),
    ] = "opportunistic"
    source_ips: Annotated[Sources, advanced("Source addresses", "IP addresses to send from, or a TOML list.")] = []
    providers: Annotated[
        Providers,
        Label(
            "Limits per provider",
            "TOML, one provider per line, for example google = { per_minute = 600, connections = 10 }",
            advanced=True,
            control="toml",
        ),
    ] = {}
    pools: Annotated[
        Pools,
        Label(
            "Pools of source addresses",
            'TOML, one pool per line, for example bulk = { source_ips = ["192.0.2.1"], overflow = "relay" }',
            advanced=True,
            control="toml",
        ),
    ] = {}
    per_host: Annotated[Positive, advanced("Connections to one host", "Default: {}.")] = 8
    port: Annotated[Port, advanced("Port", "Default: {}.")] = 25
    resolver: Annotated[
        str,
        matching(r".+:[0-9]{1,5}", "host:port"),
        advanced("DNS server", "host:port. Default: the system resolver."),
    ] = ""
    allow_private: Annotated[
        list[Network], advanced("Private ranges", "Private ranges that are allowed for mail servers, for tests.")
    ] = []


class SmppOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "SMPP"
    about = "Connects to an SMS center over SMPP 3.4, as offered by most aggregators and operators."

    host: Annotated[Host, _HOST]
    port: Annotated[Port, Label("Port", "Default: {}.")] = 2775
    tls: Annotated[bool, Label("TLS with a trusted certificate")] = False
    system_id: Annotated[str, Label("System ID")]
    password: Annotated[str, Label("Password", secret=True)]
    source_addr: Annotated[Line, Label("Sender", _SENDER)] = ""
    system_type: Annotated[str, advanced("System type", "As required by the SMS center.")] = ""
    window: Annotated[Positive, advanced("Window", "Maximum unanswered messages. Default: {}.")] = 10
    throughput: Annotated[Count, advanced("Messages per second", "Per process. Default: no limit.")] = 0
    long: Annotated[LongTextMode, advanced("Long texts", "Split into parts (UDH) or as one message (payload).")] = "udh"
    receipt_id: Annotated[IdForm, advanced("IDs in receipts", "As received, or converted to hex or decimal.")] = "same"
    opted_out: Annotated[list[Line], advanced("Opt-out codes", "command_status (0x…), or err in receipts.")] = []
    uncertain: Annotated[Uncertain, advanced("When uncertain", _UNCERTAIN)] = "resend"


class TwilioOptions(CarrierOptions, frozen=True, kw_only=True, rename={"sender": "from"}):
    title = "Twilio"
    about = "Twilio's Messages API, or a service with the same API."

    account_sid: Annotated[Line, Label("Account SID", "AC followed by 32 characters.")]
    auth_token: Annotated[
        str, Label("Auth token", "The primary token, which also signs Twilio's callbacks.", secret=True)
    ]
    sender: Annotated[Line, Label("Sender", f"A number, sender ID or messaging service (MG…). {_SENDER}")] = ""
    signing_key: Annotated[str, advanced("Signing key", "Only if a shared key signs the callbacks.", secret=True)] = ""
    base_url: Annotated[Target, advanced("API URL", "Default: {}")] = "https://api.twilio.com"
    uncertain: Annotated[
        Literal["lookup", "resend", "stop"],
        advanced("When uncertain", f"{_UNCERTAIN} The default, lookup, checks with Twilio first."),
    ] = "lookup"


class AcceptedRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[Statuses, Label("Accepted: HTTP statuses", "For example 200, 202.")] = field(
        default_factory=lambda: [200, 201, 202]
    )
    # A response without the id is not accepted.
    id: Annotated[JsonPath, Label("Accepted: path of the ID", "For example $.message_id.")] = ""


class RefusedRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[Statuses, Label("Refused: HTTP statuses", "For example 400, 422. All others are retried.")] = (
        field(default_factory=lambda: [400, 422])
    )
    text: Annotated[JsonPath, Label("Refused: path of the reason", "For example $.error.")] = ""


class CallbackMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    each: Annotated[
        JsonPath,
        advanced("Reports: path of the list", "If a callback contains several reports, for example $.results."),
    ] = ""
    id: Annotated[JsonPath, advanced("Reports: path of the ID", "For example $.id.")] = "$.id"
    status: Annotated[JsonPath, advanced("Reports: path of the status", "For example $.status.")] = "$.status"
    delivered: Annotated[list[str], advanced("Reports: values for delivered", "For example DELIVRD.")] = []
    failed: Annotated[list[str], advanced("Reports: values for failed", "For example UNDELIV, EXPIRED.")] = []


class IncomingMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"sender": "from"}):
    sender: Annotated[JsonPath, advanced("Incoming texts: path of the sender", "For example $.from.")]
    to: Annotated[JsonPath, advanced("Incoming texts: path of our number", "For example $.to.")]
    text: Annotated[JsonPath, advanced("Incoming texts: path of the text", "For example $.text.")]
    id: Annotated[JsonPath, advanced("Incoming texts: path of the ID", "For example $.id.")] = ""


class HttpOptions(CarrierOptions, frozen=True, kw_only=True, rename={"sender": "from"}):
    title = "Any HTTP API"
    about = "Sends each message with one HTTP request. You describe the request and its responses."

    # The first four options may contain a provider's key.
    url: Annotated[
        Url,
        Label(
            "Address", "Can contain placeholders such as {{to}}, {{from}} and {{text}}.", secret=True, control="text"
        ),
    ]
    method: Annotated[Literal["GET", "POST", "PUT"], Label("Method", "Default: {}.")] = "POST"
    headers: Annotated[
        dict[Annotated[str, matching("[A-Za-z0-9-]+", "a header's name")], str],
        Label("Headers", "One per line, for example Authorization: Bearer …", secret=True, control="lines"),
    ] = {}
    body: Annotated[
        str,
        Label(
            "Body",
            'For example {"to": "{{to}}", "text": "{{text}}", "dlr": "{{callback_url}}"}',
            secret=True,
            control="text area",
        ),
    ] = ""
    sender: Annotated[Line, Label("Sender", _SENDER)] = ""
    accepted: AcceptedRule = AcceptedRule()
    refused: RefusedRule = RefusedRule()
    callback: CallbackMap | None = None
    incoming: IncomingMap | None = None
    callback_secret: Annotated[str, advanced("Callback secret", "Required to accept reports.", secret=True)] = ""
    callback_check: Annotated[
        Literal["signature", "token"],
        advanced("Callback verification", "HMAC-SHA256 in X-Signature, or a token in the URL."),
    ] = "signature"
    callback_timestamp: Annotated[JsonPath, advanced("Path of the callback time", "For example $.timestamp.")] = (
        ""  # if set, callbacks whose time is not recent are rejected
    )
    uncertain: Annotated[Uncertain, advanced("When uncertain", _UNCERTAIN)] = "resend"

    def __post_init__(self) -> None:
        for template in (self.url, self.body, *self.headers.values()):
            for name in PLACEHOLDER.findall(template):
                if name not in PLACEHOLDERS:
                    raise ValueError(f"{{{{{name}}}}} is not a placeholder. Known: {', '.join(PLACEHOLDERS)}")


class CloudApiOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "WhatsApp Cloud API"
    about = "Meta's API. Needs an app and a phone number in your business account."

    phone_number_id: Annotated[
        Line, Label("Phone number ID", "From the app's WhatsApp settings; not the phone number itself.")
    ]
    access_token: Annotated[
        str, Label("Access token", "From a system user with the whatsapp_business_messaging permission.", secret=True)
    ]
    app_secret: Annotated[
        str, Label("App secret", "From App settings > Basic. Required to accept reports.", secret=True)
    ] = ""
    verify_token: Annotated[
        str, Label("Verify token", "Any text you choose. Meta sends it back when you add the callback.", secret=True)
    ] = ""
    base_url: Annotated[Target, advanced("API URL", "Default: {}")] = "https://graph.facebook.com/v23.0"
    uncertain: Annotated[Uncertain, advanced("When uncertain", _UNCERTAIN)] = "resend"


class SimulatorOptions(CarrierOptions, frozen=True, kw_only=True):
    title = "Simulator"
    about = "Sends nothing. Messages go to the test inbox."

    step_ms: Annotated[
        int, in_range(0, 3_600_000), Label("Milliseconds between statuses", "Default: the server setting.")
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
    return next(
        (annotation for annotation in getattr(type_, "__metadata__", ()) if isinstance(annotation, Label)), None
    )


def option_names(kind: CarrierKind) -> list[str]:
    return [field_info.encode_name for field_info in msgspec.structs.fields(CARRIER_KINDS[kind])]


SECRET_OPTIONS = frozenset(
    field_info.encode_name
    for options in CARRIER_KINDS.values()
    for field_info in msgspec.structs.fields(options)
    if (label := label_of(field_info.type)) and label.secret
)


def encrypt_secrets(options: Mapping[str, Any], encrypt: Encrypt) -> dict[str, Any]:
    """Return the options with each secret encrypted as `{"sealed": "…"}`."""
    return {
        name: {"sealed": encrypt(msgspec.json.encode(value), name)} if name in SECRET_OPTIONS else value
        for name, value in options.items()
    }
