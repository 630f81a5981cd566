"""The only place that knows which SMTP reply a refusal has."""

from heliograph.domain import refusals as r
from heliograph.domain.refusals import Refusal
from heliograph.web.status import status_of

BY_STATUS = {
    401: "535 5.7.8",
    403: "550 5.7.1",
    409: "550 5.7.1",
    413: "552 5.3.4",
    429: "450 4.7.1",
    500: "451 4.3.0",
    503: "451 4.3.0",
}
DEFAULT = "554 5.6.0"  # what is wrong with the mail itself
# Where the words of HTTP and SMTP differ.
BY_REFUSAL: dict[type[Refusal], str] = {
    **dict.fromkeys((r.AttachmentTooLarge, r.AttachmentsTooLarge, r.BodyTooLong), "552 5.3.4"),
    **dict.fromkeys(
        (
            *(r.InvalidFromAddress, r.SandboxFromLocked, r.DisplayNameIdNotFound, r.DisplayNameIdWrongDomain),
            *(r.DisplayNameIdNotApproved, r.DisplayNameNotApproved, r.InsufficientCredit),
        ),
        "550 5.7.1",
    ),
    r.DirectSendsPaused: "450 4.7.1",  # it is lifted again: the mail may wait in the client's queue
    r.IdempotencyRequestInProgress: "451 4.3.0",
}


def reply_to(refusal: Refusal) -> str:
    """Write one line: the code that a program reads, then the refusal's own, then its words."""
    kind = type(refusal)
    code = BY_REFUSAL.get(kind) or BY_STATUS.get(status_of(kind), DEFAULT)
    words = refusal.message
    if isinstance(refusal, r.RecipientSuppressed) and refusal.details:
        words = ", ".join(refusal.details["addresses"])
    return f"{code} {refusal.code}: {words}"
