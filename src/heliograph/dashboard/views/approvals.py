"""What waits for an operator's word: domains, display names, sender ids and templates of all teams."""

from heliograph.dashboard.visit import Answer, Page, Redirect, Visit
from heliograph.manage import senders
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.sender_approvals import PendingSender, pending
from heliograph.rules.setup.template_approvals import list_pending

HERE = "/dashboard/operator/approvals"


async def decide(visit: Visit) -> Answer:
    """About what the operator saw: what was changed since stays undecided. Templates have their own page."""
    kind, id_, text = (visit.form.get(name, "") for name in ("kind", "id", "text"))
    item = PendingSender(kind=kind, team=visit.team.record.id, id=id_, text=text)
    approve, reason = visit.form.get("approve") == "yes", visit.form.get("reason", "")
    try:
        done = await senders.decide_pending(visit.store, visit.actor, item, approve, reason)
    except InvalidRequest as refusal:
        return await show(visit, id_, refusal.message)
    if not done:
        return Redirect(HERE, "It was changed or decided meanwhile.")
    return Redirect(HERE, "Approved." if approve else "Refused; the team sees the reason.")


async def show(visit: Visit, wrong: str = "", error: str = "") -> Page:
    values = {
        "senders": pending(visit.setup),
        "templates": list_pending(visit.setup),
        "teams": visit.setup.teams,
        "wrong": wrong,
        "error": error,
    }
    return Page("approvals.html", values, 400 if error else 200)
