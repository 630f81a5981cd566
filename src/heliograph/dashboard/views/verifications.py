"""Verifications with their outcome; their codes are never shown."""

import msgspec

from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit
from heliograph.dashboard.states import state_of
from heliograph.dashboard.views import live
from heliograph.dashboard.views.messages import is_id, page_of, paging, read_filter, typed
from heliograph.domain.limits import WRONG_CODES_MAX
from heliograph.domain.sending.send_options import Added
from heliograph.domain.setup.records import Key
from heliograph.storage.search.message_search import SearchPage, VerificationLine

STATUSES = ("pending", "verified", "expired", "exhausted", "failed")

LABELS = [("", "Any status"), *((one, state_of(one).label) for one in STATUSES)]


async def show_list(visit: Visit) -> Answer:
    text = typed(visit)
    if page := await page_of(visit, text):
        return Redirect(page)
    wanted, errors = read_filter(visit, STATUSES)
    if text and wanted.address is None:
        errors["q"] = "Give a whole phone number such as +447700900123, an email address, or the id of a verification."
    stream = "" if errors or wanted.before else await live.team_stream_address(visit, "verifications")
    none = SearchPage[VerificationLine](lines=[])
    found = none if errors else await visit.store.verifications.search(visit.team.record.ref, wanted)
    values = {"live": stream, "lines": found.lines, "statuses": LABELS, "errors": errors, **paging(visit, found)}
    return Page("verifications.html", values, 400 if errors else 200)


async def show(visit: Visit) -> Answer:
    id_ = visit.params["id"]
    found = await visit.store.verifications.get(visit.team.record.ref, id_) if is_id(id_) else None
    if found is None:
        raise Gone
    key = visit.setup.records.get(("key", found.key_id))
    values = {
        "found": found,
        "added": msgspec.json.decode(found.added, type=Added),
        "key": key.name if isinstance(key, Key) else found.key_id,
        "wrong_max": WRONG_CODES_MAX,
    }
    return Page("verification.html", values)
