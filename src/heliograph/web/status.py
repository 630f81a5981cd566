"""The HTTP status of each refusal."""

from heliograph.domain import refusals as r
from heliograph.domain.refusals import Refusal

REFUSALS_BY_STATUS: dict[int, tuple[type[Refusal], ...]] = {
    401: (r.MissingApiKey, r.InvalidApiKey, r.InvalidSignature),
    403: (
        r.CallbackNotVerified,
        r.TeamSuspended,
        r.InsufficientScope,
        r.RestrictedKeyRequired,
        r.ChannelNotPermitted,
        r.SenderNotPermitted,
        r.TemplateNotPermitted,
        r.RecipientNotPermitted,
        r.DirectSendsPaused,
        r.NoApprovedBrandDomain,
        r.FromDomainUnverified,
        r.KeyDomainScope,
        r.RecipientNotAllowed,
        r.RecipientSuppressed,
        r.RecipientOptedOut,
        r.RecipientUnsubscribed,
        r.FeatureNotOnPlan,
    ),
    404: (
        r.NotFound,
        r.TemplateNotFound,
        r.LayoutNotFound,
        r.BrandDomainNotFound,
        r.VerificationNotFound,
        r.MessageNotFound,
        r.BatchNotFound,
        r.ReceivedNotFound,
        r.SuppressionNotFound,
        r.OptOutNotFound,
        r.UnsubscribeNotFound,
        r.TestClockNotFound,
        r.WebhookNotFound,
        r.TeamNotFound,
        r.ApprovalNotFound,
    ),
    405: (r.MethodNotAllowed,),
    409: (
        r.IdempotencyKeyReused,
        r.IdempotencyRequestInProgress,
        r.WrongTemplateChannel,
        r.TemplateUnavailable,
        r.VerificationEnded,
        r.AlreadySending,
        r.AlreadyDecided,
    ),
    413: (r.PayloadTooLarge,),
    415: (r.UnsupportedMediaType,),
    421: (r.WrongCell,),
    422: (r.MissingVariable, r.UnknownVariable, r.ListTooLong, r.InvalidVariable),
    429: (
        r.RateLimitExceeded,
        r.MarketingLimitReached,
        r.SandboxLimitReached,
        r.StorageLimitReached,
        r.KeyLimitReached,
        r.VerifyRateLimited,
    ),
    500: (r.InternalError,),
    503: (r.NoCarrierAvailable, r.ServiceUnavailable),
}
STATUS_BY_REFUSAL = {refusal: status for status, refusals in REFUSALS_BY_STATUS.items() for refusal in refusals}
DEFAULT_STATUS = 400  # the request itself is invalid


def status_of(refusal: type[Refusal]) -> int:
    return STATUS_BY_REFUSAL.get(refusal, DEFAULT_STATUS)
