"""Verifications with their outcome; their codes are nowhere."""

from heliograph.dashboard.views import live
from heliograph.dashboard.views.messages import is_id, paging, place_of, read, read_filter, typed
from heliograph.dashboard.visit import Answer, Gone, Page, Redirect, Visit
from heliograph.rules.limits import WRONG_CODES_MAX
from heliograph.rules.setup.records import Key
from heliograph.storage import search
from heliograph.storage.search import Found

STATUSES = ("pending", "verified", "expired", "exhausted", "failed")


async def show_list(visit: Visit) -> Answer:
    text = typed(visit)
    if place := await place_of(visit, text):
        return Redirect(place)
    wanted, errors = read_filter(visit, STATUSES)
    if text and wanted.address is None:
        errors["q"] = "Give a whole phone number such as +447700900123, or the id of a verification."
    team, now = visit.team.record.ref, visit.context.clock.now()
    stream = "" if errors or wanted.before else await live.team_place(visit, "verifications")
    found = Found(lines=[]) if errors else await read(visit, lambda tx: search.verifications(tx, team, wanted, now))
    values = {"live": stream, "lines": found.lines, "statuses": STATUSES, "errors": errors, **paging(visit, found)}
    return Page("verifications.html", values, 400 if errors else 200)


async def show(visit: Visit) -> Answer:
    team, id_, now = visit.team.record.ref, visit.params["id"], visit.context.clock.now()
    found = await read(visit, lambda tx: search.verification(tx, team, id_, now)) if is_id(id_) else None
    if found is None:
        raise Gone
    key = visit.setup.records.get(("key", found.key_id))
    values = {
        "found": found,
        "key": key.name if isinstance(key, Key) else found.key_id,
        "wrong_max": WRONG_CODES_MAX,
    }
    return Page("verification.html", values)
