"""The team's suppression list: read it, add to it, take from it (spec 4.1.2, contract 12)."""

import msgspec

from heliograph.accept.context import Context
from heliograph.rules.address import Address, parse_address
from heliograph.rules.ids import timestamp
from heliograph.rules.refusals import InvalidEmail, SuppressionNotFound
from heliograph.rules.setup.records import Caller
from heliograph.rules.text import quoted
from heliograph.storage.setup import NewSuppression
from heliograph.storage.suppressions import Suppression


class SuppressionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: str
    reason: str | None = None


class SuppressionRecord(msgspec.Struct, frozen=True, kw_only=True):
    email: str
    reason: str
    source_message_id: str | None
    detail: msgspec.Raw | None
    created_at: str


class DeletedSuppression(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "suppression"
    email: str
    deleted: bool = True


REASONS = ("bounce", "complaint", "manual")


async def find_suppression(context: Context, caller: Caller, email: str) -> SuppressionRecord:
    row = await context.store.suppressions.get(caller.team.record.ref, _known(email).normal)
    if row is None:
        raise _not_found(email)
    return to_record(row)


async def delete_suppression(context: Context, caller: Caller, email: str) -> DeletedSuppression:
    if not await context.store.suppressions.remove(caller.team.record.ref, _known(email).normal):
        raise _not_found(email)
    return DeletedSuppression(email=email)


async def add_suppression(context: Context, caller: Caller, request: SuppressionRequest) -> SuppressionRecord:
    address = parse_address(request.email)
    if address is None:
        raise InvalidEmail(f"email {quoted(request.email)} is not a valid email address.", param="email")
    team = caller.team.record.ref
    given = NewSuppression(team, address.normal, address.given, request.reason or "manual")
    await context.store.suppressions.add(given)
    return await find_suppression(context, caller, address.normal)


def to_record(found: Suppression) -> SuppressionRecord:
    return SuppressionRecord(
        email=found.email,
        reason=found.reason,
        source_message_id=found.source_message_id,
        detail=msgspec.Raw(found.detail.encode()) if found.detail else None,
        created_at=timestamp(found.created_at),
    )


def _known(email: str) -> Address:
    address = parse_address(email)
    if address is None:
        raise _not_found(email)
    return address


def _not_found(email: str) -> SuppressionNotFound:
    return SuppressionNotFound(
        f"{quoted(email)} is not on the suppression list. {SuppressionNotFound.fix}", param="email"
    )
