"""The request log: what was refused, by request id, with what each error means and how to mend it."""

from heliograph.dashboard.visit import Answer, Page, Visit
from heliograph.rules.refusals import all_refusals
from heliograph.storage.requests import NEWEST, SHARE_MAX

PAGE = 50
EXPLAINED = {refusal.code: {"meaning": refusal.meaning(), "fix": refusal.fix} for refusal in all_refusals()}


async def show(visit: Visit) -> Answer:
    wanted, before = (visit.query.get(name, "").replace("\0", "").strip() for name in ("id", "before"))
    store, team = visit.context.store.requests, visit.team.record.ref
    await visit.context.state.refused.write(store)  # of other processes, those of the last second may be missing
    if wanted:
        one = await store.find_refused(team, wanted)
        found = [one] if one else []
    else:
        found = await store.refused(team, before or NEWEST, PAGE)
    names = {caller.key.id: caller.key.name for caller in visit.setup.callers.values()}
    values = {
        "requests": found[:PAGE],
        "wanted": wanted,
        "more": found[PAGE - 1].id if len(found) > PAGE else None,
        "before": before,
        "explained": EXPLAINED,
        "names": names,
        "docs": f"{visit.context.base_url}/docs/errors",
        "share": SHARE_MAX,
    }
    return Page("requests.html", values)
