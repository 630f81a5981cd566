"""Queues of the instance: what waits, what is dead, and delivery as a whole held back."""

from collections.abc import AsyncIterator
from functools import partial

import msgspec

from heliograph.dashboard.live import Watch
from heliograph.dashboard.render import number, plural
from heliograph.dashboard.views.live import stream, stream_place, watch
from heliograph.dashboard.visit import Answer, Gone, Page, Redirect, Visit
from heliograph.manage.pause import set_paused
from heliograph.rules.limits import DEATHS_MAX
from heliograph.rules.setup.records import Webhook
from heliograph.storage import dead_letters, search
from heliograph.storage.audit import NEWEST
from heliograph.storage.dead_letters import COUNT_MOST, PAGE, PORTION, Place, Retried, WaitingHook

HERE = "/dashboard/operator/queues"
ALL_MOST = 1000  # dead letters that one click moves
NOT_SURE = "Nothing was done: tick the box to say that you mean all of them."
GONE = "It is no dead letter any more, or its content is no longer kept."


async def show(visit: Visit) -> Answer:
    database, now = visit.context.store.database, visit.context.clock.now()
    before = _place(visit.query.get("before", "")) or (NEWEST, 0)
    is_first = before[0] == NEWEST
    followed = await stream_place(visit, f"{HERE}/live", _watch(visit)) if is_first else ""
    dead = await database.read(lambda tx: dead_letters.dead_letters(tx, before))
    last = dead[PAGE - 1] if len(dead) > PAGE else None
    hooks = await database.read(dead_letters.waiting_hooks)
    return Page(
        "queues.html",
        {
            "live": followed,
            "queues": await database.read(lambda tx: dead_letters.queues(tx, now)),
            "hooks": [(hook, _webhook(visit, hook)) for hook in hooks],
            "dead": dead[:PAGE],
            "following": f"{last.message}-{last.position}" if last else "",
            "later": not is_first,
            "dead_count": await database.read(dead_letters.count_dead) if dead else 0,
            "count_most": COUNT_MOST,
            "all_most": ALL_MOST,
            "now": now,
            "teams": visit.setup.teams_by_ref,
            "paused": visit.setup.platform.paused,
        },
    )


async def live(visit: Visit) -> Answer:
    return stream(visit, _watch(visit))


def _watch(visit: Visit) -> Watch:
    return watch(visit, "queues", "", search.queues_pulse, ("queues", "setup"))


async def pause(visit: Visit) -> Answer:
    paused = visit.form.get("paused") == "yes"
    await set_paused(visit.context.store, visit.actor, paused)
    return Redirect(HERE, "Delivery is paused; messages are accepted and wait." if paused else "Delivery goes on.")


# -- dead letters ----------------------------------------------------------------------------------------------


async def show_dead(visit: Visit) -> Answer:
    return await _dead_page(visit, _place(visit.params["place"]))


async def _dead_page(visit: Visit, place: Place | None, wrong: str = "") -> Page:
    found = await visit.context.store.database.read(lambda tx: dead_letters.inspect(tx, place)) if place else None
    if found is None:
        raise Gone
    steps = [(event, msgspec.json.decode(event.detail) if event.detail else {}) for event in found.events]
    values = {
        "letter": found.letter,
        "found": found,
        "said": msgspec.json.decode(found.detail),
        "steps": steps,
        "deaths": DEATHS_MAX,
        "owner": visit.setup.teams_by_ref.get(found.letter.team),
        "wrong": wrong,
    }
    return Page("dead_letter.html", values, 400 if wrong else 200)


async def retry(visit: Visit) -> Answer:
    place = _place(visit.form.get("place", ""))
    if place is None:
        raise Gone
    done = await visit.context.store.dead_letters.retry([place], visit.entry("deadletter.retry", ""))
    if done.unpaid:
        return await _dead_page(visit, place, f"It was not tried again. {done.unpaid[0]}")
    visit.context.accepted()
    return Redirect(HERE, "It is in the queue again." if done.done else GONE)


async def drop(visit: Visit) -> Answer:
    place = _place(visit.form.get("place", ""))
    if place is None:
        raise Gone
    entry = visit.entry("deadletter.drop", "")
    done = await visit.context.store.database.write(lambda tx: dead_letters.drop(tx, [place], entry))
    return Redirect(HERE, "Dropped: it stays failed." if done else GONE)


async def retry_all(visit: Visit) -> Answer:
    if visit.form.get("sure") != "yes":
        return Redirect(HERE, NOT_SURE)
    done, entry = Retried(), visit.entry("deadletter.retry", "")
    async for places in _portions(visit):
        done = done.plus(await visit.context.store.dead_letters.retry(places, entry))
    visit.context.accepted()
    told = [f"{plural(done.done, 'dead letter')} put into the queue again."]
    if done.unpaid:
        told.append(f"The credit does not cover {number(len(done.unpaid))}: {done.unpaid[0]}")
    if done.gone:
        told.append(f"Of {number(done.gone)} the content is no longer kept.")
    return Redirect(HERE, " ".join(told))


async def drop_all(visit: Visit) -> Answer:
    if visit.form.get("sure") != "yes":
        return Redirect(HERE, NOT_SURE)
    done, entry = 0, visit.entry("deadletter.drop", "")
    async for places in _portions(visit):
        done += await visit.context.store.database.write(partial(dead_letters.drop, places=places, audit=entry))
    return Redirect(HERE, f"{plural(done, 'dead letter')} dropped: they stay failed.")


async def _portions(visit: Visit) -> AsyncIterator[list[Place]]:
    """Of those that the page had counted, each in a transaction of its own; no more than ALL_MOST in one request."""
    until, before = visit.form.get("until", ""), (NEWEST, 0)
    if not until.isascii() or not until.isdigit() or len(until) > 15:
        return
    for _ in range(ALL_MOST // PORTION):
        read = partial(dead_letters.dead_letters, before=before, limit=PORTION, until=int(until))
        places = [(letter.message, letter.position) for letter in await visit.context.store.database.read(read)]
        if places[:PORTION]:
            yield places[:PORTION]
        if len(places) <= PORTION:
            return
        before = places[PORTION - 1]


def _webhook(visit: Visit, hook: WaitingHook) -> Webhook | None:
    record = visit.setup.records.get(("webhook", hook.webhook))
    return record if isinstance(record, Webhook) else None


def _place(text: str) -> tuple[int, int] | None:
    """`message-position`."""
    parts = text.split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        return None
    return int(parts[0]), int(parts[1])
