"""Batches of messages (contract 16): size limits and the batch record."""

from typing import Annotated

import msgspec

from heliograph.domain.field_docs import Id, ObjectName, says
from heliograph.domain.limits import BATCH_CONTENT_MAX, BATCH_MAX, MIB
from heliograph.domain.refusals import BodyTooLong, InvalidRequest

DONE = "batch.done"


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it is read, and as the event tells it."""

    object: ObjectName = "batch"
    id: Id
    total: Annotated[int, says("Messages that were accepted; refused ones are not counted.", example=1)]
    counts: Annotated[dict[str, int], says("How many of them are in which state.", example={"delivered": 1})]


def check_count(count: int) -> None:
    if not 1 <= count <= BATCH_MAX:
        raise InvalidRequest(f"A batch has 1 to {BATCH_MAX} messages, this one {count}.", param="messages")


def check_content(size: int) -> None:
    """Reject a batch whose rendered content is too large; a small request can render to a large result."""
    if size > BATCH_CONTENT_MAX:
        most = f"{BATCH_CONTENT_MAX // MIB} MiB"
        raise BodyTooLong(f"The messages before this one and it have over {most} together. Send it in another batch.")
