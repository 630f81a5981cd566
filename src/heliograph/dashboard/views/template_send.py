"""Test send of a template: the live version to any recipient, the draft only to the team's verified recipients."""

from msgspec.structs import replace

from heliograph.accept.email import EmailRequest, send_email
from heliograph.accept.phone import PhoneRequest
from heliograph.accept.sms import send_sms
from heliograph.accept.whatsapp import send_whatsapp
from heliograph.dashboard.page_request import PageRequest, PageResponse, Redirect
from heliograph.dashboard.views.template_search import find_template
from heliograph.dashboard.views.templates import show_test
from heliograph.domain.refusals import RecipientNotAllowed, Refusal
from heliograph.domain.setup.records import Caller, Template
from heliograph.templates.policy.examples import parse_form_value
from heliograph.templates.policy.template_approvals import find_draft
from heliograph.templates.policy.template_edit import sandbox_with_draft
from heliograph.templates.policy.values import required_names

FORM_FIELDS = ("to", "from")  # fields that show their own errors; errors of all others are shown above the form


async def send(request: PageRequest) -> PageResponse:
    template, draft, audit_suffix = find_template(request), None, ""
    if request.form.get("what") == "draft" or template.status == "draft":
        draft = find_draft(request.setup, template.id)
        if draft is None:
            return await show_test(request, {"what": "This draft no longer exists."})
        audit_suffix = ", draft"
    caller = replace(
        request.caller, entry=lambda id_: request.audit_entry("template.test", template.id, id_ + audit_suffix)
    )
    try:
        if draft:
            team = sandbox_with_draft(draft)
            message_id = await _send(request, replace(caller, team=team), team.templates[template.id], None)
        else:
            message_id = await _send(request, caller, template, request.form.get("from") or None)
    except RecipientNotAllowed as refusal:
        message = "Drafts can only be sent to the simulator and to this team's verified recipients."
        return await show_test(request, {"to": message if draft else refusal.message})
    except Refusal as refusal:
        param = (refusal.param or "").partition(".")[0]
        return await show_test(request, {param if param in FORM_FIELDS else "send": refusal.message})
    return Redirect(f"{request.team_path}/messages/{message_id}", "Test sent. You can follow it here.")


async def _send(request: PageRequest, caller: Caller, template: Template, from_: str | None) -> str:
    """Send as the API does; return the message id."""
    typed_values = {name: request.form.get(f"value.{name}", "") for name in required_names(template)}
    provided_values = ((name, text) for name, text in typed_values.items() if text or name not in template.optional)
    variables = {name: parse_form_value(template, name, text) for name, text in provided_values}
    to, context, locale = request.form.get("to", "").strip(), request.context, request.form.get("locale") or None
    if template.channel == "email":
        mail = EmailRequest(to=to, from_=from_, template_id=template.id, variables=variables, locale=locale)
        return (await send_email(context, caller, mail, None)).id
    phone = PhoneRequest(to=to, template_id=template.id, variables=variables, locale=locale)
    return (await (send_sms if template.channel == "sms" else send_whatsapp)(context, caller, phone, None)).id
