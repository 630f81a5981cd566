"""Plain-English texts of audit log entries: action, subject, actor and link to the subject's page. Pure functions."""

from functools import partial
from typing import NamedTuple

from heliograph.domain.ids import PREFIXES
from heliograph.domain.setup.records import CarrierRecord, Key, Team
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.audit import AuditRow
from heliograph.texts import dashboard_links


def _texts(**verbs: str) -> dict[str, str]:
    """Return verb → text. A verb that is a Python keyword is passed with an underscore at its end."""
    return verbs


# area → (display name, verb → text of the action)
AREAS: dict[str, tuple[str, dict[str, str]]] = {
    "key": (
        "API keys",
        _texts(
            create="API key created",
            revoke="API key revoked",
            rotate="API key rotated",
            restrict="API key restrictions changed",
        ),
    ),
    "webhook": (
        "Webhooks",
        _texts(
            create="Webhook created",
            change="Webhook changed",
            remove="Webhook deleted",
            enable="Webhook enabled",
            disable="Webhook disabled",
            rotate="Webhook secret rotated",
            test="Webhook tested",
            replay="Events replayed",
        ),
    ),
    "template": (
        "Templates",
        _texts(
            save="Template saved",
            publish="Template published",
            submit="Template approval requested",
            approve="Template approved",
            refuse="Template refused",
            reopen="Template decision reverted",
            restore="Template version restored",
            archive="Template archived",
            unarchive="Template restored from the archive",
            discard="Draft discarded",
            duplicate="Template duplicated",
            test="Template test sent",
            upstream_approved="Meta approved the template",
            upstream_pending="Meta is reviewing the template",
            upstream_rejected="Meta rejected the template",
            upstream_paused="Meta paused the template",
            upstream_disabled="Meta disabled the template",
            upstream_quality="Meta changed the template quality rating",
        ),
    ),
    "layout": (
        "Layouts",
        _texts(
            save="Layout saved",
            submit="Layout approval requested",
            publish="Layout published",
            approve="Layout approved",
            refuse="Layout refused",
            reopen="Layout decision reverted",
            archive="Layout archived",
        ),
    ),
    "domain": (
        "Domains",
        _texts(
            add="Domain added",
            remove="Domain deleted",
            verified="Domain verified",
            failed="Domain no longer verified",
            approve="Domain approved",
            refuse="Domain refused",
            reopen="Domain decision reverted",
            submit="Domain approval requested",
            rotate="DKIM keys rotated",
            keys="DKIM keys changed",
            brand="Brand name changed",
            check="Domain checked",
        ),
    ),
    "display_name": (
        "Display names",
        _texts(
            submit="Display name requested",
            approve="Display name approved",
            refuse="Display name refused",
            reopen="Display name decision reverted",
            remove="Display name deleted",
        ),
    ),
    "sender_id": (
        "SMS sender IDs",
        _texts(
            submit="Sender ID requested",
            approve="Sender ID approved",
            refuse="Sender ID refused",
            reopen="Sender ID decision reverted",
            remove="Sender ID deleted",
        ),
    ),
    "recipient": (
        "Sandbox recipients",
        _texts(add="Recipient verified", ask="Code sent to recipient", remove="Recipient removed"),
    ),
    "suppression": (
        "Suppressions",
        _texts(add="Address suppressed", remove="Suppression removed", import_="Suppressions imported"),
    ),
    "opt_out": ("Opt-outs", _texts(add="Number opted out", remove="Opt-out removed")),
    "unsubscribe": ("Unsubscribes", _texts(add="Address unsubscribed", remove="Address resubscribed")),
    "address": ("Personal data", _texts(erase="Address erased", export="Data of an address exported")),
    "message": (
        "Messages",
        _texts(
            resend="Message sent again",
            test="Test message sent",
            release="Message released",
            reject="Message rejected",
            redact="Message content deleted",
            delete="Message deleted",
        ),
    ),
    "inbox": ("Test inbox", _texts(clear="Test inbox cleared", delete="Test inbox message deleted")),
    "member": (
        "Members",
        _texts(
            invite="Member invited",
            accept="Invitation accepted",
            decline="Invitation declined",
            role="Role changed",
            remove="Member removed",
        ),
    ),
    "team": (
        "Team",
        _texts(
            create="Team created",
            change="Team changed",
            keep="Retention changed",
            categories="Email categories changed",
            plan="Plan changed",
            live="Team went live",
            sandbox="Team moved back to the sandbox",
            delete="Team deletion requested",
            restore="Team deletion canceled",
            erase="Team deleted",
            suspend="Team suspended",
            resume="Suspension lifted",
            approve="Team name approved",
            refuse="Team name refused",
            reopen="Team name decision reverted",
            test_clock="Test clock turned on or off",
            advance="Test clock moved",
        ),
    ),
    "portal": ("Portals", _texts(link="Portal link created", open="Portal opened")),
    "credit": ("Billing", _texts(book="Credit changed")),
    "reputation": (
        "Reputation",
        _texts(
            warn="High bounce or complaint rate",
            pause="Direct emails paused",
            clear="Reputation recovered",
            resume="Direct emails resumed",
        ),
    ),
    "account": (
        "Accounts",
        _texts(
            name="Name changed",
            password="Password changed",
            totp="Two-factor authentication changed",
            sessions="Signed out everywhere",
            sign_in="Signed in",
            passkey="Passkeys changed",
            provider="Identity provider connected",
            notices="Notices changed",
        ),
    ),
    "chat": (
        "Chat notices",
        _texts(set="Chat hook saved", remove="Chat hook removed", test="Chat hook tested"),
    ),
    "person": (
        "People",
        _texts(
            add="Person added",
            remove="Person removed",
            operator="Operator role changed",
            link="Sign-in link created",
            sessions="Person signed out",
            totp="Two-factor authentication turned off",
            provider="Identity provider disconnected",
        ),
    ),
    "link": (
        "Links",
        _texts(
            first="First operator link created", reset="Password reset link created", invite="Invitation link created"
        ),
    ),
    "operator": ("Operators", _texts(accept="Operator role accepted", decline="Operator role declined")),
    "carrier": (
        "Carriers",
        _texts(
            create="Carrier added",
            change="Carrier changed",
            edit="Carrier settings changed",
            remove="Carrier deleted",
            order="Carriers reordered",
            test="Carrier tested",
        ),
    ),
    "deadletter": ("Queues", _texts(retry="Dead letter retried", drop="Dead letter deleted")),
    "delivery": ("Delivery", _texts(pause="Delivery paused", resume="Delivery resumed")),
    "platform": ("Platform", _texts(change="Platform settings changed")),
    "setup": ("Setup", _texts(apply="Setup file applied")),
    "secret": ("Secret", _texts(replace="Master secret replaced", rotate="Master secret rotated")),
    "audit": (
        "Audit log",
        _texts(erase="Address erased from an entry", adopt="Unchained entries added"),
    ),
}


def action_text(action: str) -> str:
    """Return the text of an audit action; for an unknown action, its name in words."""
    area, _, verb = action.partition(".")
    _, texts = AREAS.get(area, ("", {}))
    fallback = action.replace(".", ": ").replace("_", " ")
    return texts.get(verb) or texts.get(f"{verb}_") or fallback[:1].upper() + fallback[1:]


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
