"""A class for each code. Made by `make clients` from what GET /v1/errors answers."""

from heliograph_client import errors as e


# fmt: off
class MissingApiKey(e.AuthenticationError):
    """The request has no `Authorization: Bearer …` header."""
class InvalidApiKey(e.AuthenticationError):
    """The API key is malformed, unknown, revoked or expired."""
class TeamSuspended(e.PermissionDenied):
    """The team is suspended."""
class InsufficientScope(e.PermissionDenied):
    """The key lacks the scope that this endpoint needs, or its team is live and asks for the test inbox."""
class RateLimitExceeded(e.RateLimitError):
    """The key has used up its requests for this moment."""
class NotFound(e.NotFoundError):
    """There is no such route."""
class MethodNotAllowed(e.NotFoundError):
    """The route exists, but not with this method."""
class PayloadTooLarge(e.InvalidRequestError):
    """The body is larger than this endpoint takes: 40 MiB for emails and batches, 64 KiB elsewhere."""
class UnsupportedMediaType(e.InvalidRequestError):
    """The body is not `application/json`, or it has a `Content-Encoding`."""
class InvalidJson(e.InvalidRequestError):
    """The body is not strict JSON."""
class InvalidRequest(e.InvalidRequestError):
    """A field has the wrong type, is missing, or is not known."""
class InvalidIdempotencyKey(e.InvalidRequestError):
    """The `Idempotency-Key` is empty, over 255 characters, not printable ASCII, or was sent twice."""
class IdempotencyKeyReused(e.IdempotencyError):
    """The `Idempotency-Key` was used with a different body."""
class IdempotencyRequestInProgress(e.IdempotencyError):
    """An earlier request with this `Idempotency-Key` is still running."""
class InvalidEmail(e.InvalidRequestError):
    """A recipient or reply-to address is not a valid email address, or there are none or too many of them."""
class MissingBody(e.InvalidRequestError):
    """A direct send has no subject or a blank one, or has neither html nor text."""
class MixedSendMode(e.InvalidRequestError):
    """`template_id` came together with subject, html or text."""
class TooManyRecipients(e.InvalidRequestError):
    """There are more than 50 recipients in to, cc or bcc, or in all of them."""
class SubjectTooLong(e.InvalidRequestError):
    """The subject is longer than 200 characters."""
class InvalidSubject(e.InvalidRequestError):
    """The subject has a control character or a line break."""
class InvalidTags(e.InvalidRequestError):
    """`tags` has more than 10 entries, or a name or value that is not allowed."""
class InvalidMetadata(e.InvalidRequestError):
    """`metadata` is larger than 4 KiB of compact JSON."""
class InvalidSchedule(e.InvalidRequestError):
    """`scheduled_at` or `expires_at` is malformed, more than 60 days ahead, or too late."""
class AlreadySending(e.ConflictError):
    """The message is on its way or has ended: it can be neither moved nor canceled."""
class InvalidHeader(e.InvalidRequestError):
    """`headers` has a name that is not allowed or is given twice, a control character, or too much."""
class TooManyAttachments(e.InvalidRequestError):
    """There are more than 20 attachments."""
class InvalidAttachment(e.InvalidRequestError):
    """An attachment lacks a part, its content is not strict base64, or its content_id is malformed or used twice."""
class UnsupportedAttachmentType(e.InvalidRequestError):
    """The attachment's content type is outside the allowed list."""
class AttachmentTooLarge(e.InvalidRequestError):
    """An attachment is larger than 10 MiB after decoding."""
class AttachmentsTooLarge(e.InvalidRequestError):
    """The attachments of the send are larger than 25 MiB together."""
class DirectSendsPaused(e.PermissionDenied):
    """Direct sends of the team are paused: too many of its emails bounced or were complained about."""
class InvalidFromAddress(e.InvalidRequestError):
    """`from` is missing or is not a valid bare address or name-addr."""
class SandboxFromLocked(e.InvalidRequestError):
    """A sandbox team can send from the platform sender only."""
class NoApprovedBrandDomain(e.PermissionDenied):
    """The live team has no approved verified domain."""
class FromDomainUnverified(e.PermissionDenied):
    """`from` is not on a verified and approved domain of the team."""
class KeyDomainScope(e.PermissionDenied):
    """The key is pinned to another domain."""
class DisplayNameIdNotFound(e.InvalidRequestError):
    """`from_display_id` matches no display name of the team."""
class DisplayNameIdWrongDomain(e.InvalidRequestError):
    """The display name belongs to another domain than `from`."""
class DisplayNameIdNotApproved(e.InvalidRequestError):
    """The display name exists but is not approved yet."""
class DisplayNameNotApproved(e.InvalidRequestError):
    """The display name is neither an approved alternate nor the brand name."""
class RecipientNotAllowed(e.PermissionDenied):
    """A sandbox team can send to recipients verified on the team only."""
class RecipientSuppressed(e.PermissionDenied):
    """A To or Cc recipient is on the suppression list."""
class TemplateIdRequired(e.InvalidRequestError):
    """`template_id` is missing."""
class TemplateNotFound(e.NotFoundError):
    """The team has no approved template with this id."""
class WrongTemplateChannel(e.ConflictError):
    """The template is for another channel."""
class MissingVariable(e.InvalidRequestError):
    """A variable that the template requires is missing."""
class UnknownVariable(e.InvalidRequestError):
    """A passed variable is not declared by the template."""
class InvalidPhone(e.InvalidRequestError):
    """`to` is not a phone number in E.164 form."""
class BrandDomainNotFound(e.NotFoundError):
    """`brand_domain_id` is not an approved verified domain of the team."""
class BodyTooLong(e.InvalidRequestError):
    """A rendered SMS has over 1600 characters, html and text over 5 MiB together, or variables over 256 KiB of JSON."""
class NoCarrierAvailable(e.ServerError):
    """No enabled carrier serves the destination now."""
class MarketingLimitReached(e.RateLimitError):
    """The recipient has had the day's share of MARKETING messages."""
class SandboxLimitReached(e.RateLimitError):
    """The sandbox team has sent the day's share of messages and codes over real carriers."""
class InsufficientCredit(e.InvalidRequestError):
    """The credit balance cannot cover the price."""
class UnsupportedChannel(e.InvalidRequestError):
    """Verify sends by `sms`, and by `whatsapp` or `email` where the operator opens them for the team."""
class FeatureNotOnPlan(e.PermissionDenied):
    """The plan does not include Verify."""
class VerifyRateLimited(e.RateLimitError):
    """Too many verifications for this phone, prefix or country."""
class InvalidCodeFormat(e.InvalidRequestError):
    """`code` is not a string of 4 to 10 characters; no attempt was consumed."""
class VerificationNotFound(e.NotFoundError):
    """The team has no verification with this id."""
class VerificationEnded(e.ConflictError):
    """The verification is not pending any more, so its code cannot be sent again."""
class MessageNotFound(e.NotFoundError):
    """The team has no message with this id."""
class BatchNotFound(e.NotFoundError):
    """The team has no batch with this id."""
class SuppressionNotFound(e.NotFoundError):
    """The address is not on the team's suppression list."""
class WebhookNotFound(e.NotFoundError):
    """The team has no webhook with this id."""
class InternalError(e.ServerError):
    """Something broke on our side; the request was not carried out."""
class ServiceUnavailable(e.ServerError):
    """The service cannot take the request now."""
