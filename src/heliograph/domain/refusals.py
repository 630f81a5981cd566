"""The error tree: one class for each code that a rule can say no with.

The class name is the code, the docstring its meaning, `fix` what the caller can do. Which HTTP status a
code has is known by `web/status.py` alone.
"""

import re
from typing import Any, ClassVar, Self


class Refusal(Exception):
    """A rule said no; nothing was written."""

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

    def within(self, index: int) -> Self:
        """Return the refusal as a batch says it of one of its messages."""
        return type(self)(
            self.message,
            param=".".join(filter(None, (f"messages[{index}]", self.param))),
            details={**(self.details or {}), "index": index},
            retry_after=self.retry_after,
        )

    @classmethod
    def meaning(cls) -> str:
        return " ".join((cls.__doc__ or "").split())


# -- who is asking -----------------------------------------------------------------------------------------


class MissingApiKey(Refusal):
    """The request has no `Authorization: Bearer …` header."""

    fix = "Send your key as 'Authorization: Bearer hk_…'."


class InvalidApiKey(Refusal):
    """The API key is malformed, unknown, revoked or expired."""

    fix = "Check that the whole token was copied, or make a new key."


class InvalidSignature(Refusal):
    """A mail provider's callback has no signature, or one that does not hold."""

    fix = "Sign it with the secret, key or topic that the carrier is set up with."


class CallbackNotVerified(Refusal):
    """A phone carrier's callback is not signed with the carrier's secret, or is too old."""

    fix = "Sign it anew with the secret that the carrier is set up with."


class TeamSuspended(Refusal):
    """The team is suspended."""

    fix = "Ask the operator of this service to lift the suspension."


class InsufficientScope(Refusal):
    """The key lacks the scope that this endpoint needs, or its team is live and asks for the test inbox."""

    fix = "Use a key that has the scope named in the message; for the test inbox, one of a sandbox team."


class RateLimitExceeded(Refusal):
    """The key has used up its requests for this moment."""

    fix = "Wait for the seconds in Retry-After, then send again."


# -- the request itself ------------------------------------------------------------------------------------


class NotFound(Refusal):
    """There is no such route."""

    fix = "Compare the path with GET /openapi.json."


class MethodNotAllowed(Refusal):
    """The route exists, but not with this method."""

    fix = "Use one of the methods in the Allow header."


class PayloadTooLarge(Refusal):
    """The body is larger than this endpoint takes: 40 MiB for emails and batches, 64 KiB elsewhere."""

    fix = "Send less, for example a link instead of an attachment."


class UnsupportedMediaType(Refusal):
    """The body is not `application/json`, or it has a `Content-Encoding`."""

    fix = "Send plain JSON with 'Content-Type: application/json'."


class InvalidJson(Refusal):
    """The body is not strict JSON."""

    fix = "Send UTF-8 JSON without NaN, repeated keys, lone surrogates or nesting deeper than 32."


class InvalidRequest(Refusal):
    """A field has the wrong type, is missing, or is not known: `param` names it."""

    fix = "Correct this field."


class InvalidIdempotencyKey(Refusal):
    """The `Idempotency-Key` is empty, over 255 characters, not printable ASCII, or was sent twice."""

    fix = "Send one key of 1 to 255 printable ASCII characters, for example a UUID."


class IdempotencyKeyReused(Refusal):
    """The `Idempotency-Key` was used with a different body."""

    fix = "Use a new key for a new message."


class IdempotencyRequestInProgress(Refusal):
    """An earlier request with this `Idempotency-Key` is still running."""

    fix = "Wait a second and send the same request again."


# -- email -------------------------------------------------------------------------------------------------


class InvalidEmail(Refusal):
    """A recipient or reply-to address is not a valid email address, or there are none or too many of them."""

    fix = "Send bare addresses such as 'ada@example.com'."


class MissingBody(Refusal):
    """A direct send has no subject or a blank one, or has neither html nor text."""

    fix = "Add 'subject' and at least one of 'html' and 'text', or send a 'template_id'."


class MixedSendMode(Refusal):
    """`template_id` came together with subject, html or text."""

    fix = "Send either a template or a subject and body."


class TooManyRecipients(Refusal):
    """There are more than 50 recipients in to, cc or bcc, or in all of them."""

    fix = "Split the send."


class SubjectTooLong(Refusal):
    """The subject is longer than 200 characters."""

    fix = "Shorten the subject."


class InvalidSubject(Refusal):
    """The subject has a control character or a line break."""

    fix = "Send the subject as one line of text."


class InvalidTags(Refusal):
    """`tags` has more than 10 entries, or a name or value that is not allowed."""

    fix = "Send at most 10: names of A-Z, a-z, 0-9, _ and - up to 64, values of 1 to 256 characters."


class InvalidMetadata(Refusal):
    """`metadata` is larger than 4 KiB of compact JSON."""

    fix = "Keep the data yourself, and send its id."


class InvalidSchedule(Refusal):
    """`scheduled_at` or `expires_at` is malformed, more than 60 days ahead, or too late."""

    fix = "Send a time with an offset such as 2026-11-15T09:30:00Z, at most 60 days ahead, and expires_at after it."


class AlreadySending(Refusal):
    """The message is on its way or has ended: it can be neither moved nor canceled."""

    fix = "Read its status; what was sent cannot be called back."


class InvalidHeader(Refusal):
    """`headers` has a name that is not allowed or is given twice, a control character, or too much."""

    fix = "Send at most 25 of X-…, List-…, In-Reply-To, References, Auto-Submitted, Feedback-ID, Importance, Priority."


class TooManyAttachments(Refusal):
    """There are more than 20 attachments."""

    fix = "Send fewer files, or one archive."


class InvalidAttachment(Refusal):
    """An attachment lacks a part, its content is not strict base64, or its content_id is malformed or used twice."""

    fix = (
        "Send filename, content (padded RFC 4648 base64 without white space) and content_type; a content_id is unique "
        "and of A-Z, a-z, 0-9, '.', '_', '@' and '-'."
    )


class UnsupportedAttachmentType(Refusal):
    """The attachment's content type is outside the allowed list."""

    fix = (
        "Use one of the types in the documentation, for example application/pdf, or ask an operator to allow it "
        "(attachment_types of the team or the platform)."
    )


class AttachmentTooLarge(Refusal):
    """An attachment is larger than 10 MiB after decoding."""

    fix = "Send a smaller file or a link."


class AttachmentsTooLarge(Refusal):
    """The attachments of the send are larger than 25 MiB together."""

    fix = "Send fewer or smaller files."


class DirectSendsPaused(Refusal):
    """Direct sends of the team are paused: too many of its emails bounced or were complained about."""

    fix = "Mend the list of recipients, then ask the operator to resume; sends with a template_id go on."


class InvalidFromAddress(Refusal):
    """`from` is missing or is not a valid bare address or name-addr."""

    fix = "Send 'you@your-domain' or 'Name <you@your-domain>'."


class SandboxFromLocked(Refusal):
    """A sandbox team can send from the platform sender only."""

    fix = "Leave 'from' out, or ask for live mode."


class NoApprovedBrandDomain(Refusal):
    """The live team has no approved verified domain."""

    fix = "Add a domain, set its DNS records and have it approved."


class FromDomainUnverified(Refusal):
    """`from` is not on a verified and approved domain of the team."""

    fix = "Send from a verified domain, or verify this one."


class KeyDomainScope(Refusal):
    """The key is pinned to another domain."""

    fix = "Use the pinned domain or another key."


class DisplayNameIdNotFound(Refusal):
    """`from_display_id` matches no display name of the team."""

    fix = "Check the dn_ id."


class DisplayNameIdWrongDomain(Refusal):
    """The display name belongs to another domain than `from`."""

    fix = "Use a display name of the sending domain."


class DisplayNameIdNotApproved(Refusal):
    """The display name exists but is not approved yet."""

    fix = "Wait for the approval, or leave from_display_id out."


class DisplayNameNotApproved(Refusal):
    """The display name is neither an approved alternate nor the brand name."""

    fix = "Use an approved name, or send the bare address to get the brand name."


class RecipientNotAllowed(Refusal):
    """A sandbox team can send to recipients verified on the team only."""

    fix = "Verify the recipient, use a magic recipient, or ask for live mode."


class RecipientSuppressed(Refusal):
    """A To or Cc recipient is on the suppression list."""

    fix = "Remove the recipient, or delete the suppression when the address works again."


class RecipientOptedOut(Refusal):
    """The phone's owner wants no more messages of the team on this channel."""

    fix = "Send it nothing until its owner answers START; delete the opt-out only when they asked you to."


# -- templates ---------------------------------------------------------------------------------------------


class TemplateIdRequired(Refusal):
    """`template_id` is missing."""

    fix = "Send the tpl_ id of a template of this channel."


class TemplateNotFound(Refusal):
    """The team has no approved template with this id."""

    fix = "Check the tpl_ id and the template's status."


class LayoutNotFound(Refusal):
    """The team has no layout with this id."""

    fix = "Check the lay_ id."


class InvalidTemplate(Refusal):
    """The template or layout has errors, or the team no room for it: `details.problems` names each, part and line."""

    fix = "Mend each of them, then save it again."


class WrongTemplateChannel(Refusal):
    """The template is for another channel."""

    fix = "Use a template of this channel."


class TemplateUnavailable(Refusal):
    """Meta has rejected, paused or disabled the WhatsApp template."""

    fix = "Change it in WhatsApp Manager, or send by another template; Meta says when it can be sent again."


class MissingVariable(Refusal):
    """A variable that the template requires is missing: `details.variables` names each."""

    fix = "Send a value for each of them."


class UnknownVariable(Refusal):
    """A passed variable is not declared by the template: `details.variables` names each."""

    fix = "Leave them out."


class ListTooLong(Refusal):
    """A list has more items than the template takes."""

    fix = "Send fewer items, or have the template's `max` raised."


class InvalidVariable(Refusal):
    """A value is longer than the template takes, or its format cannot write it: `details.variables` names each."""

    fix = "Shorten them, or send a number, a date or a time where the template formats one."


# -- phones ------------------------------------------------------------------------------------------------


class InvalidPhone(Refusal):
    """`to` is not a phone number in E.164 form."""

    fix = "Send '+', country code and number without spaces, for example '+14155550123'."


class BrandDomainNotFound(Refusal):
    """`brand_domain_id` is not an approved verified domain of the team."""

    fix = "Check the dom_ id."


class BodyTooLong(Refusal):
    """A rendered SMS has over 1600 characters, html and text over 5 MiB, a batch over 64, or variables over 256 KiB."""

    fix = "Shorten the text, the template or the variables."


class NoCarrierAvailable(Refusal):
    """No enabled carrier serves the destination now."""

    fix = "Try again later, or ask the operator for a carrier that serves this country."


class MarketingLimitReached(Refusal):
    """The recipient has had the day's share of MARKETING messages."""

    fix = "Wait for the seconds in Retry-After."


class SandboxLimitReached(Refusal):
    """The sandbox team has sent the day's share of messages and codes over real carriers."""

    fix = "Wait for the seconds in Retry-After, send to magic recipients, or go live."


class StorageLimitReached(Refusal):
    """The team has stored its day's share of bytes: texts, and attachments."""

    fix = "Wait for the seconds in Retry-After, send less at once, or ask an operator for more (octets_per_day)."


# -- money -------------------------------------------------------------------------------------------------


class InsufficientCredit(Refusal):
    """The credit balance cannot cover the price."""

    fix = "Top up the team's credit."


# -- verify ------------------------------------------------------------------------------------------------


class UnsupportedChannel(Refusal):
    """Verify sends by `sms`, and by `whatsapp` or `email` where the operator opens them for the team."""

    fix = "Leave 'channel' out, send 'sms', or ask the operator to add the channel to the team's verify.channels."


class FeatureNotOnPlan(Refusal):
    """The plan does not include Verify."""

    fix = "Ask the operator to add the feature 'verify' to the team."


class VerifyRateLimited(Refusal):
    """Too many verifications for this phone, prefix or country."""

    fix = "Wait for the seconds in Retry-After."


class InvalidCodeFormat(Refusal):
    """`code` is not a string of 4 to 10 characters; no attempt was consumed."""

    fix = "Send the code as the user typed it, as a string."


class VerificationNotFound(Refusal):
    """The team has no verification with this id."""

    fix = "Check the vrf_ id that POST /v1/verify answered."


class VerificationEnded(Refusal):
    """The verification is not pending any more, so its code cannot be sent again."""

    fix = "Start a new one with POST /v1/verify."


# -- reading and managing ----------------------------------------------------------------------------------


class MessageNotFound(Refusal):
    """The team has no message with this id."""

    fix = "Check the id and the channel in the path."


class BatchNotFound(Refusal):
    """The team has no batch with this id."""

    fix = "Check the id; it begins with bat_."


class ReceivedNotFound(Refusal):
    """The team has received no mail with this id, or no longer keeps it."""

    fix = "Check the id; it begins with rcv_."


class SuppressionNotFound(Refusal):
    """The address is not on the team's suppression list."""

    fix = "Check the address; it may have been removed already."


class OptOutNotFound(Refusal):
    """The phone is not on the team's list of opt-outs."""

    fix = "Check the number and the channel; it may have been removed already."


class TestClockNotFound(Refusal):
    """The team has no test clock: it is live, or the clock is not turned on."""

    fix = "Turn it on in the settings of a sandbox team, or by test_clock = true in its setup file."


class WebhookNotFound(Refusal):
    """The team has no webhook with this id."""

    fix = "Check the whk_ id."


class TeamNotFound(Refusal):
    """There is no team with this id."""

    fix = "Check the team_ id; heliograph team list shows those there are."


# -- us ----------------------------------------------------------------------------------------------------


class InternalError(Refusal):
    """Something broke on our side; the request was not carried out."""

    fix = "Try again; if it stays, give the request id to the operator."


class ServiceUnavailable(Refusal):
    """The service cannot take the request now."""

    fix = "Try again after the seconds in Retry-After."


# What a process may say only because it does not know yet what another one has changed.
OF_SETUP = (
    InvalidApiKey,
    TeamSuspended,
    InsufficientScope,
    NotFound,
    TestClockNotFound,
    SandboxFromLocked,
    NoApprovedBrandDomain,
    FromDomainUnverified,
    KeyDomainScope,
    DisplayNameIdNotFound,
    DisplayNameIdWrongDomain,
    DisplayNameIdNotApproved,
    DisplayNameNotApproved,
    RecipientNotAllowed,
    TemplateNotFound,
    WrongTemplateChannel,
    MissingVariable,
    UnknownVariable,
    ListTooLong,
    InvalidVariable,
    BrandDomainNotFound,
    NoCarrierAvailable,
    UnsupportedChannel,
    FeatureNotOnPlan,
    WebhookNotFound,
    TeamNotFound,
)


def all_refusals() -> list[type[Refusal]]:
    """List every code there is, in the order of this page."""
    return list(Refusal.__subclasses__())
