"""What an operator sets up: the platform, its carriers, and each team with all that belongs to it.

These records are what `apply` and the dashboard write, what the store keeps as documents, and what every
request decides with. Money is in integers of 10^-6 currency units, times in milliseconds since 1970.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.limits import MIB

Channel = Literal["email", "sms", "whatsapp"]
Mode = Literal["sandbox", "live"]
Scope = Literal["send", "manage"]  # of a team's key
KeyScope = Literal["send", "manage", "operate"]  # `operate` is the one scope of a platform key
Status = Literal["approved", "draft", "archived"]  # of a template or a layout
Segmenting = Literal["spec", "udh"]
Foreign = Literal["postal", "postmark", "resend", "twilio"]  # services in whose shape we answer
Priority = Literal["critical", "normal", "bulk"]
UpstreamState = Literal["approved", "pending", "rejected", "paused", "disabled"]  # of a WhatsApp template at Meta

CHANNELS: tuple[str, ...] = get_args(Channel)
KEEP_CONTENT_DAYS, KEEP_MESSAGES_DAYS = 7, 90
KEEP_CONTENT_DAYS_MAX, KEEP_MESSAGES_DAYS_MAX = 90, 3650
PRIORITY_MAX = 1_000_000  # and its negative


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One record of the setup, known by its kind and id."""


class Platform(Setting, frozen=True):
    sender: str = "hello@sandbox.heliograph.test"  # the sandbox sender, bare
    brand: str = "Heliograph"
    verify_price: dict[str, int] = {}  # per start, by currency
    verify_text: dict[str, str] = {}  # by language; they win over the built-in ones
    mail_host: str = ""  # where bounces come in, as MX records name it; empty: the host of the public URL
    templates_need_approval: bool = False  # what a team changes in a template waits for an operator
    prices: dict[Channel, dict[str, dict[str, int]]] = {}  # offered at approval: channel → currency → country or "*"
    sandbox_per_day: int = 50  # messages and codes of a sandbox team over real carriers
    log_requests_per_second: int = 10  # kept of each team in each process; refused ones are beside these
    compat_hosts: dict[str, Foreign] = {}  # host names at whose root another service's calls are taken
    attachment_types: tuple[str, ...] = ()  # that emails may have beside the spec's
    paused: bool = False  # delivery is paused: new messages answer `queued`
    paused_reason: str = ""  # when no operator paused it


class CarrierRecord(Setting, frozen=True):
    id: str
    channel: Channel
    kind: str
    countries: tuple[str, ...] = ("*",)
    enabled: bool = True
    priority: int = 10  # lower is asked first
    options: dict[str, Any] = {}  # the kind's own fields
    by_hand: bool = False  # made in the dashboard, and named by no setup file since


class VerifyLimits(Setting, frozen=True):
    """How a team verifies: where and how often it may, and the text."""

    countries: tuple[str, ...] = ("*",)
    per_phone_10m: int = 5
    per_phone_day: int = 20
    per_prefix_10m: int = 20
    min_interval_s: int = 30
    wrong_per_phone_day: int = 100
    conversion_guard: bool = True
    language: str = "en"
    magic: bool = False  # magic numbers verify in a live team too
    inbox: bool = False  # keys of a sandbox team read its codes at GET /v1/inbox
    webotp: str = ""  # the domain that browsers may fill the code in on
    channels: tuple[Channel, ...] = ("sms",)  # SMS is always open


class OptOutTexts(Setting, frozen=True):
    """A team's words for opting out and in again, and its answers; an empty answer is not sent."""

    words: tuple[str, ...] = (
        *("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"),
        *("ARRET", "STOPP", "BAJA", "PARAR", "STOPPEN", "ALTO", "SAIR", "ABMELDEN", "AFMELDEN", "IPTAL", "BERHENTI"),
        *("СТОП", "ОТПИСАТЬСЯ", "停止", "退订", "退訂", "配信停止", "수신거부", "توقف", "إيقاف", "הסר", "หยุด"),
    )
    start_words: tuple[str, ...] = ("START", "UNSTOP")
    stop_text: str = "You will get no more messages from us. Reply START to get them again."
    start_text: str = "You will get our messages again. Reply STOP to end them."
    help_text: str = "Reply STOP to get no more messages, START to get them again."


OCTETS_PER_DAY: dict[Mode, int] = {"live": 10 * 1024 * MIB, "sandbox": 200 * MIB}  # contract 1


class TeamRecord(Setting, frozen=True):
    """A team's own fields; what it owns are records of their own that name it."""

    ref: int  # the store's integer for the team
    id: str
    name: str
    mode: Mode = "sandbox"
    suspended: bool = False
    currency: str = "USD"
    email_quota: int = 10_000  # recipients a month
    features: tuple[str, ...] = ()
    rate_limit: int = 100  # requests a second for each key, burst twice that; 0 = off
    segmenting: Segmenting = "spec"
    verify: VerifyLimits = VerifyLimits()
    opt_out: OptOutTexts = OptOutTexts()
    marketing_per_day: int = 2  # WhatsApp MARKETING messages for each recipient
    credit_low: int = 5_000_000  # credit below which `credit.low` is told; 0 = never
    octets_per_day: int | None = None  # bytes of texts and attachments; 0 = off, None: as its mode has
    domains_max: int = 50  # that it may add itself
    keep_content_days: int = KEEP_CONTENT_DAYS  # after a message's end; its text and attachments
    keep_messages_days: int = KEEP_MESSAGES_DAYS  # its recipients and timeline; never shorter than its content
    wanted: str = ""  # another name, asked for by an owner; recipients are told the one above until it is approved
    wanted_refused: str = ""
    asked_by: str = ""  # usr_… who asked for it last; told when it is decided
    passthrough: str = ""  # tpl_… of one variable, whose value is the free text of Twilio's programs
    catch: bool = False  # sandbox: what other services' programs send is taken whatever it is, and goes nowhere
    test_clock: bool = False  # sandbox: it moves its own time, and only simulators serve it
    attachment_types: tuple[str, ...] = ()  # beside the spec's and the platform's

    @property
    def wrong_catch(self) -> str:
        """Say what is wrong with `catch`; empty: nothing is."""
        return "expected false: a live team catches nothing" if self.catch and self.mode == "live" else ""

    @property
    def wrong_test_clock(self) -> str:
        """Say what is wrong with `test_clock`; empty: nothing is."""
        return "expected false: a live team keeps real time" if self.test_clock and self.mode == "live" else ""

    @property
    def octets_most(self) -> int:
        """Return the octets that it may store in a day; 0 = off."""
        return OCTETS_PER_DAY[self.mode] if self.octets_per_day is None else self.octets_per_day

    @property
    def wrong_days(self) -> str:
        """Say what is wrong with `keep_messages_days`; empty: nothing is."""
        if self.keep_messages_days >= self.keep_content_days:
            return ""
        return f"expected at least {self.keep_content_days}: messages are kept as long as content (keep_content_days)"


class TeamClock(Setting, frozen=True):
    """How far a team's test clock is ahead of real time, and how far it is to be."""

    team: str
    ahead: int = 0  # ms
    target: int = 0  # ms; more than `ahead` while what becomes due on the way is being done


class Domain(Setting, frozen=True):
    id: str
    team: str
    name: str  # lower-case A-label form
    brand: str
    verified: bool = False
    approved: bool = False
    by_dns: bool = False  # DNS decides about `verified`; else it is an operator's word
    failures: int = 0  # checks in a row that found a record missing
    checked_at: int | None = None
    refused_reason: str = ""  # why an operator did not approve it
    wanted: str = ""  # another brand, asked for since it was approved; the one above is used until that is too
    wanted_refused: str = ""  # why it was not
    asked_by: str = ""  # usr_… who asked for it last; told when it is decided

    @property
    def usable(self) -> bool:
        return self.verified and self.approved


class DkimKey(Setting, frozen=True):
    """A private key that signs for a domain, sealed; the public half stands in the domain's DNS."""

    id: str  # domain id / selector
    team: str
    domain: str  # dom_ id
    selector: str
    algorithm: Literal["rsa-sha256", "ed25519-sha256"]
    sealed: str  # the private key, PEM
    public: str  # the TXT value
    state: Literal["pending", "active", "retired"] = "active"  # pending: waits for its DNS record
    made_at: int = 0


class DisplayName(Setting, frozen=True):
    id: str
    team: str
    domain: str  # dom_ id
    name: str
    approved: bool = False
    refused_reason: str = ""
    asked_by: str = ""  # usr_… who asked for it last; told when it is decided


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a template declares of a variable beyond its name."""

    list: tuple[str, ...] = ()  # the fields of its items; none: it is one value
    max: int = 50  # items
    max_length: int | None = None  # characters of it, or of each field of its items


class LocaleParts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A template in another language."""

    subject: str | None = None
    html: str | None = None
    text: str | None = None
    body: str | None = None
    language: str | None = None
    upstream_name: str | None = None


class Template(Setting, frozen=True):
    id: str
    team: str
    channel: Channel
    name: str
    status: Status = "approved"
    version: int = 1
    subject: str | None = None
    html: str | None = None
    text: str | None = None
    body: str | None = None
    category: Literal["AUTHENTICATION", "UTILITY", "MARKETING"] | None = None
    language: str | None = None
    upstream_name: str | None = None
    variables: tuple[str, ...] = ()  # declared names in manifest order, without `customer.`
    shapes: dict[str, Shape] = {}  # of those that declare more than their name
    locale: str = "en"  # of its parts
    locales: dict[str, LocaleParts] = {}  # in other languages, by their tag
    timezone: str = "UTC"  # of the times that it writes
    layout: str | None = None  # lay_… around its html and text
    optional: tuple[str, ...] = ()
    price: int = 0
    prices: dict[str, int] = {}  # by ISO country; 0 is a price
    examples: dict[str, str] = {}  # values to preview and to try it with
    validity_minutes: int = 0  # sms: how long the carrier may try; 0: as long as it pleases
    priority: Priority = "normal"  # of sends that name none
    refused_reason: str = ""  # of a draft: why an operator did not approve it
    unfinished: bool = False  # of a draft: its team has not asked to publish it yet
    submitted_at: int = 0  # of a draft: since when it waits for an operator
    # What programs written for Resend give a template, and get back.
    alias: str = ""  # by which it is found as well
    sender: str = ""  # of mails that name none
    reply_to: tuple[str, ...] = ()
    fallback: dict[str, str | int | float] = {}  # of variables that a send leaves out
    written: dict[str, str] = {}  # variables that they do not write in capitals: ours → theirs
    numbers: tuple[str, ...] = ()  # variables that they call numbers


class UpstreamTemplate(Setting, frozen=True):
    """What Meta last told of a WhatsApp template that a team sends."""

    team: str
    name: str
    language: str
    status: UpstreamState = "approved"
    reason: str = ""
    quality: str = ""  # in Meta's words: green, yellow, red
    at: int = 0  # when it came to its status, by Meta's clock
    quality_at: int = 0

    @property
    def id(self) -> str:
        return f"{self.team}/{self.language}/{self.name}"


class Layout(Setting, frozen=True):
    """What stands around the content of a team's emails."""

    id: str
    team: str
    name: str
    status: Status = "approved"
    version: int = 1
    html: str | None = None
    text: str | None = None
    submitted_at: int = 0  # of a draft: since when it waits for an operator
    refused_reason: str = ""  # of a draft: why an operator did not approve it
    asked_by: str = ""  # of a draft: usr_… who submitted it; told when it is decided


class LayoutDraft(Setting, frozen=True):
    """A change of a layout that is not approved; until then the layout stays as it is."""

    team: str
    layout: Layout  # as it would become


class TemplateDraft(Setting, frozen=True):
    """A change of a template that is not published; until then the template stays as it is."""

    team: str
    template: Template  # as it would become
    by: str  # usr_…
    at: int


class Key(Setting, frozen=True):
    id: str  # the 10-character public part of the token
    team: str  # empty for a platform key, which belongs to no team
    name: str
    hash: str  # SHA-256 of the whole token, hex
    domain: str | None = None  # pinned to this domain name
    scopes: tuple[KeyScope, ...] = ("send",)
    revoked: bool = False
    expires_at: int | None = None
    networks: tuple[str, ...] = ()  # where it may be used from; none: anywhere
    passthrough: str = ""  # as a team's, and before it
    created_at: int = 0  # 0: before this was kept
    secret: str = ""  # sealed: of a hook's key, which signs requests and is never sent


class Recipient(Setting, frozen=True):
    """An address or phone verified on a sandbox team, in its normal form."""

    team: str
    address: str


class SenderId(Setting, frozen=True):
    team: str
    country: str
    value: str
    approved: bool = False
    refused_reason: str = ""
    wanted: str = ""  # as a domain's
    wanted_refused: str = ""
    asked_by: str = ""  # usr_… who asked for it last; told when it is decided


class Inbound(Setting, frozen=True):
    """Where mail for a team comes in."""

    team: str
    address: str  # in its normal form; `*@domain`: all that no other names


OWN_FORMAT = "heliograph"


class Webhook(Setting, frozen=True):
    """An endpoint that a team's events are told to."""

    id: str
    team: str
    url: str
    secret: str  # sealed
    events: tuple[str, ...] = ("*",)  # types, `email.*`, or `*`
    old_secret: str | None = None  # sealed; signs beside the new one until `old_until`
    old_until: int = 0
    enabled: bool = True
    description: str = ""
    created_at: int = 0
    disabled_reason: str = ""  # why the service itself disabled it
    format: str = OWN_FORMAT  # one of webhook_formats
    login: str | None = None  # sealed; user:password of its URL, sent as Basic
    private_key: str | None = None  # sealed; of formats that sign with a pair of keys
    public_key: str = ""  # base64 of it as DER (SubjectPublicKeyInfo)
    asked: tuple[str, ...] = ()  # events by the names of its format, where somebody asked for them so


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """A team with all that belongs to it, as requests see it."""

    record: TeamRecord
    domains: dict[str, Domain] = {}  # by name
    dkim_keys: tuple[DkimKey, ...] = ()
    display_names: dict[str, DisplayName] = {}  # by id
    templates: dict[str, Template] = {}  # by id
    upstream: dict[tuple[str, str], UpstreamTemplate] = {}  # by name and language at Meta
    layouts: dict[str, Layout] = {}  # by id
    sender_ids: dict[str, SenderId] = {}  # by country
    recipients: frozenset[str] = frozenset()
    inbound: frozenset[str] = frozenset()  # addresses
    webhooks: tuple[Webhook, ...] = ()
    hook_keys: tuple[Key, ...] = ()  # those that sign
    clock: TeamClock | None = None  # None: it was never moved
    # What only the setup decides, decided once:
    sandbox: bool = False
    simulated: bool = False  # it has a test clock: nothing that it sends reaches a real carrier
    approved_domains: tuple[Domain, ...] = ()  # those that it may send for, in the order they were made

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "sandbox", self.record.mode == "sandbox")
        msgspec.structs.force_setattr(self, "simulated", self.sandbox and self.record.test_clock)
        approved = tuple(domain for domain in self.domains.values() if domain.usable)
        msgspec.structs.force_setattr(self, "approved_domains", approved)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who is behind a request."""

    team: Team  # of a platform key: an empty team with the id "" and the number 0, which no route but its own reads
    key: Key
    entry: Callable[[str], AuditEntry] | None = None  # of a person's send: from the message's id
    caught: bool = False  # whatever it sends is taken and ends in a simulator

    def catching(self) -> "Caller":
        """Return the caller as on other services' surfaces and by SMTP."""
        return msgspec.structs.replace(self, caught=True) if self.team.record.catch and self.team.sandbox else self
