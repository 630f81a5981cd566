"""Credit bookings by an operator, positive or negative. The team sees the note in its ledger."""

import msgspec

from heliograph.changes.fields import ONE_LINE_ERROR, is_single_line
from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import Account, format_money, parse_signed_money
from heliograph.manage.teams import get_team
from heliograph.storage.store import Store


class CreditAdjustment(msgspec.Struct, frozen=True, kw_only=True):
    team: str
    amount: str  # 25.00 adds, -5.00 deducts
    note: str = ""


async def adjust_credit(store: Store, actor: Actor, adjustment: CreditAdjustment) -> Account:
    """Book an amount and return the updated account."""
    team = get_team(store.setup.current, adjustment.team).record
    if adjustment.note and not is_single_line(adjustment.note):
        raise InvalidRequest(ONE_LINE_ERROR, param="note")
    try:
        amount, note = parse_signed_money(adjustment.amount), adjustment.note or None
        entry = actor.audit_entry(store.clock.now(), "credit.book", format_money(amount), adjustment.note, team=team.id)
        return await store.ledger.adjust_credit(team.ref, amount, note, entry)
    except ValueError as error:
        raise InvalidRequest(str(error), param="amount") from None
