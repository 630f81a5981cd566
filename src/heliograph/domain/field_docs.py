"""What the fields of requests and answers mean, and their limits, as the OpenAPI document says them.

The limits are documentation alone (`extra_json_schema`): the rules check them, and answer with codes of their own.
"""

from typing import Annotated, Any, TypeVar

import msgspec

from heliograph.domain.delivery.message_states import STATES
from heliograph.domain.events import NAMES
from heliograph.domain.ids import id_pattern
from heliograph.domain.limits import DOMAIN_MAX, LOCAL_PART_MAX, RECIPIENTS_MAX
from heliograph.domain.verify.verification import VERIFICATION_STATES

Schema = dict[str, Any]

ULID = "01JCQ8Z6V3M2N7T0K4H9R5B1XA"  # of the ids in examples
REF = "#/components/schemas/"
EMAIL: Schema = {"format": "idn-email", "maxLength": LOCAL_PART_MAX + 1 + DOMAIN_MAX}
PHONE: Schema = {"pattern": r"^\+[1-9][0-9]{6,14}$", "examples": ["+15005550006"]}
TIME: Schema = {"format": "date-time"}
MONEY: Schema = {"pattern": r"^-?[0-9]+\.[0-9]{4,6}$"}
CONTROL = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # bidi controls too
DOMAIN_NAME = r"([A-Za-z0-9](-?[A-Za-z0-9]){0,30}\.)+[A-Za-z]{2,20}"


def limited(**schema: Any) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema=schema)


def says(meaning: str, **schema: Any) -> msgspec.Meta:
    """Describe a field. `fixed=True`: it is always the default. `needed=True`: its absence is refused with a code of
    its own.

    `maybe=True`: only some records have it. `example` is what the documentation shows; without it that is null, the
    first word of several, or nothing.
    """
    return msgspec.Meta(description=meaning, extra_json_schema=schema)


def such_as(example: Any) -> msgspec.Meta:
    """Give the example of a field whose meaning others share."""
    return limited(example=example)


EmailAddress = Annotated[str, limited(**EMAIL)]
Addresses = Annotated[list[EmailAddress], limited(maxItems=RECIPIENTS_MAX)]
TemplateId = Annotated[str, limited(pattern=id_pattern("template"))]
DomainId = Annotated[str, limited(pattern=id_pattern("domain"))]
EventName = Annotated[str, limited(enum=list(NAMES))]
EventNames = Annotated[list[EventName], limited(minItems=1)]
T = TypeVar("T")

# Fields that several requests or answers have.
Id = Annotated[str, says("Public id.")]
ObjectName = Annotated[str, says("The kind of this object.", fixed=True)]
HasMore = Annotated[bool, says("`true` when there is a next page: get it with `after` = the last id of this one.")]
Records = Annotated[list[T], says("The records of this page.")]
Deleted = Annotated[bool, says("Always `true`.", fixed=True)]
CreatedAt = Annotated[
    str, says("When it was made, ISO 8601 in UTC with milliseconds.", example="2026-11-15T09:30:00.000Z", **TIME)
]
Sandbox = Annotated[bool, says("`true` for a sandbox team.")]
Simulated = Annotated[
    bool, says("`true`: a simulator took it, so nobody received it, whatever its state says.", example=True)
]
Detail = Annotated[msgspec.Raw | None, says("What the carrier or the report said: any JSON, or null.")]
Variables = Annotated[
    dict[str, Any] | None,
    says("Values of the template's `customer.*` variables, by name.", **{"$ref": f"{REF}Variables"}),
]
LOCALE: Schema = {"pattern": r"^[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*$", "examples": ["de-AT"]}
Locale = Annotated[
    str | None,
    says("Language tag (BCP 47): the nearest language that the template has, `de-AT`, `de`, then its own.", **LOCALE),
]
Phone = Annotated[str | None, says("Phone in E.164 form, for example `+14155550123`.", needed=True, **PHONE)]
To = Annotated[
    str,
    says(
        "The recipient: for email the first To address, else a phone in E.164 form.", example="delivered@simulator.test"
    ),
]
Cc = Annotated[list[str], says("Cc recipients; empty when none.")]
Bcc = Annotated[list[str], says("Bcc recipients without suppressed ones; empty when none.")]
ReplyTo = Annotated[str | None, says("Reply-To address.")]
Subject = Annotated[str, says("Subject as delivered.", example="Hello")]
Html = Annotated[str | None, says("HTML body.")]
Text = Annotated[str | None, says("Plain-text body.")]
RecipientCount = Annotated[
    int, says("Recipients in To, Cc and Bcc, without suppressed ones in Bcc: what the quota counts.", example=1)
]
AttachmentsCount = Annotated[int, says("Number of attachments.")]
DryRun = Annotated[bool, says("Always `true`: nothing was sent or written.", fixed=True)]
Country = Annotated[
    str | None, says("ISO code of the phone's country; null when no country has the prefix.", example="US")
]
Price = Annotated[str, says("What it would cost now, in the team's currency.", **MONEY)]
ChannelName = Annotated[str, says("The channel.", enum=list(STATES))]
VerificationStatus = Annotated[str, says("The state of the verification.", enum=list(VERIFICATION_STATES))]
BODY = says("The rendered text.")
ENCODING = says("How the SMS is encoded; null for other channels.", enum=["gsm7", "ucs2"])
SEGMENTS = says("Billed segments of the SMS; null for other channels.")
VERSION = says("The version that was rendered; null without a template.")
LAYOUT_VERSION = says("The version of the layout around it; null without one.")
LANGUAGE = says("The language that it is written in, as a tag such as `de-AT`; null without a template.")
