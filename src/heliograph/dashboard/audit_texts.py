"""Plain-English texts of audit log entries: action, subject, actor and link to the subject's page. Pure functions."""

from functools import partial
from typing import NamedTuple

from heliograph.domain.ids import PREFIXES
from heliograph.domain.setup.records import CarrierRecord, Key, Team
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.audit import AuditRow
from heliograph.texts import dashboard_links

# first part of an action → heading of its group
AREA_NAMES = {
    "key": "API keys",
    "webhook": "Webhooks",
    "template": "Templates",
    "layout": "Layouts",
    "domain": "Domains",
    "display_name": "Display names",
    "sender_id": "SMS sender IDs",
    "recipient": "Sandbox recipients",
    "suppression": "Suppressions",
    "opt_out": "Opt-outs",
    "unsubscribe": "Unsubscribes",
    "address": "Personal data",
    "message": "Messages",
    "inbox": "Test inbox",
    "member": "Members",
    "team": "Team",
    "portal": "Portals",
    "credit": "Billing",
    "reputation": "Reputation",
    "account": "Accounts",
    "chat": "Chat notices",
    "person": "People",
    "link": "Links",
    "operator": "Operators",
    "carrier": "Carriers",
    "deadletter": "Queues",
    "delivery": "Delivery",
    "platform": "Platform",
    "setup": "Setup",
    "secret": "Secret",
    "audit": "Audit log",
}
ACTION_TEXTS = {
    "key.create": "API key created",
    "key.revoke": "API key revoked",
    "key.rotate": "API key rotated",
    "key.restrict": "API key restrictions changed",
    "webhook.create": "Webhook created",
    "webhook.change": "Webhook changed",
    "webhook.remove": "Webhook deleted",
    "webhook.enable": "Webhook enabled",
    "webhook.disable": "Webhook disabled",
    "webhook.rotate": "Webhook secret rotated",
    "webhook.test": "Webhook tested",
    "webhook.replay": "Events replayed",
    "template.save": "Template saved",
    "template.publish": "Template published",
    "template.submit": "Template approval requested",
    "template.approve": "Template approved",
    "template.refuse": "Template refused",
    "template.reopen": "Template decision reverted",
    "template.restore": "Template version restored",
    "template.archive": "Template archived",
    "template.unarchive": "Template restored from the archive",
    "template.discard": "Draft discarded",
    "template.duplicate": "Template duplicated",
    "template.test": "Template test sent",
    "template.upstream_approved": "Meta approved the template",
    "template.upstream_pending": "Meta is reviewing the template",
    "template.upstream_rejected": "Meta rejected the template",
    "template.upstream_paused": "Meta paused the template",
    "template.upstream_disabled": "Meta disabled the template",
    "template.upstream_quality": "Meta changed the template quality rating",
    "layout.save": "Layout saved",
    "layout.submit": "Layout approval requested",
    "layout.publish": "Layout published",
    "layout.approve": "Layout approved",
    "layout.refuse": "Layout refused",
    "layout.reopen": "Layout decision reverted",
    "layout.archive": "Layout archived",
    "domain.add": "Domain added",
    "domain.remove": "Domain deleted",
    "domain.verified": "Domain verified",
    "domain.failed": "Domain no longer verified",
    "domain.approve": "Domain approved",
    "domain.refuse": "Domain refused",
    "domain.reopen": "Domain decision reverted",
    "domain.submit": "Domain approval requested",
    "domain.rotate": "DKIM keys rotated",
    "domain.keys": "DKIM keys changed",
    "domain.brand": "Brand name changed",
    "domain.check": "Domain checked",
    "display_name.submit": "Display name requested",
    "display_name.approve": "Display name approved",
    "display_name.refuse": "Display name refused",
    "display_name.reopen": "Display name decision reverted",
    "display_name.remove": "Display name deleted",
    "sender_id.submit": "Sender ID requested",
    "sender_id.approve": "Sender ID approved",
    "sender_id.refuse": "Sender ID refused",
    "sender_id.reopen": "Sender ID decision reverted",
    "sender_id.remove": "Sender ID deleted",
    "recipient.add": "Recipient verified",
    "recipient.ask": "Code sent to recipient",
    "recipient.remove": "Recipient removed",
    "suppression.add": "Address suppressed",
    "suppression.remove": "Suppression removed",
    "suppression.import": "Suppressions imported",
    "opt_out.add": "Number opted out",
    "opt_out.remove": "Opt-out removed",
    "unsubscribe.add": "Address unsubscribed",
    "unsubscribe.remove": "Address resubscribed",
    "address.erase": "Address erased",
    "address.export": "Data of an address exported",
    "message.resend": "Message sent again",
    "message.test": "Test message sent",
    "message.release": "Message released",
    "message.reject": "Message rejected",
    "message.redact": "Message content deleted",
    "message.delete": "Message deleted",
    "inbox.clear": "Test inbox cleared",
    "inbox.delete": "Test inbox message deleted",
    "member.invite": "Member invited",
    "member.accept": "Invitation accepted",
    "member.decline": "Invitation declined",
    "member.role": "Role changed",
    "member.remove": "Member removed",
    "team.create": "Team created",
    "team.change": "Team changed",
    "team.keep": "Retention changed",
    "team.categories": "Email categories changed",
    "team.plan": "Plan changed",
    "team.live": "Team went live",
    "team.sandbox": "Team moved back to the sandbox",
    "team.delete": "Team deletion requested",
    "team.restore": "Team deletion canceled",
    "team.erase": "Team deleted",
    "team.suspend": "Team suspended",
    "team.resume": "Suspension lifted",
    "team.approve": "Team name approved",
    "team.refuse": "Team name refused",
    "team.reopen": "Team name decision reverted",
    "team.test_clock": "Test clock turned on or off",
    "team.advance": "Test clock moved",
    "portal.link": "Portal link created",
    "portal.open": "Portal opened",
    "credit.book": "Credit changed",
    "reputation.warn": "High bounce or complaint rate",
    "reputation.pause": "Direct emails paused",
    "reputation.clear": "Reputation recovered",
    "reputation.resume": "Direct emails resumed",
    "account.name": "Name changed",
    "account.password": "Password changed",
    "account.totp": "Two-factor authentication changed",
    "account.sessions": "Signed out everywhere",
    "account.sign_in": "Signed in",
    "account.passkey": "Passkeys changed",
    "account.provider": "Identity provider connected",
    "account.notices": "Notices changed",
    "chat.set": "Chat hook saved",
    "chat.remove": "Chat hook removed",
    "chat.test": "Chat hook tested",
    "person.add": "Person added",
    "person.remove": "Person removed",
    "person.operator": "Operator role changed",
    "person.link": "Sign-in link created",
    "person.sessions": "Person signed out",
    "person.totp": "Two-factor authentication turned off",
    "person.provider": "Identity provider disconnected",
    "link.first": "First operator link created",
    "link.reset": "Password reset link created",
    "link.invite": "Invitation link created",
    "operator.accept": "Operator role accepted",
    "operator.decline": "Operator role declined",
    "carrier.create": "Carrier added",
    "carrier.change": "Carrier changed",
    "carrier.edit": "Carrier settings changed",
    "carrier.remove": "Carrier deleted",
    "carrier.order": "Carriers reordered",
    "carrier.test": "Carrier tested",
    "deadletter.retry": "Dead letter retried",
    "deadletter.drop": "Dead letter deleted",
    "delivery.pause": "Delivery paused",
    "delivery.resume": "Delivery resumed",
    "platform.change": "Platform settings changed",
    "setup.apply": "Setup file applied",
    "secret.replace": "Master secret replaced",
    "secret.rotate": "Master secret rotated",
    "audit.erase": "Address erased from an entry",
    "audit.adopt": "Unchained entries added",
}


def action_text(action: str) -> str:
    """Return the text of an audit action; for an unknown action, its name in words."""
    fallback = action.replace(".", ": ").replace("_", " ")
    return ACTION_TEXTS.get(action) or fallback[:1].upper() + fallback[1:]


class Subject(NamedTuple):
    """The changed object of an audit entry."""

    text: str
    url: str = ""  # empty if there is no page or the reader must not open it
    detail: str = ""


def find_subject(entry: AuditRow, setup: Setup, is_operator: bool) -> Subject:
    """Return the subject of an audit entry, with a link to its page if the reader may open the page."""
    area = entry.action.partition(".")[0]
    team = setup.teams.get(entry.team or "")
    detail = entry.detail
    if area == "carrier" and isinstance(setup.records.get(("carrier", entry.subject)), CarrierRecord):
        return Subject(entry.subject, dashboard_links.operator_page("carrier") if is_operator else "", detail)
    if team is None:
        return Subject(entry.subject, _operator_page(area, is_operator), detail)
    team_link = partial(dashboard_links.team_page, team.record.id)
    if area in ("team", "reputation"):
        return Subject(team.record.name, team_link("" if area == "team" else area), detail)
    if area == "key":
        key = setup.records.get(("key", entry.detail))
        return Subject(entry.subject, team_link("key", entry.detail) if isinstance(key, Key) else "")
    if area == "template" and entry.subject in team.templates:
        return Subject(team.templates[entry.subject].name, team_link("template", entry.subject), detail)
    if entry.subject.startswith(tuple(PREFIXES[channel] for channel in ("email", "sms", "whatsapp"))):
        return Subject(entry.subject, team_link("message", entry.subject), detail)
    name = team.record.name if entry.subject == team.record.id else entry.subject
    is_listed = area in dashboard_links.TEAM_LIST_PATHS and area not in ("template", "message")
    return Subject(
        name, team_link(area, _find_object_id(team, entry)) if is_listed else _operator_page(area, is_operator), detail
    )


def _operator_page(area: str, is_operator: bool) -> str:
    return (
        dashboard_links.operator_page(area)
        if is_operator and area in dashboard_links.OPERATOR_PATHS and area != "carrier"
        else ""
    )


def _find_object_id(team: Team, entry: AuditRow) -> str:
    """Return the id of the webhook or domain that an audit entry refers to by URL or name; empty if not found."""
    if entry.action.startswith("webhook."):
        return next((hook.id for hook in team.webhooks if hook.url == entry.subject), "")
    domain = team.domains.get(entry.subject) if entry.action.startswith("domain.") else None
    return domain.id if domain else ""


def actor_name(entry: AuditRow, setup: Setup) -> str:
    """Return the display name of the person or program that made the change."""
    if entry.email:
        return entry.name or entry.email
    kind, _, id_ = entry.actor_name.partition(" ")
    if kind == "key":
        key = setup.records.get(("key", id_))
        return f"API key {key.name}" if isinstance(key, Key) else f"API key {id_}"
    return {"command line": "Command line", "service": "Heliograph"}.get(entry.actor_name, entry.actor_name)
