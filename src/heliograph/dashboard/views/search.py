"""Search over all objects of a team; for operators, over the instance's teams, people and carriers.

Objects that the user must not open are not searched.
"""

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from heliograph.dashboard.navigation import (
    FORM_PAGES,
    OPERATOR_FORM_PAGES,
    OPERATOR_MENU,
    NavItem,
    iter_searchable_pages,
)
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.dashboard.views.messages import (
    build_rows,
    find_object_page,
    search_messages,
    search_text,
    text_criteria,
)
from heliograph.dashboard.views.suppressions import normalize_search
from heliograph.domain.search.trigrams import QUERY_MAX, normalize
from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS
from heliograph.manage.keys import keys_of
from heliograph.storage.search.message_search import Search
from heliograph.texts.dashboard_links import OPERATOR, operator_page, team_page

HITS_MAX = 5  # maximum hits per kind


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    icon: str
    detail: str = ""
    state: str = ""
    at: int | None = None


class HitGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Search results of one kind."""

    name: str
    hits: list[Hit]
    more_url: str = ""  # URL of all hits of this kind
    more_text: str = ""


async def show(request: PageRequest) -> PageResponse:
    # While the user types, a script requests only the hits (`part`), not the whole page.
    text, is_partial = search_text(request)[:QUERY_MAX], "part" in request.query
    if text and not is_partial and (object_page := await find_object_page(request, text)):
        return Redirect(object_page)
    groups = [group for group in await _search_groups(request, text) if group.hits]
    return Page("search_hits.html" if is_partial else "search.html", {"q": text, "groups": groups})


async def show_operator(request: PageRequest) -> PageResponse:
    text = search_text(request)[:QUERY_MAX]
    groups = [group for group in await _operator_groups(request, text) if group.hits]
    return Page("search_hits.html" if "part" in request.query else "search.html", {"q": text, "groups": groups})


async def _operator_groups(request: PageRequest, text: str) -> list[HitGroup]:
    needle = normalize(" ".join(text.split()))
    forms = OPERATOR_FORM_PAGES if request.has_role("operator") else ()
    pages = [
        HitGroup(name="Actions", hits=_nav_hits(request, needle, forms)),
        HitGroup(name="Pages", hits=_nav_hits(request, needle, OPERATOR_MENU)),
    ]
    if not needle:
        return pages
    return [
        HitGroup(name="Teams", hits=_team_hits(request, needle)),
        HitGroup(name="Domains", hits=_instance_domain_hits(request, needle)),
        HitGroup(name="People", hits=await _person_hits(request, text)),
        HitGroup(name="Carriers", hits=_carrier_hits(request, needle)),
        *pages,
    ]


def _team_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _sort_hits(
        Hit(
            name=team.record.name,
            url=f"{OPERATOR}/teams/{team.record.id}",
            icon="team",
            detail=team.record.id,
            state="suspended" if team.record.suspended else team.record.mode,
        )
        for team in request.setup.teams.values()
        if _matches(needle, team.record.name, team.record.id)
    )


def _instance_domain_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _sort_hits(
        Hit(
            name=domain.name,
            url=team_page(domain.team, "domain", domain.id),
            icon="domain",
            detail=team.record.name,
        )
        for team in request.setup.teams.values()
        for domain in team.domains.values()
        if _matches(needle, domain.name, domain.id)
    )


async def _person_hits(request: PageRequest, text: str) -> list[Hit]:
    rows = await request.store.people.list_rows(text, limit=HITS_MAX)
    return [
        Hit(name=row.name or row.email, url=f"{operator_page('person')}/{row.id}", icon="person", detail=row.email)
        for row in rows[:HITS_MAX]
    ]


def _carrier_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _sort_hits(
        Hit(
            name=carrier.id,
            url=f"{operator_page('carrier')}/{carrier.id}",
            icon="carrier",
            detail=f"{CHANNEL_NAMES[carrier.channel]}, {CARRIER_KINDS[carrier.channel, carrier.kind].title}",
            state="" if carrier.enabled else "disabled",
        )
        for carrier in request.setup.carriers
        if _matches(needle, carrier.id, carrier.kind, carrier.channel)
    )


async def _search_groups(request: PageRequest, text: str) -> list[HitGroup]:
    needle = normalize(" ".join(text.split()))
    if not needle:
        return [HitGroup(name="Actions", hits=_action_hits(request, "")), *_page_groups(request, "")]
    return [
        HitGroup(name="Actions", hits=_action_hits(request, needle)[:HITS_MAX]),
        *_page_groups(request, needle, HITS_MAX),
        await _message_hits(request, text),
        await _verification_hits(request, text),
        HitGroup(name="Templates", hits=_template_hits(request, needle)),
        HitGroup(name="Domains", hits=_domain_hits(request, needle)),
        HitGroup(name="API keys", hits=_key_hits(request, needle) if request.can_view("developer") else []),
        HitGroup(name="Webhooks", hits=_webhook_hits(request, needle)),
        await _suppression_hits(request, text),
        HitGroup(name="People", hits=await _member_hits(request, needle)),
    ]


def _matches(needle: str, *texts: str) -> bool:
    """Return whether each word of `needle` occurs in one of the texts."""
    haystack = normalize(" ".join(texts))
    return all(word in haystack for word in needle.split())


def _page_groups(request: PageRequest, needle: str, hits_max: int | None = None) -> list[HitGroup]:
    """Return the matching pages of the team and of the instance in two groups, because some have the same names."""
    pages = [item for item in iter_searchable_pages() if request.can_view(item.required_role)]
    team_pages = [item for item in pages if item.required_role != "operator"]
    operator_pages = [item for item in pages if item.required_role == "operator"]
    return [
        HitGroup(name=name, hits=_nav_hits(request, needle, items)[:hits_max])
        for name, items in (("Pages", team_pages), ("Operator pages", operator_pages))
    ]


def _action_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _nav_hits(request, needle, [item for item in FORM_PAGES if request.has_role(item.required_role)])


def _nav_hits(request: PageRequest, needle: str, items: Iterable[NavItem]) -> list[Hit]:
    """Return matching pages, those with a match in the name first."""
    team_path = request.team_path if request.team_or_none else ""
    ranked_hits = [
        (not _matches(needle, item.name), Hit(name=item.name, url=item.url(team_path), icon=item.icon))
        for item in items
        if _matches(needle, item.name, item.keywords)
    ]
    return [hit for _, hit in sorted(ranked_hits, key=lambda item: item[0])]


async def _message_hits(request: PageRequest, text: str) -> HitGroup:
    results = await search_messages(request, Search(limit=HITS_MAX, **text_criteria(text)))
    hits = [
        Hit(
            name=row["about"],
            url=f"{request.team_path}/messages/{row['id']}",
            icon=row["channel"],
            detail=row["to"],
            state=row["status"],
            at=row["created_at"],
        )
        for row in await build_rows(request, results.rows)
    ]
    more_url = f"{request.team_path}/messages?q={_quote(text)}" if results.after else ""
    return HitGroup(name="Messages", hits=hits, more_url=more_url, more_text="All messages")


async def _verification_hits(request: PageRequest, text: str) -> HitGroup:
    phone = "".join(character for character in text if character not in " -().")
    if not (phone.startswith("+") and phone[1:].isdigit() and phone.isascii()):
        return HitGroup(name="Verifications", hits=[])
    results = await request.store.verifications.search(request.team.record.ref, Search(limit=HITS_MAX, address=phone))
    hits = [
        Hit(
            name=verification.phone,
            url=f"{request.team_path}/verifications/{verification.id}",
            icon="verify",
            state=verification.status,
            at=verification.created_at,
        )
        for verification in results.rows
    ]
    more_url = f"{request.team_path}/verifications?q={_quote(phone)}" if results.after else ""
    return HitGroup(name="Verifications", hits=hits, more_url=more_url, more_text="All verifications")


def _template_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _sort_hits(
        Hit(
            name=template.name,
            url=f"{request.team_path}/templates/{template.id}",
            icon="template",
            detail=CHANNEL_NAMES[template.channel],
        )
        for template in request.team.templates.values()
        if _matches(needle, template.name, template.id)
    )


def _domain_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _sort_hits(
        Hit(
            name=domain.name, url=f"{request.team_path}/senders/domains/{domain.id}", icon="domain", detail=domain.brand
        )
        for domain in request.team.domains.values()
        if _matches(needle, domain.name, domain.brand, domain.id)
    )


def _key_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _sort_hits(
        Hit(
            name=key.name,
            url=f"{request.team_path}/keys/{key.id}",
            icon="key",
            detail=f"hk_{key.id}_…",
            state="revoked" if key.revoked else "",
        )
        for key in keys_of(request.setup, request.team.record.id)
        if _matches(needle, key.name, f"hk_{key.id}_")
    )


def _webhook_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _sort_hits(
        Hit(
            name=webhook.url,
            url=f"{request.team_path}/webhooks/{webhook.id}",
            icon="webhook",
            detail=webhook.description,
            state="" if webhook.enabled else "disabled",
        )
        for webhook in request.team.webhooks
        if _matches(needle, webhook.url, webhook.description, webhook.id)
    )


async def _suppression_hits(request: PageRequest, text: str) -> HitGroup:
    results = await request.store.suppressions.search(request.team.record.ref, normalize_search(text), limit=HITS_MAX)
    list_url = f"{request.team_path}/suppressions"
    hits = [
        Hit(
            name=suppression.shown_address,
            url=f"{list_url}?q={_quote(suppression.email)}",
            icon="suppression",
            detail=suppression.reason,
            at=suppression.created_at,
        )
        for suppression in results.rows
    ]
    more_url = f"{list_url}?q={_quote(text)}" if results.next_cursor and hits else ""
    return HitGroup(name="Suppressions", hits=hits, more_url=more_url, more_text="All suppressions")


async def _member_hits(request: PageRequest, needle: str) -> list[Hit]:
    return _sort_hits(
        Hit(
            name=member.name or member.email,
            url=f"{request.team_path}/team",
            icon="person",
            detail=f"{member.email}, {member.role}",
        )
        for member in await request.store.people.list_members(request.team.record.id)
        if _matches(needle, member.name, member.email)
    )


def _sort_hits(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: hit.name.casefold())[:HITS_MAX]


def _quote(text: str) -> str:
    return quote(text, safe="")
