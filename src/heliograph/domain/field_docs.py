"""Descriptions and limits of request and response fields, for the OpenAPI document.

The limits are only documentation (`extra_json_schema`): other modules check them and raise errors with specific codes.
"""

from typing import Annotated, Any, TypeVar

import msgspec

from heliograph.domain.delivery.message_states import STATES_BY_CHANNEL
from heliograph.domain.ids import id_pattern
from heliograph.domain.limits import DOMAIN_MAX, LOCAL_PART_MAX, RECIPIENTS_MAX
from heliograph.domain.verify.verification import VERIFICATION_STATES

Schema = dict[str, Any]

EXAMPLE_ULID = "01JCQ8Z6V3M2N7T0K4H9R5B1XA"  # ULID used in example ids
SCHEMA_REF_PREFIX = "#/components/schemas/"
EMAIL: Schema = {"format": "idn-email", "maxLength": LOCAL_PART_MAX + 1 + DOMAIN_MAX}
PHONE: Schema = {"pattern": r"^\+[1-9][0-9]{6,14}$", "examples": ["+15005550006"]}
TIME: Schema = {"format": "date-time"}
MONEY: Schema = {"pattern": r"^-?[0-9]+\.[0-9]{4,6}$"}
# Control characters, including bidi controls.
CONTROL_CHARACTERS = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
DOMAIN_NAME = r"([A-Za-z0-9](-?[A-Za-z0-9]){0,30}\.)+[A-Za-z]{2,20}"


def schema_limits(**schema: Any) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema=schema)


def describe(meaning: str, **schema: Any) -> msgspec.Meta:
    """Return field metadata with a description and JSON schema keywords.

    `fixed=True`: the field always has its default value. `needed=True`: a request without the field is rejected with a
    specific error code. `maybe=True`: only some records have the field. `example`: the value shown in the
    documentation. Without it, the documentation shows null if the field may be null, else the first of its allowed
    values, else no example.
    """
    return msgspec.Meta(description=meaning, extra_json_schema=schema)


def with_example(example: Any) -> msgspec.Meta:
    """Return field metadata with only an example, for fields that share a type with a description."""
    return schema_limits(example=example)


EmailAddress = Annotated[str, schema_limits(**EMAIL)]
Addresses = Annotated[list[EmailAddress], schema_limits(maxItems=RECIPIENTS_MAX)]
TemplateId = Annotated[str, schema_limits(pattern=id_pattern("template"))]
DomainId = Annotated[str, schema_limits(pattern=id_pattern("domain"))]
T = TypeVar("T")

# Fields used by several requests or responses.
Id = Annotated[str, describe("Public id.")]
ObjectName = Annotated[str, describe("Type of this object.", fixed=True)]
HasMore = Annotated[
    bool, describe("Whether there is a next page, to request with `after` set to the last id of this page.")
]
Records = Annotated[list[T], describe("The records of this page.")]
Deleted = Annotated[bool, describe("Always `true`.", fixed=True)]
CreatedAt = Annotated[
    str, describe("Creation time, ISO 8601 in UTC with milliseconds.", example="2026-11-15T09:30:00.000Z", **TIME)
]
Sandbox = Annotated[bool, describe("`true` for a sandbox team.")]
Simulated = Annotated[
    bool, describe("`true` if a simulator handled the message: nobody received it, whatever the status.", example=True)
]
Detail = Annotated[msgspec.Raw | None, describe("Response of the carrier or content of the report: any JSON, or null.")]
Variables = Annotated[
    dict[str, Any] | None,
    describe("Values of the template's `customer.*` variables, by name.", **{"$ref": f"{SCHEMA_REF_PREFIX}Variables"}),
]
LOCALE: Schema = {"pattern": r"^[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*$", "examples": ["de-AT"]}
Locale = Annotated[
    str | None,
    describe("Language tag (BCP 47), such as `de-AT`. Falls back to `de`, then to the template's default.", **LOCALE),
]
Phone = Annotated[
    str | None, describe("Phone number in E.164 format, for example `+14155550123`.", needed=True, **PHONE)
]
To = Annotated[
    str,
    describe(
        "Recipient: for email the first To address, otherwise a phone number in E.164 format.",
        example="delivered@simulator.test",
    ),
]
Cc = Annotated[list[str], describe("Cc recipients; empty if there are none.")]
Bcc = Annotated[list[str], describe("Bcc recipients, without suppressed ones; empty if there are none.")]
ReplyTo = Annotated[str | None, describe("Reply-To address.")]
Subject = Annotated[str, describe("Rendered subject.", example="Hello")]
Html = Annotated[str | None, describe("HTML body.")]
Text = Annotated[str | None, describe("Plain-text body.")]
RecipientCount = Annotated[
    int,
    describe("Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota.", example=1),
]
AttachmentsCount = Annotated[int, describe("Number of attachments.")]
DryRun = Annotated[bool, describe("Always `true`: nothing was sent or written.", fixed=True)]
Country = Annotated[
    str | None, describe("ISO code of the phone number's country; null if no country uses the prefix.", example="US")
]
Price = Annotated[str, describe("Price if sent now, in the team's currency.", **MONEY)]
ChannelName = Annotated[str, describe("Channel.", enum=list(STATES_BY_CHANNEL))]
VerificationStatus = Annotated[str, describe("Status of the verification.", enum=list(VERIFICATION_STATES))]
BODY_DOC = describe("Rendered text.")
ENCODING_DOC = describe("Encoding of the SMS; null for other channels.", enum=["gsm7", "ucs2"])
SEGMENTS_DOC = describe("Number of billed segments of the SMS; null for other channels.")
VERSION_DOC = describe("Version of the rendered template; null without a template.")
LAYOUT_VERSION_DOC = describe("Version of the layout used; null without a layout.")
LANGUAGE_DOC = describe("Language of the rendered content, as a tag such as `de-AT`; null without a template.")
