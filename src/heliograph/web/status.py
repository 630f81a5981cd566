"""The HTTP status of each refusal."""

from heliograph.domain import refusals as r
from heliograph.domain.refusals import Refusal

STATUS_BY_REFUSAL: dict[type[Refusal], int] = {
    r.MissingApiKey: 401,
    r.InvalidApiKey: 401,
    r.InvalidSignature: 401,
    r.CallbackNotVerified: 403,
    r.TeamSuspended: 403,
    r.InsufficientScope: 403,
    r.ChannelNotPermitted: 403,
    r.SenderNotPermitted: 403,
    r.TemplateNotPermitted: 403,
    r.RecipientNotPermitted: 403,
    r.RateLimitExceeded: 429,
    r.NotFound: 404,
    r.MethodNotAllowed: 405,
    r.PayloadTooLarge: 413,
    r.UnsupportedMediaType: 415,
    r.IdempotencyKeyReused: 409,
    r.IdempotencyRequestInProgress: 409,
    r.DirectSendsPaused: 403,
    r.NoApprovedBrandDomain: 403,
    r.FromDomainUnverified: 403,
    r.KeyDomainScope: 403,
    r.RecipientNotAllowed: 403,
    r.RecipientSuppressed: 403,
    r.RecipientOptedOut: 403,
    r.TemplateNotFound: 404,
    r.LayoutNotFound: 404,
    r.WrongTemplateChannel: 409,
    r.TemplateUnavailable: 409,
    r.MissingVariable: 422,
    r.UnknownVariable: 422,
    r.ListTooLong: 422,
    r.InvalidVariable: 422,
    r.BrandDomainNotFound: 404,
    r.NoCarrierAvailable: 503,
    r.MarketingLimitReached: 429,
    r.SandboxLimitReached: 429,
    r.StorageLimitReached: 429,
    r.FeatureNotOnPlan: 403,
    r.VerifyRateLimited: 429,
    r.VerificationNotFound: 404,
    r.VerificationEnded: 409,
    r.MessageNotFound: 404,
    r.BatchNotFound: 404,
    r.ReceivedNotFound: 404,
    r.AlreadySending: 409,
    r.SuppressionNotFound: 404,
    r.OptOutNotFound: 404,
    r.TestClockNotFound: 404,
    r.WebhookNotFound: 404,
    r.TeamNotFound: 404,
    r.InternalError: 500,
    r.ServiceUnavailable: 503,
}
DEFAULT_STATUS = 400  # errors in the request itself


def status_of(refusal: type[Refusal]) -> int:
    return STATUS_BY_REFUSAL.get(refusal, DEFAULT_STATUS)
