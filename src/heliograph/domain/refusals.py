"""API errors: one exception class per error code.

The class name in snake case is the code, the docstring its meaning, and `fix` what the caller can do about it.
`web/status.py` assigns the HTTP statuses.
"""

import re
from typing import Any, ClassVar, Self


class Refusal(Exception):
    """Base class of all errors that reject a request; a rejected request has written nothing."""

    code: ClassVar[str] = ""
    fix: ClassVar[str] = ""

    def __init__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        self.message = message or f"{self.meaning()} {self.fix}".strip()
        self.param = param
        self.details = details
        self.retry_after = retry_after  # whole seconds
        super().__init__(self.message)

    def __init_subclass__(cls) -> None:
        cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def for_batch_message(self, index: int) -> Self:
        """Return this error as reported for message `index` of a batch."""
        return type(self)(
            self.message,
            param=".".join(filter(None, (f"messages[{index}]", self.param))),
            details={**(self.details or {}), "index": index},
            retry_after=self.retry_after,
        )

    @classmethod
    def meaning(cls) -> str:
        return " ".join((cls.__doc__ or "").split())


# -- authentication and authorization ----------------------------------------------------------------------


class MissingApiKey(Refusal):
    """The request has no `Authorization: Bearer …` header."""

    fix = "Send your key as 'Authorization: Bearer hk_…'."


class InvalidApiKey(Refusal):
    """The API key is malformed, unknown, revoked or expired."""

    fix = "Check that the complete token was copied, or create a new key."


class WrongCell(Refusal):
    """The key or the host name belongs to another cell than the process that received the request."""

    fix = "Send the request to the address of its cell, or ask the operator to correct the proxy before the cells."

    @classmethod
    def for_key(cls, cell: str, own_cell: str) -> Self:
        """Return the error for a key of `cell` that was sent to `own_cell`."""
        return cls(f"This key belongs to {cell}, and this is {own_cell}. {cls.fix}", details={"cell": cell})


class InvalidSignature(Refusal):
    """The signature of an email provider's callback is missing or invalid."""

    fix = "Sign the callback with the secret, key or topic from the carrier's configuration."


class CallbackNotVerified(Refusal):
    """The signature of a phone carrier's callback is missing or invalid, or the callback is too old."""

    fix = "Sign the callback again with the secret from the carrier's configuration."


class TeamSuspended(Refusal):
    """The team is suspended."""

    fix = "Ask the operator of this service to lift the suspension."


class InsufficientScope(Refusal):
    """The key lacks a scope that this endpoint needs, or a key of a live team requests the test inbox."""

    fix = "Use a key with the scope named in the message; for the test inbox, a key of a sandbox team."


class RestrictedKeyRequired(Refusal):
    """The MCP endpoint is only for keys that are restricted by recipients, templates, `per_day` or approval."""

    fix = "Create a key with one of these restrictions for the agent."


class ChannelNotPermitted(Refusal):
    """The key is restricted to other channels, or its messages need approval and the request is for a code."""

    fix = "Use a permitted channel, or ask an owner of the team for a key that permits this one."


class RateLimitExceeded(Refusal):
    """The key has exceeded its rate limit."""

    fix = "Wait the number of seconds in Retry-After, then retry."


# -- request format ----------------------------------------------------------------------------------------


class NotFound(Refusal):
    """There is no endpoint with this path."""

    fix = "Compare the path with GET /openapi.json."


class MethodNotAllowed(Refusal):
    """The endpoint exists, but does not support this method."""

    fix = "Use one of the methods in the Allow header."


class PayloadTooLarge(Refusal):
    """The body is too large: the limit is 40 MiB for emails and batches, 2 MiB for templates, 64 KiB elsewhere."""

    fix = "Send a smaller body, for example with a link instead of an attachment."


class UnsupportedMediaType(Refusal):
    """The body is not `application/json`, or it has a `Content-Encoding`."""

    fix = "Send plain JSON with 'Content-Type: application/json'."


class InvalidJson(Refusal):
    """The body is not valid JSON."""

    fix = "Send UTF-8 JSON without NaN, duplicate keys, lone surrogates or more than 32 levels of nesting."


class InvalidRequest(Refusal):
    """A field is missing, unknown or invalid; `param` names the field."""

    fix = "Correct this field."


class InvalidIdempotencyKey(Refusal):
    """The `Idempotency-Key` is empty, over 255 characters, not printable ASCII, or was sent twice."""

    fix = "Send one key of 1 to 255 printable ASCII characters, for example a UUID."


class IdempotencyKeyReused(Refusal):
    """The `Idempotency-Key` was used with a different body."""

    fix = "Use a new key for each new request."


class IdempotencyRequestInProgress(Refusal):
    """An earlier request with this `Idempotency-Key` is still running."""

    fix = "Wait one second, then send the same request again."


# -- email -------------------------------------------------------------------------------------------------


class InvalidEmail(Refusal):
    """A recipient or reply-to address is invalid, or there are no or too many such addresses."""

    fix = "Send addresses without display names, such as 'ada@example.com'."


class MissingBody(Refusal):
    """An email without a template has no subject, a blank subject, or neither html nor text."""

    fix = "Send 'subject' and at least one of 'html' and 'text', or a 'template_id'."


class MixedSendMode(Refusal):
    """The request has both `template_id` and subject, html or text."""

    fix = "Send either template_id, or subject with html or text."


class TooManyRecipients(Refusal):
    """There are more than 50 recipients in to, cc and bcc together."""

    fix = "Split the recipients over several requests."


class SubjectTooLong(Refusal):
    """The subject is longer than 200 characters."""

    fix = "Shorten the subject."


class InvalidSubject(Refusal):
    """The subject contains a control character or a line break."""

    fix = "Send the subject as one line of text."


class InvalidTags(Refusal):
    """`tags` has more than 10 entries, or an invalid name or value."""

    fix = "Send at most 10 tags: names of up to 64 characters (A-Z, a-z, 0-9, _ and -), values of 1 to 256 characters."


class InvalidMetadata(Refusal):
    """`metadata` is larger than 4 KiB of compact JSON."""

    fix = "Store the data in your own system and send its id as metadata."


class InvalidSchedule(Refusal):
    """`scheduled_at` or `expires_at` is malformed, more than 60 days ahead, in the past, or in the wrong order."""

    fix = "Send a time with an offset such as 2026-11-15T09:30:00Z, at most 60 days ahead, and expires_at after it."


class AlreadySending(Refusal):
    """The message is being sent or has reached a final state, so it can be neither rescheduled nor canceled."""

    fix = "Check the status of the message. A message that was sent cannot be recalled."


class InvalidHeader(Refusal):
    """`headers` has a disallowed or duplicate name, a control character, too many entries or too much text."""

    fix = (
        "Send at most 25 headers, 8 KiB together. Allowed: X-…, List-Unsubscribe, List-Unsubscribe-Post, List-Id, "
        "In-Reply-To, References, Auto-Submitted, Feedback-ID, Importance, Priority."
    )


class TooManyAttachments(Refusal):
    """There are more than 20 attachments."""

    fix = "Send fewer files, or combine them into one archive."


class InvalidAttachment(Refusal):
    """An attachment lacks a required field, has invalid base64 content, or has a malformed or duplicate content_id."""

    fix = (
        "Send filename, content (padded RFC 4648 base64 without whitespace) and content_type. Each content_id must be "
        "unique, of up to 128 characters: A-Z, a-z, 0-9, '.', '_', '@' and '-'."
    )


class UnsupportedAttachmentType(Refusal):
    """The content type of an attachment is not allowed."""

    fix = (
        "Use one of the types in the documentation, for example application/pdf, or ask an operator to allow this type "
        "(setting attachment_types of the team or the platform)."
    )


class AttachmentTooLarge(Refusal):
    """An attachment is larger than 10 MiB after decoding."""

    fix = "Send a smaller file or a link."


class AttachmentsTooLarge(Refusal):
    """The attachments of the send are larger than 25 MiB together."""

    fix = "Send fewer or smaller files."


class DirectSendsPaused(Refusal):
    """Emails without a template are paused for the team, because too many of its emails bounced or got complaints."""

    fix = "Clean up your recipient list, then ask the operator to resume. Emails with a template_id are still sent."


class InvalidFromAddress(Refusal):
    """`from` is missing or is not a valid bare address or name-addr."""

    fix = "Send 'you@your-domain' or 'Name <you@your-domain>'."


class SandboxFromLocked(Refusal):
    """A sandbox team can send from the platform sender only."""

    fix = "Omit 'from', or ask the operator for live mode."


class NoApprovedBrandDomain(Refusal):
    """The live team has no domain that is both verified and approved."""

    fix = "Add a domain, publish its DNS records and wait until an operator approves the domain."


class FromDomainUnverified(Refusal):
    """`from` is not on a verified and approved domain of the team."""

    fix = "Send from a verified and approved domain, or get this domain verified and approved."


class KeyDomainScope(Refusal):
    """The key is restricted to another domain."""

    fix = "Send from the key's domain, or use another key."


class SenderNotPermitted(Refusal):
    """The key is restricted to other sender addresses."""

    fix = "Send from a permitted address, or ask an owner of the team for a key that permits this one."


class DisplayNameIdNotFound(Refusal):
    """`from_display_id` matches no display name of the team."""

    fix = "Check the id; it begins with dn_."


class DisplayNameIdWrongDomain(Refusal):
    """The display name belongs to a different domain than `from`."""

    fix = "Use a display name of the sending domain."


class DisplayNameIdNotApproved(Refusal):
    """The display name exists but is not approved yet."""

    fix = "Wait for approval, or omit from_display_id."


class DisplayNameNotApproved(Refusal):
    """The display name is neither the brand name nor an approved display name."""

    fix = "Use an approved name, or send the address without a name to use the brand name."


class RecipientNotPermitted(Refusal):
    """The key is restricted to other recipients."""

    fix = "Send to permitted recipients, or ask an owner of the team for a key that permits these."


class RecipientNotAllowed(Refusal):
    """A sandbox team can send only to recipients that are verified for the team."""

    fix = "Verify the recipient, use a magic recipient, or ask the operator for live mode."


class RecipientSuppressed(Refusal):
    """A To or Cc recipient is on the suppression list."""

    fix = "Remove the recipient, or delete the suppression if the address works again."


class RecipientOptedOut(Refusal):
    """The recipient has opted out of the team's messages on this channel."""

    fix = "Stop sending until the recipient replies START. Delete the opt-out only if the recipient asks for that."


class RecipientUnsubscribed(Refusal):
    """The recipient has unsubscribed from this category of the team's emails."""

    fix = "Stop sending this category to the recipient. Delete the unsubscribe only if the recipient asks for that."


# -- templates ---------------------------------------------------------------------------------------------


class TemplateIdRequired(Refusal):
    """`template_id` is missing."""

    fix = "Send the tpl_ id of a template of this channel."


class TemplateNotFound(Refusal):
    """The team has no approved template with this id."""

    fix = "Check the template's id, which begins with tpl_, and its status."


class LayoutNotFound(Refusal):
    """The team has no layout with this id."""

    fix = "Check the id; it begins with lay_."


class InvalidTemplate(Refusal):
    """The template or layout has errors, or exceeds the team's quota; `details.problems` lists the problems."""

    fix = "Fix these problems, then save again."


class TemplateNotPermitted(Refusal):
    """The key is restricted to other templates, or to templates and the email uses no template."""

    fix = "Use a permitted template, or ask an owner of the team for a key that permits this one."


class WrongTemplateChannel(Refusal):
    """The template belongs to another channel."""

    fix = "Use a template of this channel."


class TemplateUnavailable(Refusal):
    """Meta has rejected, paused or disabled the WhatsApp template."""

    fix = "Correct the template in WhatsApp Manager, or use another template. It works again once Meta approves it."


class MissingVariable(Refusal):
    """A variable that the template requires is missing; `details.variables` lists all missing variables."""

    fix = "Send a value for each missing variable."


class UnknownVariable(Refusal):
    """The request has a variable that the template does not declare; `details.variables` lists all of them."""

    fix = "Remove the undeclared variables."


class ListTooLong(Refusal):
    """A list variable has more items than the template allows."""

    fix = "Send fewer items, or raise the variable's max in the template."


class InvalidVariable(Refusal):
    """A value is too long, or has the wrong type for its format; `details.variables` lists the variables."""

    fix = "Shorten the value, or send a number, date or time where the template formats one."


# -- phones ------------------------------------------------------------------------------------------------


class InvalidPhone(Refusal):
    """`to` is not a phone number in E.164 format."""

    fix = "Send '+', country code and number without spaces, for example '+14155550123'."


class BrandDomainNotFound(Refusal):
    """`brand_domain_id` is not an approved verified domain of the team."""

    fix = "Check the id; it begins with dom_."


class BodyTooLong(Refusal):
    """The content is too long: SMS above 1,600 characters, html and text 5 MiB, batch 64 MiB, variables 256 KiB."""

    fix = "Shorten the text, the template or the variables."


class NoCarrierAvailable(Refusal):
    """No enabled carrier serves the destination."""

    fix = "Retry later, or ask the operator for a carrier that serves this country."


class MarketingLimitReached(Refusal):
    """The recipient has received the maximum number of MARKETING messages for the day."""

    fix = "Wait the number of seconds in Retry-After, then retry."


class SandboxLimitReached(Refusal):
    """The sandbox team has reached its daily limit of messages and codes sent through real carriers."""

    fix = "Wait the number of seconds in Retry-After, send to magic recipients, or ask the operator for live mode."


class StorageLimitReached(Refusal):
    """The team has reached its daily storage limit for message texts and attachments."""

    fix = "Wait the number of seconds in Retry-After, or ask an operator to raise the limit (octets_per_day)."


# -- billing -----------------------------------------------------------------------------------------------


class KeyLimitReached(Refusal):
    """The key has reached its limit of recipients per hour or day, or of spend per day."""

    fix = "Wait the number of seconds in Retry-After, or ask an owner of the team for a key with a higher limit."


class InsufficientCredit(Refusal):
    """The credit balance does not cover the price."""

    fix = "Add credit to the team."


# -- verify ------------------------------------------------------------------------------------------------


class UnsupportedChannel(Refusal):
    """The team cannot use this channel for Verify: `sms` is always enabled, others only by an operator."""

    fix = "Omit 'channel' or send 'sms', or ask the operator to add the channel to the team's verify.channels."


class FeatureNotOnPlan(Refusal):
    """Verify is not enabled for the team."""

    fix = "Ask the operator to enable the feature 'verify' for the team."


class VerifyRateLimited(Refusal):
    """Too many verifications for this phone number, number range or country, or the country is not allowed."""

    fix = "Wait the number of seconds in Retry-After, then retry."


class InvalidCodeFormat(Refusal):
    """`code` is not a string of 4 to 10 characters. The request does not count as an attempt."""

    fix = "Send the code as a string, exactly as the user entered it."


class VerificationNotFound(Refusal):
    """The team has no verification with this id."""

    fix = "Check the id; it begins with vrf_ and is in the response of POST /v1/verify."


class VerificationEnded(Refusal):
    """The verification is no longer pending, so its code cannot be sent again."""

    fix = "Start a new verification with POST /v1/verify."


# -- reading and managing ----------------------------------------------------------------------------------


class MessageNotFound(Refusal):
    """The team has no message with this id."""

    fix = "Check the id and the channel in the path."


class BatchNotFound(Refusal):
    """The team has no batch with this id."""

    fix = "Check the id; it begins with bat_."


class ReceivedNotFound(Refusal):
    """The team has no inbound message with this id, or its retention period has ended."""

    fix = "Check the id; it begins with rcv_."


class SuppressionNotFound(Refusal):
    """The address is not on the team's suppression list."""

    fix = "Check the address; the suppression may have been deleted already."


class OptOutNotFound(Refusal):
    """The phone number is not on the team's opt-out list."""

    fix = "Check the number and the channel; the opt-out may have been deleted already."


class UnsubscribeNotFound(Refusal):
    """The address has not unsubscribed from the category."""

    fix = "Check the address and the category; the unsubscribe may have been deleted already."


class TestClockNotFound(Refusal):
    """The team has no test clock, because the team is live or the test clock is off."""

    fix = "Turn on the test clock in the settings of a sandbox team, or with test_clock = true in the setup file."


class WebhookNotFound(Refusal):
    """The team has no webhook with this id."""

    fix = "Check the id; it begins with whk_."


class TeamNotFound(Refusal):
    """There is no team with this id."""

    fix = "Check the id; it begins with team_. GET /v1/teams lists all teams."


class ApprovalNotFound(Refusal):
    """There is no approval with this id."""

    fix = "Check the id; it begins with apr_. GET /v1/approvals lists all approvals."


class AlreadyDecided(Refusal):
    """The message was already released or rejected, or its approval has expired or was canceled."""

    fix = "GET /v1/approvals shows the status of the approval. Nothing was changed."


# -- server errors -----------------------------------------------------------------------------------------


class InternalError(Refusal):
    """An internal error occurred, and the request was not processed."""

    fix = "Retry. If the error persists, give the request id to the operator."


class ServiceUnavailable(Refusal):
    """The service is temporarily unavailable."""

    fix = "Wait the number of seconds in Retry-After, then retry."


# Errors of a request whose key does not belong to a caller.
UNKNOWN_KEY = (InvalidApiKey, WrongCell)

# Errors of a key's restrictions, except its limits.
NOT_PERMITTED = (ChannelNotPermitted, SenderNotPermitted, TemplateNotPermitted, RecipientNotPermitted)

# Errors that a process may raise only because it has not loaded another process's setup change yet.
SETUP_DEPENDENT_REFUSALS = (
    InvalidApiKey,
    TeamSuspended,
    InsufficientScope,
    ChannelNotPermitted,
    NotFound,
    TestClockNotFound,
    SandboxFromLocked,
    NoApprovedBrandDomain,
    FromDomainUnverified,
    KeyDomainScope,
    SenderNotPermitted,
    DisplayNameIdNotFound,
    DisplayNameIdWrongDomain,
    DisplayNameIdNotApproved,
    DisplayNameNotApproved,
    RecipientNotPermitted,
    RecipientNotAllowed,
    TemplateNotFound,
    TemplateNotPermitted,
    WrongTemplateChannel,
    MissingVariable,
    UnknownVariable,
    ListTooLong,
    InvalidVariable,
    BrandDomainNotFound,
    NoCarrierAvailable,
    KeyLimitReached,
    UnsupportedChannel,
    FeatureNotOnPlan,
    WebhookNotFound,
    TeamNotFound,
)


def all_refusals() -> list[type[Refusal]]:
    """Return all error classes, in the order of this module."""
    return list(Refusal.__subclasses__())
