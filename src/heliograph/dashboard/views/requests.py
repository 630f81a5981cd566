"""The request log: what this process refused, by request id, with what each error means and how to mend it."""

from itertools import islice

from heliograph.api.errors import error_list
from heliograph.dashboard.visit import Answer, Page, Visit

PAGE = 50
EXPLAINED = {error["code"]: error for error in error_list()}


async def show(visit: Visit) -> Answer:
    wanted, before = visit.query.get("id", "").strip(), visit.query.get("before", "")
    own = (one for one in reversed(visit.desk.state.refused) if one.team == visit.team.record.id)
    # Ids sort by time only to the millisecond: the place in the log decides.
    if before:
        for one in own:
            if one.id == before:
                break
    found = list(islice((one for one in own if not wanted or one.id == wanted), PAGE + 1))
    names = {caller.key.id: caller.key.name for caller in visit.setup.callers.values()}
    values = {
        "requests": found[:PAGE],
        "wanted": wanted,
        "more": found[PAGE - 1].id if len(found) > PAGE else None,
        "before": before,
        "explained": EXPLAINED,
        "names": names,
        "docs": f"{visit.desk.base_url}/docs/errors",
    }
    return Page("requests.html", values)
