"""Queues of the instance: waiting messages, dead letters, and pausing of all delivery."""

import msgspec

from heliograph.dashboard.live import Watch
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit
from heliograph.dashboard.render import number, plural
from heliograph.dashboard.views import live as live_views
from heliograph.dashboard.views.live import stream, stream_address
from heliograph.domain.limits import DEATHS_MAX
from heliograph.domain.setup.records import Webhook
from heliograph.domain.text import whole_number
from heliograph.manage import dead_letters
from heliograph.manage.dead_letters import ALL_MOST
from heliograph.manage.pause import set_paused
from heliograph.storage.audit import NEWEST
from heliograph.storage.dead_letters import COUNT_MOST, FIRST, PAGE, LetterKey, WaitingHook
from heliograph.storage.queues import PAGE_MOST
from heliograph.texts.dashboard_links import of_instance

HERE = of_instance("delivery")
NOT_SURE = "Nothing was done: tick the box to say that you mean all of them."
GONE = "It is no dead letter any more, or its content is no longer kept."


async def show(visit: Visit) -> Answer:
    store, now = visit.store, visit.context.clock.now()
    before = LetterKey.parse(visit.query.get("before", "")) or FIRST
    is_first = before.message == NEWEST
    followed = await stream_address(visit, f"{HERE}/live", watch(visit)) if is_first else ""
    dead = await store.dead_letters.page(before)
    last = dead[PAGE - 1] if len(dead) > PAGE else None
    return Page(
        "queues.html",
        {
            "live": followed,
            "queues": await store.dead_letters.queues(now),
            "hooks": [(hook, _webhook(visit, hook)) for hook in await store.dead_letters.waiting_hooks()],
            "dead": dead[:PAGE],
            "following": str(last.key) if last else "",
            "later": not is_first,
            "dead_count": await store.dead_letters.count() if dead else 0,
            "count_most": COUNT_MOST,
            "queue_most": PAGE_MOST,
            "all_most": ALL_MOST,
            "now": now,
            "teams": visit.setup.teams_by_ref,
            "paused": visit.setup.platform.paused,
        },
    )


async def live(visit: Visit) -> Answer:
    return stream(visit, watch(visit))


def watch(visit: Visit) -> Watch:
    return live_views.watch(visit, "queues", "", visit.store.pulses.queues, ("queues", "setup"))


async def pause(visit: Visit) -> Answer:
    paused = visit.form.get("paused") == "yes"
    await set_paused(visit.store, visit.actor, paused)
    return Redirect(HERE, "Delivery is paused; messages are accepted and wait." if paused else "Delivery resumed.")


# -- dead letters ----------------------------------------------------------------------------------------------


async def show_dead(visit: Visit) -> Answer:
    return await _dead_page(visit, _wanted(visit.params["place"]))


async def _dead_page(visit: Visit, letter: LetterKey, wrong: str = "") -> Page:
    found = await visit.store.dead_letters.find(letter)
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
    letter = _wanted(visit.form.get("place", ""))
    done = await dead_letters.retry(visit.store, visit.actor, letter)
    if done.unpaid:
        return await _dead_page(visit, letter, f"It was not tried again. {done.unpaid[0]}")
    return Redirect(HERE, "It is in the queue again." if done.done else GONE)


async def drop(visit: Visit) -> Answer:
    done = await dead_letters.drop(visit.store, visit.actor, _wanted(visit.form.get("place", "")))
    return Redirect(HERE, "Deleted: the message stays failed." if done else GONE)


async def retry_all(visit: Visit) -> Answer:
    until = _sure_until(visit)
    if until is None:
        return Redirect(HERE, NOT_SURE)
    done = await dead_letters.retry_all(visit.store, visit.actor, until)
    told = [f"{plural(done.done, 'dead letter')} put into the queue again."]
    if done.unpaid:
        told.append(f"The credit does not cover {number(len(done.unpaid))}: {done.unpaid[0]}")
    if done.gone:
        told.append(f"Of {number(done.gone)} the content is no longer kept.")
    return Redirect(HERE, " ".join(told))


async def drop_all(visit: Visit) -> Answer:
    until = _sure_until(visit)
    if until is None:
        return Redirect(HERE, NOT_SURE)
    done = await dead_letters.drop_all(visit.store, visit.actor, until)
    return Redirect(HERE, f"{plural(done, 'dead letter')} deleted: the messages stay failed.")


def _sure_until(visit: Visit) -> int | None:
    """Return the time at which the page counted the dead letters; None if the confirmation box is not ticked."""
    return whole_number(visit.form.get("until", ""), 15) if visit.form.get("sure") == "yes" else None


def _webhook(visit: Visit, hook: WaitingHook) -> Webhook | None:
    record = visit.setup.records.get(("webhook", hook.webhook))
    return record if isinstance(record, Webhook) else None


def _wanted(text: str) -> LetterKey:
    letter = LetterKey.parse(text)
    if letter is None:
        raise Gone
    return letter
