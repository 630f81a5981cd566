"""Batches of messages (contract 16): size limits and the batch record."""

from typing import Annotated

import msgspec

from heliograph.domain.field_docs import Id, ObjectName, describe
from heliograph.domain.limits import BATCH_CONTENT_MAX, BATCH_MAX, MIB
from heliograph.domain.refusals import BodyTooLong, InvalidRequest

BATCH_DONE = "batch.done"


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """State of a batch, in API responses and events."""

    object: ObjectName = "batch"
    id: Id
    total: Annotated[int, describe("Number of accepted messages; rejected ones are not counted.", example=1)]
    counts: Annotated[dict[str, int], describe("Number of messages by status.", example={"delivered": 1})]


def check_count(count: int) -> None:
    if not 1 <= count <= BATCH_MAX:
        raise InvalidRequest(f"A batch can have 1 to {BATCH_MAX} messages; this one has {count}.", param="messages")


def check_content(size: int) -> None:
    """Reject a batch whose rendered content is too large: a small request can render to a large result."""
    if size > BATCH_CONTENT_MAX:
        limit = f"{BATCH_CONTENT_MAX // MIB} MiB"
        raise BodyTooLong(f"The rendered batch exceeds {limit} at this message. Send it in another batch.")
