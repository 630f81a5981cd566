"""Credit: booked by an operator, up or down. The team reads the note in its ledger."""

import msgspec

from heliograph.manage.teams import find_team
from heliograph.rules.audit import Actor
from heliograph.rules.pricing import Account, format_money, parse_booking
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.text import line
from heliograph.storage.store import Store


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    team: str
    amount: str  # 25.00 adds, -5.00 takes
    note: str = ""


async def book(store: Store, actor: Actor, wanted: Booking) -> Account:
    """The account after it."""
    team = find_team(store.setup.current, wanted.team).record
    try:
        amount, note = parse_booking(wanted.amount), line(wanted.note) if wanted.note else None
        entry = actor.did(store.clock.now(), "credit.book", format_money(amount), wanted.note, team=team.id)
        return await store.ledger.book(team.ref, amount, note, entry)
    except ValueError as error:
        raise InvalidRequest(str(error), param="amount") from None
