"""Setup records: the platform, its carriers, and each team with everything that belongs to the team.

`apply` and the dashboard write these records, the store saves them as documents, and every request uses them. Money is
in integers of 10^-6 currency units, times in milliseconds since 1970.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.limits import MIB

Channel = Literal["email", "sms", "whatsapp"]
Mode = Literal["sandbox", "live"]
Scope = Literal["send", "manage"]  # scopes of a team's key
KeyScope = Literal["send", "manage", "operate"]  # `operate` is the only scope of a platform key
Status = Literal["approved", "draft", "archived"]  # status of a template or a layout
Segmenting = Literal["spec", "udh"]  # how SMS segments are billed: as in spec 8, or as sent with user data headers
CompatService = Literal["postal", "postmark", "resend", "twilio"]  # services whose API format is supported
DkimMethod = Literal["txt", "cname"]
Priority = Literal["critical", "normal", "bulk"]
UpstreamState = Literal["approved", "pending", "rejected", "paused", "disabled"]  # state of a WhatsApp template at Meta

CHANNELS: tuple[Channel, ...] = get_args(Channel)
KeyChannel = Literal["email", "sms", "whatsapp", "verify", "*"]  # channels that a key may be restricted to
KEEP_CONTENT_DAYS, KEEP_MESSAGES_DAYS = 7, 90
KEEP_CONTENT_DAYS_MAX, KEEP_MESSAGES_DAYS_MAX = 90, 3650
PRIORITY_MAX = 1_000_000  # allowed range: -PRIORITY_MAX to PRIORITY_MAX


class SetupRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of setup records; a record is identified by kind and id."""


class Platform(SetupRecord, frozen=True):
    sender: str = "hello@sandbox.heliograph.test"  # sender address of sandbox teams, without display name
    brand: str = "Heliograph"
    verify_price: dict[str, int] = {}  # price per verification, by currency
    verify_text: dict[str, str] = {}  # by language; overrides the built-in texts
    dkim_zone: str = ""  # our DNS zone with the keys of domains that use DKIM by CNAME; empty: no such zone
    dkim_rotate_days: int = 180  # age at which keys in the zone are replaced; 0 = never
    mail_host: str = ""  # MX host name for bounces; empty: the host of the public URL
    templates_need_approval: bool = False  # a team's template changes wait for an operator's approval
    # Default prices at approval: channel → currency → country or "*".
    prices: dict[Channel, dict[str, dict[str, int]]] = {}
    sandbox_per_day: int = 50  # limit of messages and codes of a sandbox team over real carriers
    log_requests_per_second: int = 10  # logged requests per team and process; rejected requests count separately
    compat_hosts: dict[str, CompatService] = {}  # host names at whose root a compatibility API is served
    attachment_types: tuple[str, ...] = ()  # additional attachment types of emails beyond the spec's
    portal_origins: tuple[str, ...] = ()  # origins whose pages may show portals in a frame
    paused: bool = False  # delivery is paused: new messages remain `queued`
    paused_reason: str = ""  # set if the pause was not made by an operator


class CarrierRecord(SetupRecord, frozen=True):
    id: str
    channel: Channel
    kind: str
    countries: tuple[str, ...] = ("*",)
    enabled: bool = True
    priority: int = 10  # carriers with a lower value are tried first
    options: dict[str, Any] = {}  # fields specific to the carrier kind
    by_hand: bool = False  # created in the dashboard, and not contained in any setup file applied since


class VerifyLimits(SetupRecord, frozen=True):
    """Verification settings of a team: countries, limits and text."""

    countries: tuple[str, ...] = ("*",)
    per_phone_10m: int = 5
    per_phone_day: int = 20
    per_prefix_10m: int = 20
    min_interval_s: int = 30
    wrong_per_phone_day: int = 100
    conversion_guard: bool = True
    language: str = "en"
    magic: bool = False  # a live team may verify magic recipients too; their codes are public
    inbox: bool = False  # keys of a sandbox team can read its codes at GET /v1/inbox
    webotp: str = ""  # domain on which browsers may autofill the code
    channels: tuple[Channel, ...] = ("sms",)  # SMS is always enabled


class OptOutTexts(SetupRecord, frozen=True):
    """Keywords with which recipients opt out and in, and the replies to them; an empty reply is not sent."""

    words: tuple[str, ...] = (
        *("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"),
        *("ARRET", "STOPP", "BAJA", "PARAR", "STOPPEN", "ALTO", "SAIR", "ABMELDEN", "AFMELDEN", "IPTAL", "BERHENTI"),
        *("СТОП", "ОТПИСАТЬСЯ", "停止", "退订", "退訂", "配信停止", "수신거부", "توقف", "إيقاف", "הסר", "หยุด"),
    )
    start_words: tuple[str, ...] = ("START", "UNSTOP")
    stop_text: str = "You're unsubscribed and won't receive more messages. Reply START to resubscribe."
    start_text: str = "You're resubscribed and will receive our messages again. Reply STOP to unsubscribe."
    help_text: str = "Reply STOP to unsubscribe or START to resubscribe."


APPROVAL_HOURS_MAX = 168  # contract 20
DEFAULT_BYTES_PER_DAY: dict[Mode, int] = {"live": 10 * 1024 * MIB, "sandbox": 200 * MIB}  # contract 1


class TeamRecord(SetupRecord, frozen=True):
    """Fields of a team itself; its objects, such as domains and templates, are records that refer to the team."""

    ref: int  # integer id of the team in the database
    id: str
    name: str
    mode: Mode = "sandbox"
    suspended: bool = False
    deletes_at: int = 0  # when the team is deleted with all its data; 0 if its deletion was not requested
    stays_suspended: bool = False  # suspended before its deletion was requested, so a restored team stays suspended
    currency: str = "USD"
    email_quota: int = 10_000  # recipients per month
    features: tuple[str, ...] = ()
    rate_limit: int = 100  # requests per second for each key, burst twice that; 0 = off
    segmenting: Segmenting = "spec"
    verify: VerifyLimits = VerifyLimits()
    opt_out: OptOutTexts = OptOutTexts()
    marketing_per_day: int = 2  # WhatsApp MARKETING messages per recipient
    credit_low: int = 5_000_000  # credit below which `credit.low` is published; 0 = never
    octets_per_day: int | None = None  # bytes of texts and attachments; 0 = off, None: default of the mode
    domains_max: int = 50  # number of domains that the team may add
    # Retention of text and attachments, counted from the message's final state.
    keep_content_days: int = KEEP_CONTENT_DAYS
    # Retention of recipients and timeline; at least as long as the content.
    keep_messages_days: int = KEEP_MESSAGES_DAYS
    wanted: str = ""  # new name requested by an owner; recipients see `name` until the new name is approved
    wanted_refused: str = ""
    asked_by: str = ""  # usr_… who requested last; receives the decision
    passthrough: str = ""  # tpl_… with one variable that takes the free text sent by Twilio clients
    catch: bool = False  # sandbox: anything sent through compatibility APIs or SMTP is accepted and only captured
    test_clock: bool = False  # sandbox: the team controls its own clock and only simulators deliver
    attachment_types: tuple[str, ...] = ()  # in addition to those of the spec and the platform
    pool: str = "default"  # pool of source addresses; only carriers with pools use it
    categories: tuple[str, ...] = ()  # categories of emails that recipients can unsubscribe from
    approval_hours: int = 24  # hours after which a message that waits for approval fails

    @property
    def catch_error(self) -> str:
        """Return the error in `catch`; empty if valid."""
        return "expected false: a live team catches nothing" if self.catch and self.mode == "live" else ""

    @property
    def test_clock_error(self) -> str:
        """Return the error in `test_clock`; empty if valid."""
        return "expected false: a live team keeps real time" if self.test_clock and self.mode == "live" else ""

    @property
    def suspended_error(self) -> str:
        """Return the error in `suspended`, which is required until a deletion; empty if valid."""
        if not self.deletes_at or self.suspended:
            return ""
        return "expected true: the team is to be deleted. Restore it first"

    @property
    def daily_bytes_limit(self) -> int:
        """Return the bytes that the team may store per day; 0 for no limit."""
        return DEFAULT_BYTES_PER_DAY[self.mode] if self.octets_per_day is None else self.octets_per_day

    @property
    def retention_error(self) -> str:
        """Return the error in `keep_messages_days`; empty if valid."""
        if self.keep_messages_days >= self.keep_content_days:
            return ""
        return f"expected at least {self.keep_content_days}: messages are kept as long as content (keep_content_days)"


class TeamClock(SetupRecord, frozen=True):
    """Current and target offset of a team's test clock from real time."""

    team: str
    ahead: int = 0  # ms by which the test clock is ahead of real time
    target: int = 0  # `ahead` increases to this value in steps; all work that is due is done before the next step


class Domain(SetupRecord, frozen=True):
    id: str
    team: str
    name: str  # lower-case A-label form
    brand: str
    verified: bool = False
    approved: bool = False
    dkim: DkimMethod = "txt"  # the owner publishes the keys, or CNAME records to our zone
    by_dns: bool = False  # DNS decides `verified`; otherwise an operator does
    failures: int = 0  # consecutive checks that found a record missing
    checked_at: int | None = None
    refused_reason: str = ""  # why an operator refused the domain
    wanted: str = ""  # new brand requested after approval; `brand` is used until the new one is approved
    wanted_refused: str = ""  # why the new brand was refused
    asked_by: str = ""  # usr_… who requested last; receives the decision

    @property
    def usable(self) -> bool:
        return self.verified and self.approved


class DkimKey(SetupRecord, frozen=True):
    """An encrypted private key that signs for a domain; the public key is published in the domain's DNS."""

    id: str  # domain id / selector
    team: str
    domain: str  # dom_ id
    selector: str
    algorithm: Literal["rsa-sha256", "ed25519-sha256"]
    sealed: str  # the private key as PEM, encrypted
    public: str  # value of the TXT record
    state: Literal["pending", "active", "retired"] = "active"  # pending: the DNS record is not published yet
    made_at: int = 0
    usable_at: int | None = None  # for a pending key in our zone: when DNS caches without the key have expired


class DisplayName(SetupRecord, frozen=True):
    id: str
    team: str
    domain: str  # dom_ id
    name: str
    approved: bool = False
    refused_reason: str = ""
    asked_by: str = ""  # usr_… who requested last; receives the decision


class VariableType(msgspec.Struct, frozen=True, omit_defaults=True):
    """Declared type of a template variable."""

    list: tuple[str, ...] = ()  # fields of the items of a list; empty for a single value
    max: int = 50  # maximum number of items
    max_length: int | None = None  # maximum characters of the value, or of each field of an item


class LocaleParts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Translation of a template into one language."""

    subject: str | None = None
    html: str | None = None
    text: str | None = None
    body: str | None = None
    language: str | None = None
    upstream_name: str | None = None


class Template(SetupRecord, frozen=True):
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
    category: str | None = None  # whatsapp: Meta's; email: the one that recipients can unsubscribe from
    language: str | None = None
    upstream_name: str | None = None
    variables: tuple[str, ...] = ()  # names in the order of their declarations, without `customer.`
    shapes: dict[str, VariableType] = {}  # types of the variables that declare more than a name
    locale: str = "en"  # locale of the fields above
    locales: dict[str, LocaleParts] = {}  # translations, by locale
    timezone: str = "UTC"  # time zone of rendered times
    layout: str | None = None  # id (lay_…) of the layout around html and text
    optional: tuple[str, ...] = ()
    price: int = 0
    prices: dict[str, int] = {}  # by ISO country; 0 means free
    examples: dict[str, str] = {}  # sample values for previews and test sends
    validity_minutes: int = 0  # sms: validity period at the carrier; 0: the carrier's default
    priority: Priority = "normal"  # default of sends without a priority
    refused_reason: str = ""  # only in drafts: why an operator refused the draft
    unfinished: bool = False  # only in drafts: the team has not submitted the draft yet
    submitted_at: int = 0  # only in drafts: when the draft was submitted
    # Fields that Resend clients set on a template and read back.
    alias: str = ""  # alternative name for lookups
    sender: str = ""  # default sender of mails
    reply_to: tuple[str, ...] = ()
    fallback: dict[str, str | int | float] = {}  # defaults of variables that a send omits
    written: dict[str, str] = {}  # variables that Resend clients do not write in capitals: our name → theirs
    numbers: tuple[str, ...] = ()  # variables that Resend clients declare as numbers


class UpstreamTemplate(SetupRecord, frozen=True):
    """Status of a team's WhatsApp template as last reported by Meta."""

    team: str
    name: str
    language: str
    status: UpstreamState = "approved"
    reason: str = ""
    quality: str = ""  # quality rating reported by Meta: green, yellow or red
    at: int = 0  # when the status changed, by Meta's clock
    quality_at: int = 0

    @property
    def id(self) -> str:
        return f"{self.team}/{self.language}/{self.name}"


class Layout(SetupRecord, frozen=True):
    """A layout: the frame around the content of a team's emails."""

    id: str
    team: str
    name: str
    status: Status = "approved"
    version: int = 1
    html: str | None = None
    text: str | None = None
    submitted_at: int = 0  # only in drafts: when the draft was submitted
    refused_reason: str = ""  # only in drafts: why an operator refused the draft
    asked_by: str = ""  # only in drafts: usr_… who submitted the layout and receives the decision


class LayoutDraft(SetupRecord, frozen=True):
    """An unapproved change of a layout; the current layout stays in use until approval."""

    team: str
    layout: Layout  # the layout after the change


class TemplateDraft(SetupRecord, frozen=True):
    """An unpublished change of a template; the current template stays in use until publication."""

    team: str
    template: Template  # the template after the change
    by: str  # id of the author (usr_…)
    at: int


class KeyRestrictions(SetupRecord, frozen=True):
    """What an API key may send. None does not restrict; an empty list or 0 permits nothing; "*" permits everything."""

    channels: tuple[KeyChannel, ...] | None = None
    senders: tuple[str, ...] | None = None  # normalised addresses, or `*@domain`
    recipients: tuple[str, ...] | None = None  # normalised addresses, `*@domain`, phones, or prefixes such as `+49*`
    templates: tuple[str, ...] | None = None  # template ids
    per_hour: int | None = None  # recipients in any 60 minutes
    per_day: int | None = None  # recipients in any 24 hours
    spend_per_day: int | None = None  # charged or held in any 24 hours
    approval: Literal["required"] | None = None  # a person releases every message


# Restrictions of a key whose stored restrictions cannot be read
PERMITS_NOTHING = KeyRestrictions(
    channels=(), senders=(), recipients=(), templates=(), per_hour=0, per_day=0, spend_per_day=0, approval="required"
)


class Key(SetupRecord, frozen=True):
    id: str  # the 10-character public part of the token
    team: str  # empty for a platform key, which belongs to no team
    name: str
    hash: str  # SHA-256 of the whole token, hex
    domain: str | None = None  # name of the only domain from which the key may send; None: any domain of the team
    scopes: tuple[KeyScope, ...] = ("send",)
    revoked: bool = False
    expires_at: int | None = None
    networks: tuple[str, ...] = ()  # networks from which the key may be used; empty: any
    passthrough: str = ""  # like the team's `passthrough`, which this overrides
    created_at: int = 0  # 0 for records older than this field
    secret: str = ""  # encrypted secret of a hook key, which signs hook requests; empty for other keys
    restrictions: KeyRestrictions | None = None  # None for an unrestricted key
    counts_as: str = ""  # id of the key whose limits a rotated key shares; empty: the key's own limits


class Recipient(SetupRecord, frozen=True):
    """A confirmed email address or phone number of a sandbox team's recipient, normalised."""

    team: str
    address: str


class SenderId(SetupRecord, frozen=True):
    team: str
    country: str
    value: str
    approved: bool = False
    refused_reason: str = ""
    wanted: str = ""  # new value requested after approval; `value` is used until the new one is approved
    wanted_refused: str = ""  # why the new value was refused
    asked_by: str = ""  # usr_… who requested last; receives the decision


class Inbound(SetupRecord, frozen=True):
    """An address at which mail for a team is received."""

    team: str
    address: str  # normalised; `*@domain` receives everything that no other address matches


DEFAULT_FORMAT = "heliograph"


class Webhook(SetupRecord, frozen=True):
    """An endpoint that receives a team's events."""

    id: str
    team: str
    url: str
    secret: str  # encrypted signing secret
    events: tuple[str, ...] = ("*",)  # event types, `email.*`, or `*`
    old_secret: str | None = None  # previous signing secret, encrypted; also signs until `old_until`
    old_until: int = 0
    enabled: bool = True
    description: str = ""
    created_at: int = 0
    disabled_reason: str = ""  # why the service disabled the webhook automatically
    format: str = DEFAULT_FORMAT  # one of webhook_formats
    login: str | None = None  # encrypted user:password from the URL, sent as HTTP Basic
    private_key: str | None = None  # encrypted private key, for formats that sign with a key pair
    public_key: str = ""  # public key as base64 DER (SubjectPublicKeyInfo)
    asked: tuple[str, ...] = ()  # requested events, by the format's names, if the request used those names


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """A team with everything that belongs to it, as used by requests."""

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
    hook_keys: tuple[Key, ...] = ()  # keys that verify the signatures of hook requests
    clock: TeamClock | None = None  # None if the clock was never moved
    # Values derived from the setup alone, computed once:
    sandbox: bool = False
    simulated: bool = False  # the team has a test clock: nothing it sends reaches a real carrier
    approved_domains: tuple[Domain, ...] = ()  # domains that the team may send from, in order of creation

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "sandbox", self.record.mode == "sandbox")
        msgspec.structs.force_setattr(self, "simulated", self.sandbox and self.record.test_clock)
        approved = tuple(domain for domain in self.domains.values() if domain.usable)
        msgspec.structs.force_setattr(self, "approved_domains", approved)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Authenticated caller of a request."""

    team: Team  # for a platform key: an empty team with id "" and number 0, read only by platform routes
    key: Key
    entry: Callable[[str], AuditEntry] | None = None  # message id → audit entry; only for a send by a person
    captured: bool = False  # everything sent is accepted and captured by a simulator

    def with_capture(self) -> "Caller":
        """Return the caller for SMTP and compatibility APIs: with `captured` set if a sandbox team has set `catch`."""
        return msgspec.structs.replace(self, captured=True) if self.team.record.catch and self.team.sandbox else self
