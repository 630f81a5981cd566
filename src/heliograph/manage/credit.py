"""Credit bookings by an operator, positive or negative. The team sees the note in its ledger."""

import msgspec

from heliograph.changes.fields import ONE_LINE, is_line
from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import Account, format_money, parse_booking
from heliograph.manage.teams import find_team
from heliograph.storage.store import Store


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    team: str
    amount: str  # 25.00 adds, -5.00 deducts
    note: str = ""


async def book(store: Store, actor: Actor, wanted: Booking) -> Account:
    """Book an amount and return the updated account."""
    team = find_team(store.setup.current, wanted.team).record
    if wanted.note and not is_line(wanted.note):
        raise InvalidRequest(ONE_LINE, param="note")
    try:
        amount, note = parse_booking(wanted.amount), wanted.note or None
        entry = actor.did(store.clock.now(), "credit.book", format_money(amount), wanted.note, team=team.id)
        return await store.ledger.book(team.ref, amount, note, entry)
    except ValueError as error:
        raise InvalidRequest(str(error), param="amount") from None
