"""Status of WhatsApp templates at Meta: updates, affected templates, and whether one can be sent (contract 17)."""

import msgspec

from heliograph.domain.refusals import TemplateUnavailable
from heliograph.domain.setup.records import Team, Template, UpstreamState, UpstreamTemplate
from heliograph.templates.policy.locales import localize

UNAVAILABLE_STATES: tuple[UpstreamState, ...] = ("rejected", "paused", "disabled")


class UpstreamUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Update from Meta about a template: its status or its quality rating."""

    name: str
    language: str
    at: int  # ms: time of the change according to Meta
    status: UpstreamState | None = None
    reason: str = ""
    quality: str = ""


def get_status(team: Team, template: Template) -> UpstreamTemplate | None:
    """Return a WhatsApp template's status at Meta in its locale; None if Meta has not reported a status."""
    return team.upstream.get(_meta_name(template)) if template.channel == "whatsapp" else None


def list_statuses(team: Team, template: Template) -> list[UpstreamTemplate]:
    """Return a WhatsApp template's status at Meta in each of its languages."""
    statuses = [team.upstream.get(name) for name in dict.fromkeys(_meta_names(template))]
    return [status for status in statuses if status] if template.channel == "whatsapp" else []


def is_available(team: Team, template: Template) -> bool:
    return template.channel != "whatsapp" or find_unavailable(team, *_meta_name(template)) is None


def find_unavailable(team: Team, name: str, language: str) -> UpstreamTemplate | None:
    """Return the status of the template with this name at Meta if it cannot be sent; None if it can."""
    status = team.upstream.get((name, language))
    return status if status and status.status in UNAVAILABLE_STATES else None


def check_available(team: Team, template: Template) -> None:
    status = find_unavailable(team, *_meta_name(template)) if template.channel == "whatsapp" else None
    if status is None:
        return
    suffix = f": {status.reason}" if status.reason else ""
    raise TemplateUnavailable(
        f"Meta has {status.status} the template {template.id}{suffix}. {TemplateUnavailable.fix}",
        param="template_id",
        details={"upstream_status": status.status, "upstream_reason": status.reason or None},
    )


def templates_of_update(team: Team, update: UpstreamUpdate) -> list[Template]:
    """Return the team's templates to which an update from Meta applies."""
    return templates_by_meta_name(team, update.name, update.language)


def templates_by_meta_name(team: Team, name: str, language: str) -> list[Template]:
    """Return the team's templates that are sent under this name and language at Meta."""
    return [
        template
        for template in team.templates.values()
        if template.channel == "whatsapp" and (name, language) in _meta_names(template)
    ]


def category_of(team: Team, name: str, language: str) -> str | None:
    """Return Meta's category of the templates with this name and language; MARKETING if any of them has it."""
    categories = [template.category for template in templates_by_meta_name(team, name, language)]
    return "MARKETING" if "MARKETING" in categories else next(iter(categories), None)


def apply_update(update: UpstreamUpdate, team: Team) -> UpstreamTemplate | None:
    """Return a template's status after an update; None if the update is repeated or older than the known status."""
    initial = UpstreamTemplate(team=team.record.id, name=update.name, language=update.language)
    known_status = team.upstream.get((update.name, update.language), initial)
    if update.at < (known_status.at if update.status else known_status.quality_at):
        return None
    if update.status:
        new = msgspec.structs.replace(known_status, status=update.status, reason=update.reason, at=update.at)
    else:
        new = msgspec.structs.replace(known_status, quality=update.quality, quality_at=update.at)
    return None if known_status is not initial and _reported_fields(new) == _reported_fields(known_status) else new


def _reported_fields(status: UpstreamTemplate) -> tuple[str, str, str]:
    return status.status, status.reason, status.quality


def _meta_name(template: Template) -> tuple[str, str]:
    return template.upstream_name or template.name, template.language or "en"


def _meta_names(template: Template) -> list[tuple[str, str]]:
    return [_meta_name(template), *(_meta_name(localize(template, locale)) for locale in template.locales)]
