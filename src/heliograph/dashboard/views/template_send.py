"""Test send of a template: the live version to any recipient, the draft only to the team's verified recipients."""

from msgspec.structs import replace

from heliograph.accept.email import EmailRequest, send_email
from heliograph.accept.phone import PhoneRequest
from heliograph.accept.sms import send_sms
from heliograph.accept.whatsapp import send_whatsapp
from heliograph.dashboard.page_request import Answer, Redirect, Visit
from heliograph.dashboard.views.template_search import current
from heliograph.dashboard.views.templates import show_test
from heliograph.domain.refusals import RecipientNotAllowed, Refusal
from heliograph.domain.setup.records import Caller, Template
from heliograph.templates.policy.examples import given_value
from heliograph.templates.policy.template_approvals import find_draft
from heliograph.templates.policy.template_edit import trial
from heliograph.templates.policy.values import asked_names

FIELDS = ("to", "from")  # errors of other fields are shown above the form


async def send(visit: Visit) -> Answer:
    template, draft, more = current(visit), None, ""
    if visit.form.get("what") == "draft" or template.status == "draft":
        draft = find_draft(visit.setup, template.id)
        if draft is None:
            return await show_test(visit, {"what": "There is no draft any more."})
        more = ", draft"
    caller = replace(visit.caller, entry=lambda id_: visit.entry("template.test", template.id, id_ + more))
    try:
        if draft:
            team = trial(draft)
            message = await _send(visit, replace(caller, team=team), team.templates[template.id], None)
        else:
            message = await _send(visit, caller, template, visit.form.get("from") or None)
    except RecipientNotAllowed as refusal:
        told = "A draft is sent only to the simulator and to recipients that this team has verified."
        return await show_test(visit, {"to": told if draft else refusal.message})
    except Refusal as refusal:
        param = (refusal.param or "").partition(".")[0]
        return await show_test(visit, {param if param in FIELDS else "send": refusal.message})
    return Redirect(f"{visit.base}/messages/{message}", "Sent. Watch it here.")


async def _send(visit: Visit, caller: Caller, template: Template, from_: str | None) -> str:
    """Send through the same code as the API; return the message id."""
    given = {name: visit.form.get(f"value.{name}", "") for name in asked_names(template)}
    asked = ((name, text) for name, text in given.items() if text or name not in template.optional)
    variables = {name: given_value(template, name, text) for name, text in asked}
    to, context = visit.form.get("to", "").strip(), visit.context
    if template.channel == "email":
        mail = EmailRequest(to=to, from_=from_, template_id=template.id, variables=variables)
        return (await send_email(context, caller, mail, None)).id
    phone = PhoneRequest(to=to, template_id=template.id, variables=variables)
    return (await (send_sms if template.channel == "sms" else send_whatsapp)(context, caller, phone, None)).id
