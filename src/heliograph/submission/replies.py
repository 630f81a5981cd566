"""Maps refusals to SMTP replies."""

from heliograph.domain import refusals as r
from heliograph.domain.refusals import Refusal
from heliograph.web.status import status_of

SMTP_CODE_BY_STATUS = {
    401: "535 5.7.8",
    421: "535 5.7.8",
    403: "550 5.7.1",
    409: "550 5.7.1",
    413: "552 5.3.4",
    429: "450 4.7.1",
    500: "451 4.3.0",
    503: "451 4.3.0",
}
DEFAULT_SMTP_CODE = "554 5.6.0"  # for all other refusals: the mail itself is invalid
# refusals for which the HTTP status does not determine the SMTP code
SMTP_CODE_BY_REFUSAL: dict[type[Refusal], str] = {
    **dict.fromkeys((r.AttachmentTooLarge, r.AttachmentsTooLarge, r.BodyTooLong), "552 5.3.4"),
    **dict.fromkeys(
        (
            *(r.InvalidFromAddress, r.SandboxFromLocked, r.DisplayNameIdNotFound, r.DisplayNameIdWrongDomain),
            *(r.DisplayNameIdNotApproved, r.DisplayNameNotApproved, r.InsufficientCredit),
        ),
        "550 5.7.1",
    ),
    r.DirectSendsPaused: "450 4.7.1",  # temporary, so that the client may keep the mail in its queue
    r.IdempotencyRequestInProgress: "451 4.3.0",
    r.KeyLimitReached: "452 4.7.1",
}


def reply_to(refusal: Refusal) -> str:
    """Return the reply line for a refusal: SMTP codes, the refusal's code, and its message."""
    refusal_type = type(refusal)
    code = SMTP_CODE_BY_REFUSAL.get(refusal_type) or SMTP_CODE_BY_STATUS.get(status_of(refusal_type), DEFAULT_SMTP_CODE)
    text = refusal.message
    if isinstance(refusal, r.RecipientSuppressed) and refusal.details:
        text = ", ".join(refusal.details["addresses"])
    return f"{code} {refusal.code}: {text}"
