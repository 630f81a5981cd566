"""Credit bookings by operators and platform keys, positive or negative. The team sees the note in its ledger."""

import msgspec

from heliograph.changes.fields import ONE_LINE_ERROR, is_single_line
from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import Account, format_money, parse_signed_money
from heliograph.manage.teams import get_team
from heliograph.storage.ledger import ReferencedBooking
from heliograph.storage.store import Store


class CreditAdjustment(msgspec.Struct, frozen=True, kw_only=True):
    team: str
    amount: str  # 25.00 adds, -5.00 deducts
    note: str = ""  # note in the ledger; in `book_once`, the booking's unique reference


async def adjust_credit(store: Store, actor: Actor, adjustment: CreditAdjustment) -> Account:
    """Book an amount on the team's account and return the updated account."""
    team = get_team(store.setup.current, adjustment.team).record
    if adjustment.note and not is_single_line(adjustment.note):
        raise InvalidRequest(ONE_LINE_ERROR, param="note")
    try:
        amount, entry = _read_amount(store, actor, adjustment)
        return await store.ledger.adjust_credit(team.ref, amount, adjustment.note or None, entry)
    except ValueError as error:
        raise InvalidRequest(str(error), param="amount") from None


async def book_once(store: Store, actor: Actor, adjustment: CreditAdjustment) -> ReferencedBooking:
    """Book an amount under a reference.

    If the reference was booked before, nothing changes and the earlier booking is returned, whatever its amount.
    """
    team = get_team(store.setup.current, adjustment.team).record
    if not is_single_line(adjustment.note):
        raise InvalidRequest(f"reference: {ONE_LINE_ERROR}", param="reference")
    try:
        amount, entry = _read_amount(store, actor, adjustment)
        return await store.ledger.book_once(team.ref, amount, adjustment.note, entry)
    except ValueError as error:
        raise InvalidRequest(f"amount: {error}.", param="amount") from None


def _read_amount(store: Store, actor: Actor, adjustment: CreditAdjustment) -> tuple[int, AuditEntry]:
    """Return the amount and the audit entry of its booking; raise ValueError if the amount is invalid."""
    amount = parse_signed_money(adjustment.amount)
    shown, now = format_money(amount), store.clock.now()
    return amount, actor.audit_entry(now, "credit.book", shown, adjustment.note, team=adjustment.team)
