"""JSON Schemas of all event types, generated from the structs that events are encoded from (contract 10)."""

from functools import cache
from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.api.events import PublishedEvent
from heliograph.api.json_schema import inline_refs, make_schemas, schema_ref
from heliograph.api.reading import (
    EmailSummary,
    HeadersView,
    HeldView,
    LocaleView,
    MetadataView,
    PhoneSummary,
    ReplyToView,
    TagsView,
)
from heliograph.domain.delivery.message_states import STATES_BY_CHANNEL
from heliograph.domain.event_data import (
    CreditLowData,
    DomainEventData,
    InboundTextData,
    OptOutEventData,
    RecipientChange,
    SuppressionEventData,
    TemplateStatusData,
    UnsubscribeEventData,
    VerificationEventData,
    WebhookTestData,
)
from heliograph.domain.events import DELAYED, EVENT_TYPES, HELD, TEST
from heliograph.domain.field_docs import (
    LANGUAGE_DOC,
    LAYOUT_VERSION_DOC,
    VERSION_DOC,
    AttachmentsCount,
    Bcc,
    Cc,
    ChannelName,
    RecipientCount,
    ReplyTo,
    Schema,
    Subject,
    describe,
    schema_limits,
)
from heliograph.domain.mail.delay import DelayData
from heliograph.domain.sending.batch import BATCH_DONE, BatchRecord
from heliograph.inbound.policy.inbound_mail import ReceivedRecord
from heliograph.texts.explain import ExplanationRecord
from heliograph.web.request import Response
from heliograph.web.route import json_response

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAYBE_ABSENT = schema_limits(maybe=True)
EXAMPLE_APPROVAL = "apr_01JCQ8Z6V3M2N7T0K4H9R5B1XA"

Explanation = Annotated[ExplanationRecord, describe("What happened, and what to do about it.", maybe=True)]
CarrierReply = Annotated[
    dict[str, Any], describe("The carrier's reply, or Heliograph's own reason; absent if unknown.", maybe=True)
]


class VersionFields(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of the template and the layout, and the language; absent if the message has no template."""

    template_version: Annotated[int, VERSION_DOC, MAYBE_ABSENT]
    layout_version: Annotated[int, LAYOUT_VERSION_DOC, MAYBE_ABSENT]
    locale: Annotated[str, LANGUAGE_DOC, MAYBE_ABSENT]


class ComplaintFields(msgspec.Struct, frozen=True, kw_only=True):
    explanation: Explanation


class BounceFields(msgspec.Struct, frozen=True, kw_only=True):
    bounce: CarrierReply
    detail: Annotated[
        dict[str, Any], describe("The same as `bounce`, if it has a `reason` of Heliograph's own.", maybe=True)
    ]
    explanation: Explanation


class FailureFields(msgspec.Struct, frozen=True, kw_only=True):
    error: CarrierReply
    detail: Annotated[
        dict[str, Any], describe("The same as `error`, if it has a `reason` of Heliograph's own.", maybe=True)
    ]
    explanation: Explanation


class DelayFields(msgspec.Struct, frozen=True, kw_only=True):
    delay: Annotated[DelayData, describe("Since when the email is delayed, and what happens next.")]
    explanation: Explanation


class HeldEmailFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of an email's `held` event that other channels do not have."""

    to_addresses: Annotated[list[str], describe("The whole To list.", maybe=True)]
    cc: Annotated[Cc, MAYBE_ABSENT]
    bcc: Annotated[Bcc, MAYBE_ABSENT]
    reply_to: Annotated[ReplyTo, MAYBE_ABSENT]
    from_: Annotated[str, describe("The sender's bare address.", maybe=True)] = msgspec.field(name="from")
    subject: Annotated[Subject, MAYBE_ABSENT]
    recipient_count: Annotated[RecipientCount, MAYBE_ABSENT]
    attachments_count: Annotated[AttachmentsCount, MAYBE_ABSENT]
    reply_to_addresses: ReplyToView
    headers: HeadersView


class HeldFields(msgspec.Struct, frozen=True, kw_only=True):
    channel: ChannelName
    approval_id: Annotated[
        str, describe("The approval to decide on, by a person or by a platform key.", example=EXAMPLE_APPROVAL)
    ]
    held: Annotated[HeldView, describe("Why and until when the message waits.")]


class VerificationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Optional fields that the caller set."""

    tags: TagsView
    metadata: MetadataView
    locale: LocaleView


MESSAGE = {
    "email": (EmailSummary, VersionFields, RecipientChange),
    "sms": (PhoneSummary, VersionFields, RecipientChange),
    "whatsapp": (PhoneSummary, VersionFields, RecipientChange),
}
FIELDS_BY_STATE = {"bounced": (BounceFields,), "complained": (ComplaintFields,), "failed": (FailureFields,)}
VERIFICATION = (VerificationEventData, VerificationOptions)

# event type → structs that together have the fields of its `data`
STRUCTS_BY_TYPE: dict[str, tuple[Any, ...]] = {
    **{
        f"{channel}.{state}": (*MESSAGE[channel], *FIELDS_BY_STATE.get(state, ()))
        for channel, states in STATES_BY_CHANNEL.items()
        for state in states
    },
    DELAYED: (*MESSAGE["email"], DelayFields),
    "email.received": (ReceivedRecord,),
    "sms.received": (InboundTextData,),
    "whatsapp.received": (InboundTextData,),
    "verification.verified": VERIFICATION,
    "verification.failed": VERIFICATION,
    "verification.exhausted": VERIFICATION,
    "suppression.created": (SuppressionEventData,),
    "suppression.deleted": (SuppressionEventData,),
    "opt_out.created": (OptOutEventData,),
    "opt_out.deleted": (OptOutEventData,),
    "recipient.unsubscribed": (UnsubscribeEventData,),
    "recipient.resubscribed": (UnsubscribeEventData,),
    "domain.verified": (DomainEventData,),
    "domain.failed": (DomainEventData,),
    "template.status_changed": (TemplateStatusData,),
    "credit.low": (CreditLowData,),
    BATCH_DONE: (BatchRecord,),
    HELD: (HeldEmailFields, PhoneSummary, VersionFields, HeldFields),
    TEST: (WebhookTestData,),
}


@cache
def event_components() -> dict[str, Schema]:
    """Return the OpenAPI components of all events: the event, its `data`, and the structs in both."""
    structs = {struct for name in EVENT_TYPES for struct in STRUCTS_BY_TYPE[name]}
    components = make_schemas({PublishedEvent, *structs}, is_response=True)
    envelope = components.pop(PublishedEvent.__name__)
    parts = {struct: components.pop(struct.__name__) for struct in structs}
    for name in EVENT_TYPES:
        data = _merge([parts[struct] for struct in STRUCTS_BY_TYPE[name]])
        if RecipientChange in STRUCTS_BY_TYPE[name] and name != DELAYED:
            state = name.partition(".")[2]
            data["properties"]["status"] = {"description": "The recipient's new state.", "const": state}
        components[_data_name(name)] = {"title": _data_name(name), **data}
        components[event_schema_name(name)] = {
            **envelope,
            "title": event_schema_name(name),
            "properties": envelope["properties"]
            | {
                "type": {"description": "Type of the event.", "const": name},
                "data": {"description": "What changed.", **schema_ref(_data_name(name))},
            },
        }
    return components


def event_schema_name(type_: str) -> str:
    """Return the name of an event type's OpenAPI component, such as EmailBouncedEvent."""
    return f"{_camel_case(type_)}Event"


@cache
def event_schema() -> Schema:
    """Return the JSON Schema of all events. `$defs` has one schema per event type, without references to components."""
    components = event_components()
    return {
        "$schema": DIALECT,
        "title": "Heliograph event",
        "description": "The body of a webhook in the format `heliograph`, and an item of `GET /v1/events`.",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in EVENT_TYPES],
        "$defs": {name: inline_refs(components[event_schema_name(name)], components) for name in EVENT_TYPES},
    }


class EventSchema(msgspec.Struct, frozen=True, kw_only=True):
    schema: Annotated[str, describe("The JSON Schema dialect.", example=DIALECT)] = msgspec.field(name="$schema")
    title: Annotated[str, describe("Name of the schema.", example="Heliograph event")]
    description: Annotated[str, describe("What the schema describes.")]
    one_of: Annotated[
        list[dict[str, str]],
        describe("A reference to the schema of each event type.", example=[]),
    ] = msgspec.field(name="oneOf")
    defs: Annotated[dict[str, Any], describe("Schemas of the events, by event type.", example={})] = msgspec.field(
        name="$defs"
    )


async def read_schema(_: Call) -> Response:
    return json_response(event_schema())


def _data_name(type_: str) -> str:
    return f"{_camel_case(type_)}Data"


def _camel_case(type_: str) -> str:
    return "".join(map(str.capitalize, type_.replace(".", "_").split("_")))


def _merge(schemas: list[Schema]) -> Schema:
    """Merge object schemas into one; if several have the same field, the last one is used."""
    properties = {name: field for schema in schemas for name, field in schema["properties"].items()}
    required = {name for schema in schemas for name in schema["required"]}
    return {"type": "object", "properties": properties, "required": [name for name in properties if name in required]}
