"""Status of WhatsApp templates at Meta: updates, affected templates, and whether one can be sent (contract 17)."""

import msgspec

from heliograph.domain.refusals import TemplateUnavailable
from heliograph.domain.setup.records import Team, Template, UpstreamState, UpstreamTemplate
from heliograph.templates.policy.locales import in_locale

UNAVAILABLE: tuple[UpstreamState, ...] = ("rejected", "paused", "disabled")


class UpstreamNews(msgspec.Struct, frozen=True, kw_only=True):
    """Update from Meta about a template: its status or its quality rating."""

    name: str
    language: str
    at: int  # ms: time of the change according to Meta
    status: UpstreamState | None = None
    reason: str = ""
    quality: str = ""


def upstream_of(team: Team, template: Template) -> UpstreamTemplate | None:
    """Return Meta's status of a template in its locale; None if Meta has reported nothing."""
    return team.upstream.get(_named(template)) if template.channel == "whatsapp" else None


def known_of(team: Team, template: Template) -> list[UpstreamTemplate]:
    """Return Meta's status of a template in each of its languages."""
    found = [team.upstream.get(name) for name in dict.fromkeys(_names(template))]
    return [one for one in found if one] if template.channel == "whatsapp" else []


def is_available(team: Team, template: Template) -> bool:
    return template.channel != "whatsapp" or unavailable(team, *_named(template)) is None


def unavailable(team: Team, name: str, language: str) -> UpstreamTemplate | None:
    """Return the status of the template with this name at Meta if it cannot be sent; else None."""
    found = team.upstream.get((name, language))
    return found if found and found.status in UNAVAILABLE else None


def check_available(team: Team, template: Template) -> None:
    found = unavailable(team, *_named(template)) if template.channel == "whatsapp" else None
    if found is None:
        return
    why = f": {found.reason}" if found.reason else ""
    raise TemplateUnavailable(
        f"Meta has {found.status} the template {template.id}{why}. {TemplateUnavailable.fix}",
        param="template_id",
        details={"upstream_status": found.status, "upstream_reason": found.reason or None},
    )


def named_by(team: Team, news: UpstreamNews) -> list[Template]:
    """Return the team's templates that an update is about."""
    return sent_as(team, news.name, news.language)


def sent_as(team: Team, name: str, language: str) -> list[Template]:
    """Return the team's templates that are sent under this name and language at Meta."""
    return [one for one in team.templates.values() if one.channel == "whatsapp" and (name, language) in _names(one)]


def category_of(team: Team, name: str, language: str) -> str | None:
    """Return the category of the templates with this name and language; MARKETING if any of them has it."""
    categories = [one.category for one in sent_as(team, name, language)]
    return "MARKETING" if "MARKETING" in categories else next(iter(categories), None)


def after(news: UpstreamNews, team: Team) -> UpstreamTemplate | None:
    """Return the status after an update; None if the update is a repetition or older than the known status."""
    fresh = UpstreamTemplate(team=team.record.id, name=news.name, language=news.language)
    known = team.upstream.get((news.name, news.language), fresh)
    if news.at < (known.at if news.status else known.quality_at):
        return None
    if news.status:
        new = msgspec.structs.replace(known, status=news.status, reason=news.reason, at=news.at)
    else:
        new = msgspec.structs.replace(known, quality=news.quality, quality_at=news.at)
    return None if known is not fresh and _told(new) == _told(known) else new


def _told(one: UpstreamTemplate) -> tuple[str, str, str]:
    return one.status, one.reason, one.quality


def changed_data(template: Template, old: UpstreamTemplate | None, new: UpstreamTemplate) -> dict[str, str | None]:
    """Return the data of the event `template.status_changed`."""
    return {
        "object": "template",
        "id": template.id,
        "name": template.name,
        "channel": template.channel,
        "upstream_name": new.name,
        "language": new.language,
        "upstream_status": new.status,
        "upstream_reason": new.reason or None,
        "upstream_quality": new.quality or None,
        "previous_upstream_status": old.status if old else None,
    }


def _named(template: Template) -> tuple[str, str]:
    return template.upstream_name or template.name, template.language or "en"


def _names(template: Template) -> list[tuple[str, str]]:
    return [_named(template), *(_named(in_locale(template, locale)) for locale in template.locales)]
