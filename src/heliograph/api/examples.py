"""Examples of requests and answers, made from the routes and the OpenAPI document.

Requests are those of `heliograph demo`, so that each runs there as it stands. A field of an answer gets the value that
`VALUES` has for its name, else one that its schema allows.
"""

from typing import Any

from heliograph.api.openapi import RESOURCES, ULID, resource_of
from heliograph.rules.field_docs import Schema
from heliograph.rules.ids import PREFIXES
from heliograph.web.route import Route
from heliograph.web.snippets import LANGUAGES, snippet

TIME = "2026-11-15T09:30:00.000Z"
EMAIL, PHONE = "delivered@simulator.test", "+15005550006"

# Field → its value in every answer that has it, unless its schema says otherwise.
VALUES: dict[str, Any] = {
    "address": EMAIL,
    "adkim": "relaxed",
    "answer": "ok",
    "approved": True,
    "aspf": "relaxed",
    "at": TIME,
    "attachments_count": 0,
    "bcc": [],
    "body": "Demo: your parcel 4711 is on its way.",
    "brand": "Demo",
    "cc": [],
    "checked_at": TIME,
    "code": "recipient_suppressed",
    "count": 1,
    "country": "US",
    "created_at": TIME,
    "credit": "99.8650",
    "currency": "USD",
    "data": {"id": f"eml_{ULID}", "recipient": EMAIL, "status": "delivered", "previous_status": "sent"},
    "description": None,
    "detail": None,
    "disabled_reason": None,
    "domain": None,
    "duration_ms": 84,
    "email": "ada@example.com",
    "enabled": True,
    "encoding": "gsm7",
    "error": None,
    "error_message": None,
    "event_id": f"evt_{ULID}",
    "events": ["email.*", "suppression.created"],
    "expires_at": None,
    "fix": "Remove these recipients from the request.",
    "found": ["v=DKIM1; k=ed25519; p=…"],
    "from": "hello@demo.test",
    "has_more": False,
    "held": "0.0000",
    "html": None,
    "kind": "to",
    "language": "en",
    "last_used_at": TIME,
    "limit": 10000,
    "meaning": "A recipient is on the suppression list.",
    "mend": "",
    "message_status": "delivered",
    "missing": [],
    "mode": "live",
    "next_attempt_at": None,
    "ok": True,
    "parameters": ["4711"],
    "policy": "none",
    "previous_status": "sent",
    "price": "0.0000",
    "purpose": "dkim",
    "reason": "manual",
    "recipient": EMAIL,
    "recipient_count": 1,
    "remaining_attempts": 4,
    "reply_to": None,
    "sandbox": False,
    "scopes": ["send"],
    "secret": "whsec_EVB6Di9eadXfpApiob17buV+a82Fxnyb",
    "secret_rotates_until": None,
    "segments": 1,
    "sender_id": "Demo",
    "sequence": 2,
    "simulated": True,
    "source_message_id": None,
    "state": "works",
    "status": "delivered",
    "subject": "Hello",
    "team_id": "team_demo",
    "template": "parcel_on_its_way",
    "template_version": 1,
    "text": "It works.",
    "to": EMAIL,
    "to_addresses": [EMAIL],
    "token": "hk_4fTzQ8kW1b_…",
    "type": "email.delivered",
    "unknown": [],
    "updated_at": TIME,
    "url": "https://example.com/hooks",
    "used": 412,
    "value": "v=DKIM1; k=ed25519; p=…",
    "verified": True,
}
VERIFICATION = {"status": "pending", "channel": "sms", "expires_at": "2026-11-15T09:40:00.000Z"}
# Schema → what its fields have instead.
OWN: dict[str, dict[str, Any]] = {
    "AttemptRecord": {"number": 1, "status": 200},
    "DeliveryRecord": {"state": "delivered"},
    "DomainView": {"id": "dom_demo", "name": "demo.test"},
    "EmailPreview": {"to": [EMAIL], "template_version": None},
    "ErrorEntry": {"status": 403, "type": "permission_error"},
    "InboxView": {
        "id": f"eml_{ULID}",
        "channel": "email",
        "to": ["you@example.com"],
        "subject": "Your code",
        "text": "Your code is 246810.",
        "code": "246810",
        "links": [],
    },
    "KeyRecord": {"id": "4fTzQ8kW1b", "name": "server"},
    "NewKeyRecord": {"id": "4fTzQ8kW1b", "name": "server", "last_used_at": None},
    "ReceivedRecord": {
        "from": "ada@example.com",
        "to": ["support@in.demo.test"],
        "cc": [],
        "recipients": ["support@in.demo.test"],
        "subject": "Re: Your parcel",
        "text": "Thanks!\n\nOn Mon, 16 Nov 2026, Demo wrote:\n> It left today.\n",
        "html": None,
        "reply_text": "Thanks!",
        "message_id": "<4711@example.com>",
        "in_reply_to": f"eml_{ULID}",
        "headers": [["Subject", "Re: Your parcel"]],
        "attachments": [],
        "truncated": False,
        "automatic": False,
    },
    "Authentication": {"spf": "pass", "dkim": "pass", "dmarc": "pass"},
    "BatchRecord": {"total": 1, "counts": {"delivered": 1}},
    "CheckRecord": {"status": "verified"},
    "PublishedEvent": {"id": f"evt_{ULID}"},
    "ExplanationRecord": {
        "cause": "mailbox_full",
        "category": "recipient",
        "text": "The mailbox is full.",
        "advice": "Ask the recipient to make room, then send it again.",
    },
    "EventView": {"id": f"evt_{ULID}"},
    "RecordView": {"name": "hs1._domainkey.demo.test", "type": "TXT"},
    "RenderView": {
        "channel": "email",
        "subject": "Welcome, Ada",
        "html": "<p>Hi Ada, Demo here.</p>",
        "text": "Hi Ada, Demo here.",
        "body": None,
        "segments": None,
        "encoding": None,
    },
    "SmsPreview": {"price": "0.0450"},
    "TeamView": {"id": "team_demo", "name": "Demo"},
    "TestEvent": {"id": f"evt_{ULID}"},
    "VerificationRecord": VERIFICATION,
    "VerificationView": VERIFICATION,
    "VerifyPreview": {"channel": "sms", "price": "0.0500"},
    "WhatsappPreview": {"price": "0.0300"},
}
# Path and schema → what one route answers with.
BY_PATH: dict[str, dict[str, Any]] = {
    "POST /v1/emails": {"status": "sending"},
    "POST /v1/sms": {"status": "sending"},
    "POST /v1/whatsapp": {"status": "sending"},
    "DELETE /v1/keys/{id}": {"state": "revoked"},
    **{
        f"POST /v1/{path}/batch": {"id": f"bat_{ULID}", "data": [{"id": PREFIXES[RESOURCES[path]] + ULID}]}
        for path in ("emails", "sms", "whatsapp")
    },
}


def request_examples(route: Route, base_url: str, operation: Schema) -> dict[str, str]:
    """Language → the request in it."""
    path = route.path
    for one in operation["parameters"]:
        path = path.replace(f"{{{one['name']}}}", one.get("example", ""))
    return {
        language: snippet(language, route.method, base_url + path, route.example, keyed=route.scopes is not None)
        for language in LANGUAGES
    }


def answer_example(route: Route, kind: Any, schemas: dict[str, Schema]) -> Any:
    """What the route answers with, `kind` being its answer or its dry run's."""
    values: dict[str, Any] = {}
    resource = resource_of(route)
    if resource in RESOURCES:
        values["id"] = PREFIXES[RESOURCES[resource]] + ULID
    if resource in ("sms", "whatsapp", "verify"):
        values |= {"to": PHONE, "recipient": PHONE, "address": PHONE, "type": f"{resource}.delivered"}
    return _object(kind.__name__, schemas, values, BY_PATH.get(route.name, {}))


def _object(name: str, schemas: dict[str, Schema], values: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    known, own = VALUES | values, OWN.get(name, {}) | last
    return {
        field: own[field] if field in own else _value(field, schema, schemas, known, values)
        for field, schema in schemas[name]["properties"].items()
    }


def _value(
    field: str, schema: Schema, schemas: dict[str, Schema], known: dict[str, Any], values: dict[str, Any]
) -> Any:
    if "const" in schema:
        return schema["const"]
    held = _held(schema, schemas)
    if held is not None:
        inner = _object(held, schemas, values, {})
        return [inner] if schema.get("type") == "array" else inner
    if field in known and known[field] in schema.get("enum", [known[field]]):
        return known[field]
    if "anyOf" in schema:
        return None if {"type": "null"} in schema["anyOf"] else _value(field, schema["anyOf"][0], schemas, {}, {})
    return schema["enum"][0] if "enum" in schema else EMPTY.get(schema.get("type", ""))


EMPTY: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def _held(schema: Schema, schemas: dict[str, Schema]) -> str | None:
    """The name of the object in a field, or in the list in it."""
    for branch in schema.get("anyOf", [schema]):
        name = str(branch.get("items", branch).get("$ref", "")).rpartition("/")[2]
        if "properties" in schemas.get(name, {}):
            return name
    return None
