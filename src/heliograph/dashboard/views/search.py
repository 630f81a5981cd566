"""Search over all objects of a team; objects that the user may not open are not searched."""

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from heliograph.dashboard.navigation import FORMS, MenuPlace, searched
from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.dashboard.views.messages import lines_of, looked_for, page_of, search, typed
from heliograph.dashboard.views.suppressions import part_of
from heliograph.domain.search.trigrams import NEEDLE_MAX, fold
from heliograph.manage.keys import keys_of
from heliograph.storage.search.message_search import Search

MOST = 5  # maximum number of hits per kind


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    to: str
    icon: str
    about: str = ""
    state: str = ""
    at: int | None = None


class HitGroup(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    hits: list[Hit]
    more: str = ""  # link to all hits of this kind
    more_text: str = ""


async def show(visit: Visit) -> Answer:
    # a script requests only the hits while the user types
    text, is_part = typed(visit)[:NEEDLE_MAX], "part" in visit.query
    if text and not is_part and (page := await page_of(visit, text)):
        return Redirect(page)
    groups = [group for group in await _groups(visit, text) if group.hits]
    return Page("search_hits.html" if is_part else "search.html", {"q": text, "groups": groups})


async def _groups(visit: Visit, text: str) -> list[HitGroup]:
    part = fold(" ".join(text.split()))
    if not part:
        return [HitGroup(name="Actions", hits=_actions(visit, "")), HitGroup(name="Pages", hits=_pages(visit, ""))]
    return [
        HitGroup(name="Actions", hits=_actions(visit, part)[:MOST]),
        HitGroup(name="Pages", hits=_pages(visit, part)[:MOST]),
        await _messages(visit, text),
        await _verifications(visit, text),
        HitGroup(name="Templates", hits=_templates(visit, part)),
        HitGroup(name="Domains", hits=_domains(visit, part)),
        HitGroup(name="API keys", hits=_keys(visit, part) if visit.sees("developer") else []),
        HitGroup(name="Webhooks", hits=_webhooks(visit, part)),
        await _suppressions(visit, text),
        HitGroup(name="People", hits=await _people(visit, part)),
    ]


def _has(part: str, *texts: str) -> bool:
    """Return whether each word of `part` occurs in one of the texts."""
    whole = fold(" ".join(texts))
    return all(word in whole for word in part.split())


def _pages(visit: Visit, part: str) -> list[Hit]:
    return _places(visit, part, [one for one in searched() if visit.sees(one.need)])


def _actions(visit: Visit, part: str) -> list[Hit]:
    return _places(visit, part, [one for one in FORMS if visit.may(one.need)])


def _places(visit: Visit, part: str, places: Iterable[MenuPlace]) -> list[Hit]:
    """Return matching pages; matches in the name come before matches in the keywords."""
    known = [
        (not _has(part, one.name), Hit(name=one.name, to=one.address(visit.base), icon=one.icon))
        for one in places
        if _has(part, one.name, one.words)
    ]
    return [hit for _, hit in sorted(known, key=lambda one: one[0])]


async def _messages(visit: Visit, text: str) -> HitGroup:
    found = await search(visit, Search(limit=MOST, **looked_for(text)))
    hits = [
        Hit(
            name=line["about"],
            to=f"{visit.base}/messages/{line['id']}",
            icon=line["channel"],
            about=line["to"],
            state=line["status"],
            at=line["created_at"],
        )
        for line in await lines_of(visit, found.lines)
    ]
    more = f"{visit.base}/messages?q={_quoted(text)}" if found.after else ""
    return HitGroup(name="Messages", hits=hits, more=more, more_text="All messages")


async def _verifications(visit: Visit, text: str) -> HitGroup:
    phone = "".join(letter for letter in text if letter not in " -().")
    if not (phone.startswith("+") and phone[1:].isdigit() and phone.isascii()):
        return HitGroup(name="Verifications", hits=[])
    found = await visit.store.verifications.search(visit.team.record.ref, Search(limit=MOST, address=phone))
    hits = [
        Hit(
            name=line.phone,
            to=f"{visit.base}/verifications/{line.id}",
            icon="verify",
            state=line.status,
            at=line.created_at,
        )
        for line in found.lines
    ]
    more = f"{visit.base}/verifications?q={_quoted(phone)}" if found.after else ""
    return HitGroup(name="Verifications", hits=hits, more=more, more_text="All verifications")


def _templates(visit: Visit, part: str) -> list[Hit]:
    return _first(
        Hit(
            name=one.name,
            to=f"{visit.base}/templates/{one.id}",
            icon="template",
            about=CHANNEL_NAMES[one.channel],
        )
        for one in visit.team.templates.values()
        if _has(part, one.name, one.id)
    )


def _domains(visit: Visit, part: str) -> list[Hit]:
    return _first(
        Hit(name=one.name, to=f"{visit.base}/senders/domains/{one.id}", icon="domain", about=one.brand)
        for one in visit.team.domains.values()
        if _has(part, one.name, one.brand, one.id)
    )


def _keys(visit: Visit, part: str) -> list[Hit]:
    return _first(
        Hit(
            name=key.name,
            to=f"{visit.base}/keys/{key.id}",
            icon="key",
            about=f"hk_{key.id}_…",
            state="revoked" if key.revoked else "",
        )
        for key in keys_of(visit.setup, visit.team.record.id)
        if _has(part, key.name, f"hk_{key.id}_")
    )


def _webhooks(visit: Visit, part: str) -> list[Hit]:
    return _first(
        Hit(
            name=one.url,
            to=f"{visit.base}/webhooks/{one.id}",
            icon="webhook",
            about=one.description,
            state="" if one.enabled else "disabled",
        )
        for one in visit.team.webhooks
        if _has(part, one.url, one.description, one.id)
    )


async def _suppressions(visit: Visit, text: str) -> HitGroup:
    found = await visit.store.suppressions.search(visit.team.record.ref, part_of(text), limit=MOST)
    here = f"{visit.base}/suppressions"
    hits = [
        Hit(
            name=line.shown,
            to=f"{here}?q={_quoted(line.email)}",
            icon="suppression",
            about=line.reason,
            at=line.created_at,
        )
        for line in found.lines
    ]
    more = f"{here}?q={_quoted(text)}" if found.end and hits else ""
    return HitGroup(name="Suppressions", hits=hits, more=more, more_text="All suppressions")


async def _people(visit: Visit, part: str) -> list[Hit]:
    return _first(
        Hit(name=one.name or one.email, to=f"{visit.base}/team", icon="person", about=f"{one.email}, {one.role}")
        for one in await visit.store.people.members(visit.team.record.id)
        if _has(part, one.name, one.email)
    )


def _first(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: hit.name.casefold())[:MOST]


def _quoted(text: str) -> str:
    return quote(text, safe="")
