"""Plain-English texts of audit log entries: action, subject, actor and link to the subject's page. Pure functions."""

from functools import partial
from typing import NamedTuple

from heliograph.domain.ids import PREFIXES
from heliograph.domain.setup.records import CarrierRecord, Key, Team
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.audit import AuditLine
from heliograph.texts import dashboard_links


def _all(**verbs: str) -> dict[str, str]:
    return verbs


# Area → (display name, verb → text of the action).
AREAS: dict[str, tuple[str, dict[str, str]]] = {
    "key": ("API keys", _all(create="API key created", revoke="API key revoked", rotate="API key rotated")),
    "webhook": (
        "Webhooks",
        _all(
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
        _all(
            save="Template saved",
            publish="Template published",
            submit="Template approval requested",
            approve="Template approved",
            refuse="Template refused",
            reopen="Decision about a template taken back",
            restore="Template version restored",
            archive="Template archived",
            unarchive="Template taken from the archive",
            discard="Draft discarded",
            duplicate="Template duplicated",
            test="Template test sent",
            upstream_approved="Meta takes the template",
            upstream_pending="Meta looks at the template",
            upstream_rejected="Meta rejected the template",
            upstream_paused="Meta paused the template",
            upstream_disabled="Meta disabled the template",
            upstream_quality="Meta rates the template anew",
        ),
    ),
    "layout": (
        "Layouts",
        _all(
            save="Layout saved",
            submit="Layout approval requested",
            publish="Layout published",
            approve="Layout approved",
            refuse="Layout refused",
            reopen="Decision about a layout taken back",
            archive="Layout archived",
        ),
    ),
    "domain": (
        "Domains",
        _all(
            add="Domain added",
            remove="Domain deleted",
            verified="Domain verified",
            failed="Domain no longer verified",
            approve="Domain approved",
            refuse="Domain refused",
            reopen="Decision about a domain taken back",
            submit="Domain approval requested",
            rotate="DKIM keys rotated",
            keys="DKIM keys changed",
            brand="Brand name changed",
            check="Domain checked",
        ),
    ),
    "display_name": (
        "Display names",
        _all(
            submit="Display name requested",
            approve="Display name approved",
            refuse="Display name refused",
            reopen="Decision about a display name taken back",
            remove="Display name deleted",
        ),
    ),
    "sender_id": (
        "SMS sender IDs",
        _all(
            submit="Sender ID requested",
            approve="Sender ID approved",
            refuse="Sender ID refused",
            reopen="Decision about a sender ID taken back",
            remove="Sender ID deleted",
        ),
    ),
    "recipient": (
        "Sandbox recipients",
        _all(add="Recipient verified", ask="Recipient asked for a code", remove="Recipient removed"),
    ),
    "suppression": (
        "Suppressions",
        _all(add="Address suppressed", remove="Suppression removed", import_="Suppressions imported"),
    ),
    "opt_out": ("Opt-outs", _all(add="Phone opted out", remove="Opt-out removed")),
    "address": ("Personal data", _all(erase="Address erased", export="Data of an address exported")),
    "message": (
        "Messages",
        _all(
            resend="Message sent again",
            test="Test message sent",
            redact="Message content deleted",
            delete="Message deleted",
        ),
    ),
    "inbox": ("Test inbox", _all(clear="Test inbox cleared", delete="Test inbox message deleted")),
    "member": (
        "Members",
        _all(
            invite="Member invited",
            accept="Invitation accepted",
            decline="Invitation declined",
            role="Role changed",
            remove="Member removed",
        ),
    ),
    "team": (
        "Team",
        _all(
            create="Team created",
            change="Team changed",
            keep="Retention changed",
            plan="Plan changed",
            live="Team went live",
            sandbox="Team went back to the sandbox",
            suspend="Team suspended",
            resume="Suspension lifted",
            approve="Team name approved",
            refuse="Team name refused",
            reopen="Decision about a team name taken back",
            test_clock="Test clock turned on or off",
            advance="Test clock moved",
        ),
    ),
    "credit": ("Billing", _all(book="Credit booked")),
    "reputation": (
        "Reputation",
        _all(
            warn="Bounce or complaint rate high",
            pause="Direct emails paused",
            clear="Reputation good again",
            resume="Direct emails resumed",
        ),
    ),
    "account": (
        "Accounts",
        _all(
            name="Name changed",
            password="Password changed",
            totp="Two-factor authentication changed",
            sessions="Signed out everywhere",
            sign_in="Signed in",
            passkey="Passkeys changed",
            provider="Connected to the identity provider",
            notices="Notices changed",
        ),
    ),
    "chat": (
        "Chat notices",
        _all(set="Chat for notices saved", remove="Chat for notices removed", test="Chat for notices tested"),
    ),
    "person": (
        "People",
        _all(
            add="Person added",
            remove="Person removed",
            operator="Operator role changed",
            link="Sign-in link created",
            sessions="Person signed out",
            totp="Two-factor authentication turned off",
            provider="Disconnected from the identity provider",
        ),
    ),
    "link": (
        "Links",
        _all(first="Link for the first operator", reset="Password link created", invite="Invitation link created"),
    ),
    "operator": ("Operators", _all(accept="Operator role accepted", decline="Operator role declined")),
    "carrier": (
        "Carriers",
        _all(
            add="Carrier added",
            create="Carrier added",
            change="Carrier changed",
            edit="Carrier settings changed",
            remove="Carrier deleted",
            order="Carriers reordered",
            test="Carrier tested",
        ),
    ),
    "deadletter": ("Queues", _all(retry="Parked message tried again", drop="Parked message dropped")),
    "delivery": ("Delivery", _all(pause="Delivery paused", resume="Delivery resumed")),
    "platform": ("Platform", _all(change="Platform settings changed")),
    "setup": ("Setup", _all(apply="Setup file applied")),
    "secret": ("Secret", _all(replace="Master secret replaced", rotate="Master secret rotated")),
    "audit": (
        "Audit log",
        _all(erase="Address erased in an entry", adopt="Unchained entries taken in"),
    ),
}


def in_words(action: str) -> str:
    """Return the text of an audit action; an unknown action is spelled out from its name."""
    area, _, verb = action.partition(".")
    _, known = AREAS.get(area, ("", {}))
    fallback = action.replace(".", ": ").replace("_", " ")
    return known.get(verb) or known.get(f"{verb}_") or fallback[:1].upper() + fallback[1:]


class Subject(NamedTuple):
    """Subject of an audit entry: the object that was changed."""

    text: str
    page: str = ""  # empty if there is no page or the reader may not open it
    detail: str = ""


def subject_of(line: AuditLine, setup: Setup, operator: bool) -> Subject:
    """Return the subject of an audit entry, with a link to its page if the reader may open it."""
    area = line.action.partition(".")[0]
    team = setup.teams.get(line.team or "")
    detail = line.detail
    if area == "carrier" and isinstance(setup.records.get(("carrier", line.subject)), CarrierRecord):
        return Subject(line.subject, dashboard_links.of_instance("carrier") if operator else "", detail)
    if team is None:
        return Subject(line.subject, _operator_page(area, operator), detail)
    here = partial(dashboard_links.of_team, team.record.id)
    if area in ("team", "reputation"):
        return Subject(team.record.name, here("" if area == "team" else area), detail)
    if area == "key":
        key = setup.records.get(("key", line.detail))
        return Subject(line.subject, here("key", line.detail) if isinstance(key, Key) else "")
    if area == "template" and line.subject in team.templates:
        return Subject(team.templates[line.subject].name, here("template", line.subject), detail)
    if line.subject.startswith(tuple(PREFIXES[channel] for channel in ("email", "sms", "whatsapp"))):
        return Subject(line.subject, here("message", line.subject), detail)
    name = team.record.name if line.subject == team.record.id else line.subject
    is_listed = area in dashboard_links.OF_TEAM and area not in ("template", "message")
    return Subject(name, here(area, _own_id(team, line)) if is_listed else _operator_page(area, operator), detail)


def _operator_page(area: str, operator: bool) -> str:
    return (
        dashboard_links.of_instance(area)
        if operator and area in dashboard_links.OF_INSTANCE and area != "carrier"
        else ""
    )


def _own_id(team: Team, line: AuditLine) -> str:
    """Return the id of the webhook or domain that an audit entry names by URL or domain name; empty if not found."""
    if line.action.startswith("webhook."):
        return next((hook.id for hook in team.webhooks if hook.url == line.subject), "")
    domain = team.domains.get(line.subject) if line.action.startswith("domain.") else None
    return domain.id if domain else ""


def actor_of(line: AuditLine, setup: Setup) -> str:
    """Return the display name of the actor of an audit entry."""
    if line.email:
        return line.name or line.email
    kind, _, id_ = line.by.partition(" ")
    if kind == "key":
        key = setup.records.get(("key", id_))
        return f"API key {key.name}" if isinstance(key, Key) else f"API key {id_}"
    return {"command line": "Command line", "service": "Heliograph"}.get(line.by, line.by)
