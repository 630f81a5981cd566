"""Verifications and their results; the codes are never shown."""

import msgspec

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.states import state_label
from heliograph.dashboard.views import live
from heliograph.dashboard.views.messages import find_object_page, may_be_id, paging_values, parse_filter, search_text
from heliograph.domain.limits import WRONG_CODES_MAX
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import Key
from heliograph.storage.search.message_search import SearchPage, VerificationRow

STATUSES = ("pending", "verified", "expired", "exhausted", "failed")
STATUS_OPTIONS = [("", "Any status"), *((status, state_label(status).label) for status in STATUSES)]


async def show_list(request: PageRequest) -> PageResponse:
    text = search_text(request)
    if object_page := await find_object_page(request, text):
        return Redirect(object_page)
    criteria, errors = parse_filter(request, STATUSES)
    if text and criteria.address is None:
        errors["q"] = "Enter a full phone number such as +447700900123, an email address, or a verification ID."
    live_url = "" if errors or criteria.before else await live.team_stream_url(request, "verifications")
    no_results = SearchPage[VerificationRow](rows=[])
    results = no_results if errors else await request.store.verifications.search(request.team.record.ref, criteria)
    values = {
        "live": live_url,
        "lines": results.rows,
        "statuses": STATUS_OPTIONS,
        "errors": errors,
        **paging_values(request, results),
    }
    return Page("verifications.html", values, 400 if errors else 200)


async def show(request: PageRequest) -> PageResponse:
    id_ = request.params["id"]
    verification = await request.store.verifications.get(request.team.record.ref, id_) if may_be_id(id_) else None
    if verification is None:
        raise PageNotFound
    key = request.setup.records.get(("key", verification.key_id))
    values = {
        "verification": verification,
        "added": msgspec.json.decode(verification.added, type=ExtraFields),
        "key": key.name if isinstance(key, Key) else verification.key_id,
        "key_page": f"{request.team_path}/keys/{key.id}"
        if isinstance(key, Key) and request.has_role("developer")
        else "",
        "resent": [int(at) for at in verification.resent.split()],
        "wrong_max": WRONG_CODES_MAX,
    }
    return Page("verification.html", values)
