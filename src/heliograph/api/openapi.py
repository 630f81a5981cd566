"""The OpenAPI 3.1 document, made from the routes, their structs and the refusals.

What a struct cannot say (limits, formats, what a field means) stands in the tables at the top.
"""

from typing import Any, TypeVar

import msgspec

from heliograph import __version__
from heliograph.api.errors import type_of
from heliograph.api.reading import VERIFICATION_STATES
from heliograph.api.route import Query, Route
from heliograph.api.webhooks import EVENT_IDS_MAX
from heliograph.rules import refusals as r
from heliograph.rules.attachments import ALLOWED_TYPES
from heliograph.rules.event import NAMES, TYPES
from heliograph.rules.idempotency import HEADER
from heliograph.rules.ids import PREFIXES
from heliograph.rules.limits import (
    ATTACHMENTS_MAX,
    CODE_MAX,
    CODE_MIN,
    DOMAIN_MAX,
    IDEMPOTENCY_KEY_MAX,
    LOCAL_PART_MAX,
    RECIPIENTS_MAX,
    SUBJECT_MAX,
    WRONG_CODES_MAX,
)
from heliograph.rules.message import STATES
from heliograph.rules.setup.webhook import DESCRIPTION_MAX
from heliograph.rules.setup.webhook_url import URL_MAX
from heliograph.rules.suppression_file import REASONS
from heliograph.rules.text import LINE_MAX
from heliograph.web.status import status_of

Schema = dict[str, Any]
T = TypeVar("T")

REF = "#/components/schemas/"
NULL: Schema = {"type": "null"}
EMAIL: Schema = {"type": "string", "format": "idn-email", "maxLength": LOCAL_PART_MAX + 1 + DOMAIN_MAX}
PHONE: Schema = {"type": "string", "pattern": r"^\+[1-9][0-9]{6,14}$", "examples": ["+15005550006"]}
TIME: Schema = {"format": "date-time"}
MONEY: Schema = {"pattern": r"^-?[0-9]+\.[0-9]{4,6}$"}
ONE_LINE = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$"
CONTROL = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # bidi controls too
EVENTS: Schema = {"items": {"enum": list(NAMES)}, "minItems": 1}
NO_NULL = r"^[^\u0000]*$"  # the one character that no string of a request may hold
DOMAIN_NAME = r"([A-Za-z0-9](-?[A-Za-z0-9]){0,30}\.)+[A-Za-z]{2,20}"
# Narrower than what is taken: names beyond ASCII and IP addresses that the operator allows are taken, too.
TARGET: Schema = {
    "maxLength": URL_MAX,
    "pattern": rf"^[Hh][Tt][Tt][Pp][Ss]?://{DOMAIN_NAME}(:[1-9][0-9]{{0,3}})?(/[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$",
}
LINE: Schema = {"maxLength": DESCRIPTION_MAX, "pattern": f"^[^{CONTROL}]*$"}
ADDRESSES: Schema = {"items": EMAIL, "maxItems": RECIPIENTS_MAX}

# The part of a path after /v1/ → the prefix of its ids and the states of its records.
RESOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "emails": (PREFIXES["email"], STATES["email"]),
    "sms": (PREFIXES["sms"], STATES["sms"]),
    "whatsapp": (PREFIXES["whatsapp"], STATES["whatsapp"]),
    "verify": (PREFIXES["verification"], VERIFICATION_STATES),
    "templates": (PREFIXES["template"], ()),
    "domains": (PREFIXES["domain"], ()),
    "webhooks": (PREFIXES["webhook"], ()),
    "events": (PREFIXES["event"], ()),
}
TAGS = {"sms": "SMS", "whatsapp": "WhatsApp", "me": "Account", "healthz": "Health", "readyz": "Health"}
ULID = "01JCQ8Z6V3M2N7T0K4H9R5B1XA"

# Fields of answers that have one value only: their default.
FIXED = ("object", "deleted", "dry_run", "Health.status", "TestEvent.type")

# Fields that a struct leaves open because their absence has a code of its own.
NEEDED = {
    "EmailRequest": ["to"],
    "PhoneRequest": ["to", "template_id"],
    "VerifyRequest": ["to"],
    "CheckRequest": ["code"],
}


def _set_up_id(kind: str) -> Schema:
    """An id that an operator may have chosen."""
    return {"pattern": f"^{PREFIXES[kind]}[A-Za-z0-9_]{{1,64}}$"}


# What a field means: "Struct.field", or "field" wherever it occurs.
MEANINGS: dict[str, str] = {
    "id": "Public id.",
    "to": "The recipient: for email the first To address, else a phone in E.164 form.",
    "to_addresses": "The whole To list; its first entry equals `to`.",
    "cc": "Cc recipients; empty when none.",
    "bcc": "Bcc recipients without suppressed ones; empty when none.",
    "reply_to": "Reply-To address.",
    "from": "The sender's bare address.",
    "subject": "Subject as delivered.",
    "html": "HTML body.",
    "text": "Plain-text body.",
    "body": "The rendered text.",
    "recipient_count": "Recipients in To, Cc and Bcc after Bcc drops: what the quota counts.",
    "attachments_count": "Number of attachments.",
    "status": "The state of the message, or of one recipient.",
    "sandbox": "`true` for a sandbox team.",
    "simulated": "`true`: a simulator took it, so that nobody got it, whatever its state says.",
    "created_at": "When it was made, ISO 8601 in UTC with milliseconds.",
    "updated_at": "When the state last changed.",
    "recipients": "Each distinct recipient with its own state.",
    "events": "The timeline.",
    "detail": "What the carrier or the report said: any JSON, or null.",
    "template_id": "`tpl_` id of an approved template of this channel.",
    "variables": "Values of the template's `customer.*` variables, by name.",
    "brand_domain_id": "`dom_` id of the verified domain whose brand the template shows.",
    "dry_run": "Always `true`: nothing was sent or written.",
    "country": "ISO code of the phone's country; null when no country has the prefix.",
    "sender_id": "The sender that the phone shows.",
    "encoding": "How the text is encoded on the air; null unless SMS.",
    "segments": "Billed segments; null unless SMS.",
    "template_version": "The version that was rendered; null without a template.",
    "price": "What it would cost now, in the team's currency.",
    "template": "The template's name upstream.",
    "language": "The template's language.",
    "parameters": "The values in the order of the template's manifest.",
    "channel": "The channel.",
    "expires_at": "When the code stops working: ten minutes after the start.",
    "error_message": "The carrier's words when the status is `failed`.",
    "verified": "`true` on the one call that brought the right code.",
    "remaining_attempts": "Wrong codes left before exhaustion.",
    "email": "The email address.",
    "reason": "Why it is suppressed.",
    "source_message_id": "The message that bounced or was complained about.",
    "deleted": "Always `true`.",
    "missing": "Required variables that were not given.",
    "unknown": "Given variables that the template does not declare.",
    "object": "The kind of this object.",
    "has_more": "`true` when there is a next page: ask for it with `after` = the last id of this one.",
    "data": "The records of this page.",
    "address": "Email address or phone.",
    "kind": "How it was addressed.",
    "team": "The key's team.",
    "name": "Its name.",
    "mode": "The team's mode.",
    "scopes": "What the key may do.",
    "email_quota": "Recipients of this UTC month.",
    "limit": "How many the plan includes.",
    "used": "How many were used.",
    "currency": "ISO code of the billing currency.",
    "credit": "What can be spent now; holds are already taken off.",
    "held": "What messages under way hold.",
    "EmailRequest.to": "One address or a list. To, Cc and Bcc together have at most 50.",
    "EmailRequest.cc": "Cc addresses, up to 50.",
    "EmailRequest.bcc": "Bcc addresses, up to 50; they are in no header, and suppressed ones are dropped.",
    "EmailRequest.reply_to": "Sets the Reply-To header.",
    "EmailRequest.attachments": "Up to 20 files, 10 MiB each, 25 MiB together.",
    "EmailRequest.from": "`you@your-domain` or `Name <you@your-domain>`. Needed in live mode; a sandbox team "
    "leaves it out or sends the platform sender.",
    "EmailRequest.from_display_id": "`dn_` id of an approved display name of the sending domain.",
    "EmailRequest.subject": "One line of up to 200 characters. Direct mode only.",
    "EmailRequest.html": "HTML body. Direct mode needs `html`, `text` or both.",
    "EmailRequest.text": "Plain-text body. Direct mode only.",
    "EmailRequest.template_id": "`tpl_` id of an email template, in place of `subject`, `html` and `text`.",
    "EmailPreview.from": "The From header.",
    "EmailPreview.to": "To recipients.",
    "PhoneRequest.to": "Phone in E.164 form, for example `+14155550123`.",
    "VerifyRequest.to": "Phone in E.164 form, for example `+14155550123`.",
    "VerifyRequest.channel": "`sms`, which is also the default.",
    "VerificationRecord.status": "The state of the verification.",
    "CheckRequest.code": "The code as the user typed it, 4 to 10 characters.",
    "CheckRecord.status": "The state of the verification.",
    "DomainRequest.name": "The domain, such as `acme.test`.",
    "DomainRequest.brand": "The display name of its mail; default the team's name.",
    "DomainView.name": "The domain, in A-labels.",
    "DomainView.brand": "The display name of its mail.",
    "DomainView.verified": "DNS, or an operator, says that the team may send for it.",
    "DomainView.approved": "An operator agrees.",
    "DomainView.checked_at": "When DNS was asked last; null before the first time.",
    "DomainView.records": "The DNS records to set.",
    "DomainView.alignment": "What DMARC makes of its mail; null without a check.",
    "DomainList.data": "The domains.",
    "RecordView.type": "TXT or MX.",
    "RecordView.name": "Where the record stands.",
    "RecordView.value": "What it must say.",
    "RecordView.purpose": "ownership, dkim, return_path, spf or dmarc.",
    "RecordView.ok": "Whether it is there; null when DNS was not asked, or did not answer.",
    "RecordView.found": "What DNS says.",
    "RecordView.mend": "What to do about it; empty when nothing is wrong.",
    "Alignment.dkim": "DKIM proves the From domain.",
    "Alignment.spf": "SPF proves the From domain.",
    "Alignment.passes": "One of the two is enough.",
    "Alignment.adkim": "How DMARC compares for DKIM.",
    "Alignment.aspf": "How DMARC compares for SPF.",
    "Alignment.policy": "What receivers do with mail that fails; null without a policy.",
    "SuppressionRequest.email": "The address to suppress.",
    "SuppressionRequest.reason": "Why; default `manual`.",
    "RenderRequest.to": "A phone, for the price in its country. SMS and WhatsApp templates only.",
    "EventView.type": "What happened, for example `email.delivered`.",
    "EventView.recipient": "Whose state changed.",
    "EventView.previous_status": "The state before.",
    "EventView.message_status": "The state of the whole message then.",
    "EventView.sequence": "Counts the message's events from 1; null for what was not published.",
    "url": "Where events are sent: http or https, without a user name or a fragment.",
    "description": "A note for people.",
    "enabled": "Whether it is told anything.",
    "secret": "Signs what it is told; `whsec_…`, shown this once.",
    "disabled_reason": "Why the service itself disabled it.",
    "secret_rotates_until": "Until then the secret before signs as well.",
    "WebhookRequest.events": "Event types, groups such as `email.*`, or `*`.",
    "WebhookRequest.secret": "A secret of your own: `whsec_` and the base64 of 24 to 64 bytes. Without it one is made.",
    "WebhookChange.events": "Event types, groups such as `email.*`, or `*`.",
    "WebhookChange.enabled": "`true` also forgets why it was disabled.",
    "WebhookRecord.events": "What it is told.",
    "NewWebhookRecord.events": "What it is told.",
    "Replay.count": "How many are sent again.",
    "TestEvent.id": "The event's id.",
    "TestEvent.type": "Its type.",
    "event_id": "The event.",
    "attempts": "Every try, kept for 30 days.",
    "DeliveryRecord.type": "The event's type.",
    "DeliveryRecord.state": "`delivered`, still `waiting`, or given up.",
    "DeliveryRecord.next_attempt_at": "When it is tried next; null when it is over.",
    "AttemptRecord.number": "Counts from 1.",
    "AttemptRecord.at": "When.",
    "AttemptRecord.status": "The status that came back; null without an answer.",
    "AttemptRecord.error": "Why there was no answer.",
    "AttemptRecord.duration_ms": "How long it took.",
    "AttemptRecord.answer": "The first KB of the answer.",
    "PublishedEvent.type": "What happened, for example `email.delivered`.",
    "PublishedEvent.team_id": "The team.",
    "PublishedEvent.sequence": "Counts a message's events from 1.",
    "PublishedEvent.data": "The record of what changed, with its new `status`.",
    "ErrorList.data": "Every code.",
    "ErrorList.has_more": "Always `false`.",
    "ErrorEntry.code": "The code.",
    "ErrorEntry.status": "Its HTTP status.",
    "ErrorEntry.type": "Its kind.",
    "ErrorEntry.meaning": "What is wrong.",
    "ErrorEntry.fix": "What to do about it.",
    "Health.status": "Always `ok`.",
}

# What a field's type does not say, by the same names.
LIMITS: dict[str, Schema] = {
    "created_at": TIME,
    "updated_at": TIME,
    "expires_at": TIME,
    "price": MONEY,
    "credit": MONEY,
    "held": MONEY,
    "encoding": {"enum": ["gsm7", "ucs2"]},
    "channel": {"enum": list(STATES)},
    "reason": {"enum": list(REASONS)},
    "kind": {"enum": ["to", "cc", "bcc"]},
    "mode": {"enum": ["sandbox", "live"]},
    "scopes": {"items": {"enum": ["send", "manage"]}},
    "template_id": _set_up_id("template"),
    "brand_domain_id": _set_up_id("domain"),
    "from_display_id": _set_up_id("display_name"),
    "variables": {"$ref": f"{REF}Variables"},
    "remaining_attempts": {"minimum": 0, "maximum": WRONG_CODES_MAX},
    "EmailRequest.to": {"anyOf": [EMAIL, {**ADDRESSES, "type": "array", "minItems": 1}]},
    "EmailRequest.cc": ADDRESSES,
    "EmailRequest.bcc": ADDRESSES,
    "EmailRequest.reply_to": EMAIL,
    "EmailRequest.attachments": {"items": {"$ref": f"{REF}Attachment"}, "maxItems": ATTACHMENTS_MAX},
    "EmailRequest.subject": {"maxLength": SUBJECT_MAX, "pattern": ONE_LINE},
    "EmailRecord.status": {"enum": list(STATES["email"])},
    "EmailView.status": {"enum": list(STATES["email"])},
    "PhoneRecord.status": {"enum": list(STATES["whatsapp"])},  # those of SMS and `read`
    "PhoneView.status": {"enum": list(STATES["whatsapp"])},
    "PhoneRequest.to": PHONE,
    "VerifyRequest.to": PHONE,
    "VerifyRequest.channel": {"enum": ["sms"]},
    "VerificationRecord.status": {"enum": list(VERIFICATION_STATES)},
    "CheckRequest.code": {"type": "string", "minLength": CODE_MIN, "maxLength": CODE_MAX},
    "CheckRecord.status": {"enum": list(VERIFICATION_STATES)},
    "DomainRequest.name": {"maxLength": DOMAIN_MAX, "pattern": f"^{DOMAIN_NAME}$"},
    "DomainRequest.brand": {"maxLength": LINE_MAX, "pattern": rf"^([^{CONTROL}]*[^\s{CONTROL}][^{CONTROL}]*)?$"},
    "SuppressionRequest.email": EMAIL,
    "secret_rotates_until": TIME,
    "WebhookRequest.url": TARGET,
    "WebhookRequest.events": EVENTS,
    "WebhookRequest.secret": {"pattern": "^whsec_[A-Za-z0-9+/]{32,86}={0,2}$"},
    "WebhookRequest.description": LINE,
    "WebhookChange.url": TARGET,
    "WebhookChange.events": EVENTS,
    "WebhookChange.description": LINE,
    "WebhookRecord.events": EVENTS,
    "NewWebhookRecord.events": EVENTS,
    "DeliveryRecord.state": {"enum": ["waiting", "delivered", "exhausted"]},
    "DeliveryRecord.type": {"enum": list(TYPES)},
    "DeliveryRecord.next_attempt_at": TIME,
    "AttemptRecord.at": TIME,
    "PublishedEvent.type": {"enum": list(TYPES)},
}

# By path, because SMS and WhatsApp share a struct. The recipients are magic, so nothing leaves the machine.
EXAMPLES: dict[str, Schema] = {
    "/v1/emails": {
        "from": "hello@acme.test",
        "to": "delivered@simulator.test",
        "subject": "Hello",
        "text": "Hello Ada.",
    },
    "/v1/sms": {"to": "+15005550006", "template_id": "tpl_reminder", "variables": {"name": "Ada"}},
    "/v1/whatsapp": {"to": "+15005550006", "template_id": "tpl_update", "variables": {"name": "Ada"}},
    "/v1/verify": {"to": "+15005550006"},
    "/v1/verify/{id}/check": {"code": "000000"},
    "/v1/templates/{id}/render": {"variables": {"name": "Ada"}},
    "/v1/suppressions": {"email": "ada@example.com", "reason": "manual"},
    "/v1/domains": {"name": "acme.test", "brand": "Acme"},
    "/v1/webhooks": {"url": "https://example.com/hooks", "events": ["email.*", "suppression.created"]},
    "/v1/webhooks/{id}": {"enabled": True},
    "/v1/webhooks/{id}/replay": {"event_id": f"evt_{ULID}"},
}

EVENT_ID: Schema = {
    "description": "An event to send again.",
    "type": "string",
    "pattern": f"^{PREFIXES['event']}[0-9A-Z]{{26}}$",
}
EVENT_IDS: Schema = {
    "description": "Or several.",
    "type": "array",
    "items": EVENT_ID,
    "minItems": 1,
    "maxItems": EVENT_IDS_MAX,
}


def _form(title: str, needed: dict[str, Schema], **more: Schema) -> Schema:
    """One of the forms that a body may have."""
    return {
        "title": title,
        "type": "object",
        "required": list(needed),
        "additionalProperties": False,
        "properties": needed | more,
    }


ALL_CODES = [refusal.code for refusal in r.all_refusals()]
WRITTEN_OUT: dict[str, Schema] = {
    "Attachment": {
        "type": "object",
        "required": ["filename", "content", "content_type"],
        "additionalProperties": False,
        "properties": {
            "filename": {"description": "Name of the file.", "type": "string", "minLength": 1},
            "content": {
                "description": "The file as standard base64, padded, without white space.",
                "type": "string",
                "format": "byte",
                "contentEncoding": "base64",
            },
            "content_type": {
                "description": "Its type; parameters such as `; charset=utf-8` may follow.",
                "type": "string",
                "enum": sorted(ALLOWED_TYPES),
            },
        },
    },
    "Variables": {
        "type": "object",
        "propertyNames": {"pattern": NO_NULL},
        "additionalProperties": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"], "pattern": NO_NULL},
                {"$ref": f"{REF}Variables"},
            ]
        },
    },
    "ReplayRequest": {
        "description": "One of three forms: an event, a list of events, a span of time.",
        "oneOf": [
            _form("An event", {"event_id": EVENT_ID}),
            _form(
                "Events", {"event_ids": {"type": "array", "items": EVENT_ID, "minItems": 1, "maxItems": EVENT_IDS_MAX}}
            ),
            _form(
                "A span of time",
                {
                    "created_after": {
                        "description": "Or all that it hears of a span of time: after this moment,",
                        "type": "string",
                        **TIME,
                    },
                    "created_before": {"description": "and before this one.", "type": "string", **TIME},
                },
                failed_only={"description": "Only those that did not arrive.", "type": ["boolean", "null"]},
            ),
        ],
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["type", "code", "message", "param", "details", "request_id", "doc_url"],
                "properties": {
                    "type": {
                        "description": "The kind of error.",
                        "enum": sorted({type_of(status_of(one), one.code) for one in r.all_refusals()}),
                    },
                    "code": {"description": "The code to branch on.", "enum": ALL_CODES},
                    "message": {"description": "What is wrong and what to do about it.", "type": "string"},
                    "param": {"description": "The field or header at fault.", "type": ["string", "null"]},
                    "details": {"description": "More, where a code has it.", "type": ["object", "null"]},
                    "request_id": {"description": "Equals X-Request-Id.", "type": "string"},
                    "doc_url": {"description": "Where the code is explained.", "type": "string"},
                },
            }
        },
    },
    "Problem": {
        "description": "RFC 9457, for `Accept: application/problem+json`.",
        "type": "object",
        "required": ["type", "title", "status", "detail", "instance", "code", "param", "request_id"],
        "properties": {
            "type": {"description": "Where the code is explained.", "type": "string"},
            "title": {"description": "What the code means.", "type": "string"},
            "status": {"description": "The HTTP status.", "type": "integer"},
            "detail": {"description": "What is wrong and what to do about it.", "type": "string"},
            "instance": {"description": "This request, as a URN.", "type": "string"},
            "code": {"description": "The code to branch on.", "enum": ALL_CODES},
            "param": {"description": "The field or header at fault.", "type": ["string", "null"]},
            "request_id": {"description": "Equals X-Request-Id.", "type": "string"},
        },
    },
}
HEADERS: dict[str, Schema] = {
    "X-Request-Id": {"description": "The request's id.", "required": True, "schema": {"type": "string"}},
    "RateLimit-Limit": {"description": "The key's burst.", "schema": {"type": "integer"}},
    "RateLimit-Remaining": {"description": "Requests left at this moment.", "schema": {"type": "integer"}},
    "RateLimit-Reset": {"description": "Seconds until all are back.", "schema": {"type": "integer"}},
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
    "Idempotency-Replayed": {
        "description": "`true` when this is the answer to an earlier request with the same key.",
        "schema": {"const": "true"},
    },
    "WWW-Authenticate": {"description": "How to authenticate.", "schema": {"const": "Bearer"}},
}

KEY_HEADER: Schema = {
    "name": HEADER,
    "in": "header",
    "description": "Makes a retry safe: the same key and body get the first answer for 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX, "pattern": "^[ -~]+$"},
}

EVERY = (r.InternalError,)
KEYED = (
    r.MissingApiKey,
    r.InvalidApiKey,
    r.TeamSuspended,
    r.InsufficientScope,
    r.RateLimitExceeded,
    r.InvalidRequest,  # an unknown query parameter, at least
    r.ServiceUnavailable,
)
BODY = (r.UnsupportedMediaType, r.PayloadTooLarge, r.InvalidJson)


def openapi_document(routes: list[Route], base_url: str) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, routes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Heliograph",
            "version": __version__,
            "summary": "Transactional email, SMS, WhatsApp and one-time codes.",
        },
        "externalDocs": {"url": f"{base_url}/docs"},
        "servers": [{"url": base_url}],
        "tags": [{"name": name} for name in dict.fromkeys(tag(route) for route in routes)],
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "headers": HEADERS,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, `hk_…`, in `Authorization: Bearer <key>`.",
                }
            },
        },
    }


def operation_id(route: Route) -> str:
    """`post_emails`, `get_emails_id`: unique because method and path are."""
    words = route.path.removeprefix("/v1/").strip("/").translate({ord("/"): "_", ord("{"): None, ord("}"): None})
    return f"{route.method.lower()}_{words}"


def tag(route: Route) -> str:
    name = _resource(route)
    return TAGS.get(name, name.capitalize())


def refusals_of(route: Route) -> dict[int, list[type[r.Refusal]]]:
    """Every code that the route can answer, by status."""
    possible = [*(KEYED if route.scopes is not None else ()), *(BODY if route.body else ())]
    if "{" in route.path:
        possible.append(r.NotFound)
    found: dict[int, list[type[r.Refusal]]] = {}
    for refusal in dict.fromkeys((*possible, *route.refusals, *EVERY)):
        found.setdefault(status_of(refusal), []).append(refusal)
    return dict(sorted(found.items()))


def _resource(route: Route) -> str:
    return route.path.removeprefix("/v1").split("/")[1]


def _operation(route: Route, routes: list[Route]) -> Schema:
    operation: Schema = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [tag(route)],
        "security": [{"bearer": [scope]} for scope in route.scopes or ()],  # one of them is enough
        "parameters": _parameters(route),
        "responses": _responses(route, routes),
    }
    if route.body is not None:
        content: Schema = {"schema": {"$ref": REF + route.body.__name__}}
        if route.path in EXAMPLES:
            content["example"] = EXAMPLES[route.path]
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


def _parameters(route: Route) -> list[Schema]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    found = [{"name": name, "in": "path", "required": True, **_path_value(route)} for name in names]
    for query in route.query:
        found.append(
            {
                "name": query.name,
                "in": "query",
                "description": query.meaning,
                "schema": _query_limits(route, query) | query.schema,
            }
        )
    return [*found, KEY_HEADER] if route.once else found


def _path_value(route: Route) -> Schema:
    prefix, _ = RESOURCES.get(_resource(route), ("", ()))
    if not prefix:
        return {"schema": EMAIL, "description": "The email address.", "example": "ada@example.com"}
    if prefix in (PREFIXES["template"], PREFIXES["domain"]):
        kind, example = ("template", "tpl_welcome") if prefix == PREFIXES["template"] else ("domain", "dom_acme")
        schema = _set_up_id(kind)
    else:
        schema, example = {"pattern": f"^{prefix}[0-9A-Z]{{26}}$"}, prefix + ULID
    return {"schema": {"type": "string", **schema}, "description": f"`{prefix}` id.", "example": example}


def _query_limits(route: Route, query: Query) -> Schema:
    prefix, states = RESOURCES.get(_resource(route), ("", ()))
    if query.name == "after":
        return {"pattern": f"^{prefix}"} if prefix else EMAIL
    return {"enum": list(states)} if query.name == "status" else {}


def _responses(route: Route, routes: list[Route]) -> Schema:
    done = _response(route, route.status, route.summary, {"application/json": _ref(route.answer)})
    links = _links(route, routes)
    if links:
        done["links"] = links
    responses = {str(route.status): done}
    if route.preview is not None:
        content = {"application/json": _ref(route.preview)}
        responses["200"] = _response(route, 200, "A dry run: what would happen.", content)
    for status, refusals in refusals_of(route).items():
        words = "\n".join(f"- `{refusal.code}`: {refusal.meaning()}" for refusal in refusals)
        code: Schema = {"properties": {"code": {"enum": [refusal.code for refusal in refusals]}}}
        content = {
            "application/json": {"allOf": [{"$ref": f"{REF}Error"}, {"properties": {"error": code}}]},
            "application/problem+json": {"allOf": [{"$ref": f"{REF}Problem"}, code]},
        }
        responses[str(status)] = _response(route, status, words, content)
    return responses


def _response(route: Route, status: int, words: str, content: dict[str, Schema]) -> Schema:
    names = ["X-Request-Id"]
    if route.scopes is not None and status != 401:
        names += ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]
    if status in (409, 429, 500, 503):
        names.append("Retry-After")
    if status == 401:
        names.append("WWW-Authenticate")
    if route.once and status == route.status:
        names.append("Idempotency-Replayed")
    return {
        "description": words,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
        "content": {kind: {"schema": schema} for kind, schema in content.items()},
    }


def _links(route: Route, routes: list[Route]) -> Schema:
    """From what a POST made to the routes that take its id."""
    if route.method != "POST" or "{" in route.path:
        return {}
    links = {}
    for other in routes:
        rest = other.path.removeprefix(f"{route.path}/").split("/")[0]
        if rest.startswith("{"):
            name = rest[1:-1]
            links[operation_id(other)] = {
                "operationId": operation_id(other),
                "parameters": {name: f"$response.body#/{name}"},
            }
    return links


def _ref(kind: Any) -> Schema:
    return {"$ref": REF + kind.__name__}


def _schemas(routes: list[Route]) -> dict[str, Schema]:
    requests = {route.body for route in routes} - {None}
    answers = {kind for route in routes for kind in (route.answer, route.preview)} - {None}
    schemas = dict(WRITTEN_OUT)
    for kinds, answered in ((requests, False), (answers, True)):
        _, found = msgspec.json.schema_components(kinds, ref_template=f"{REF}{{name}}")
        schemas |= {name: _refined(name, schema, answered) for name, schema in found.items() if name not in schemas}
    return dict(sorted(schemas.items()))


def _refined(name: str, schema: Schema, answered: bool) -> Schema:
    needed = NEEDED.get(name, [])
    properties = {}
    for field, base in schema["properties"].items():
        limits = _known(LIMITS, name, field) or {}
        is_fixed = answered and (field in FIXED or f"{name}.{field}" in FIXED)
        properties[field] = _property(base, limits, is_fixed, field in needed)
        if meaning := _known(MEANINGS, name, field):
            properties[field]["description"] = meaning
        if not answered:
            _forbid_null(properties[field])
    # An answer always has all its fields.
    required = list(properties) if answered else [*schema["required"], *needed]
    return {**schema, "properties": properties, "required": required}


def _forbid_null(schema: Schema) -> None:
    for branch in schema.get("anyOf", [schema]):
        if branch.get("type") == "string" and branch.keys().isdisjoint(("pattern", "enum", "format")):
            branch["pattern"] = NO_NULL


def _known(table: dict[str, T], struct: str, field: str) -> T | None:
    return table.get(f"{struct}.{field}", table.get(field))


def _property(base: Schema, limits: Schema, is_fixed: bool, needed: bool) -> Schema:
    plain = {key: value for key, value in base.items() if key != "default"}
    if is_fixed:
        plain["const"] = base["default"]
    branches = plain.get("anyOf", [])
    if NULL not in branches:
        return plain | limits
    kinds = [branch | limits for branch in branches if branch != NULL]
    if needed:
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {"anyOf": [*kinds, NULL]}
