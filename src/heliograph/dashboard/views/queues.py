"""Queues of the instance: waiting messages, dead letters, and pausing all delivery."""

import msgspec

from heliograph.dashboard.live import Subscription
from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.render import format_count, format_number
from heliograph.dashboard.views import live as live_views
from heliograph.dashboard.views.live import open_stream, stream_url
from heliograph.domain.limits import CRASHES_MAX
from heliograph.domain.setup.records import Webhook
from heliograph.domain.text import parse_int
from heliograph.manage import dead_letters
from heliograph.manage.dead_letters import LETTERS_MAX
from heliograph.manage.pause import set_paused
from heliograph.storage.audit import NEWEST
from heliograph.storage.dead_letters import COUNT_MAX, FIRST_PAGE, PAGE_SIZE, DeadLetterKey, WebhookBacklog
from heliograph.storage.queues import PAGE_COUNT_MAX
from heliograph.texts.dashboard_links import operator_page

QUEUES_PATH = operator_page("delivery")
NOT_CONFIRMED = "Nothing was changed. Select the box to confirm that you mean all of them."
NOT_A_DEAD_LETTER = "This message is no longer a dead letter, or its content is no longer stored."


async def show(request: PageRequest) -> PageResponse:
    store, now = request.store, request.context.clock.now()
    before = DeadLetterKey.parse(request.query.get("before", "")) or FIRST_PAGE
    is_first = before.message == NEWEST
    live_url = await stream_url(request, f"{QUEUES_PATH}/live", queues_subscription(request)) if is_first else ""
    letters = await store.dead_letters.list_page(before)
    last_letter = letters[PAGE_SIZE - 1] if len(letters) > PAGE_SIZE else None
    return Page(
        "queues.html",
        {
            "live": live_url,
            "queues": await store.dead_letters.queues(now),
            "hooks": [(hook, _find_webhook(request, hook)) for hook in await store.dead_letters.webhook_backlogs()],
            "dead": letters[:PAGE_SIZE],
            "following": str(last_letter.key) if last_letter else "",
            "later": not is_first,
            "dead_count": await store.dead_letters.count() if letters else 0,
            "count_most": COUNT_MAX,
            "queue_most": PAGE_COUNT_MAX,
            "all_most": LETTERS_MAX,
            "now": now,
            "teams": request.setup.teams_by_ref,
            "paused": request.setup.platform.paused,
        },
    )


async def live(request: PageRequest) -> PageResponse:
    return open_stream(request, queues_subscription(request))


def queues_subscription(request: PageRequest) -> Subscription:
    return live_views.make_subscription(
        request, "queues", "", request.store.page_versions.queues_page, ("queues", "setup")
    )


async def pause(request: PageRequest) -> PageResponse:
    paused = request.form.get("paused") == "yes"
    await set_paused(request.store, request.actor, paused)
    return Redirect(
        QUEUES_PATH, "Delivery paused. Messages are accepted and queued." if paused else "Delivery resumed."
    )


# -- dead letters ----------------------------------------------------------------------------------------------


async def show_dead_letter(request: PageRequest) -> PageResponse:
    return await _dead_letter_page(request, _parse_dead_letter_key(request.params["place"]))


async def _dead_letter_page(request: PageRequest, letter_key: DeadLetterKey, error: str = "") -> Page:
    details = await request.store.dead_letters.find(letter_key)
    if details is None:
        raise PageNotFound
    steps = [(event, msgspec.json.decode(event.detail) if event.detail else {}) for event in details.events]
    values = {
        "letter": details.letter,
        "details": details,
        "failure": msgspec.json.decode(details.detail),
        "steps": steps,
        "deaths": CRASHES_MAX,
        "owner": request.setup.teams_by_ref.get(details.letter.team),
        "wrong": error,
    }
    return Page("dead_letter.html", values, 400 if error else 200)


async def retry(request: PageRequest) -> PageResponse:
    letter_key = _parse_dead_letter_key(request.form.get("place", ""))
    result = await dead_letters.retry(request.store, request.actor, letter_key)
    if result.unpaid:
        return await _dead_letter_page(request, letter_key, f"Not retried. {result.unpaid[0]}")
    return Redirect(QUEUES_PATH, "Message queued again." if result.requeued else NOT_A_DEAD_LETTER)


async def delete(request: PageRequest) -> PageResponse:
    is_deleted = await dead_letters.drop(
        request.store, request.actor, _parse_dead_letter_key(request.form.get("place", ""))
    )
    return Redirect(QUEUES_PATH, "Dead letter deleted. The message stays failed." if is_deleted else NOT_A_DEAD_LETTER)


async def retry_all(request: PageRequest) -> PageResponse:
    until = _confirmed_until(request)
    if until is None:
        return Redirect(QUEUES_PATH, NOT_CONFIRMED)
    result = await dead_letters.retry_all(request.store, request.actor, until)
    sentences = [f"{format_count(result.requeued, 'dead letter')} queued again."]
    if result.unpaid:
        sentences.append(f"Not enough credit for {format_number(len(result.unpaid))}: {result.unpaid[0]}")
    if result.missing:
        sentences.append(f"The content of {format_number(result.missing)} is no longer stored.")
    return Redirect(QUEUES_PATH, " ".join(sentences))


async def delete_all(request: PageRequest) -> PageResponse:
    until = _confirmed_until(request)
    if until is None:
        return Redirect(QUEUES_PATH, NOT_CONFIRMED)
    deleted_count = await dead_letters.drop_all(request.store, request.actor, until)
    return Redirect(QUEUES_PATH, f"{format_count(deleted_count, 'dead letter')} deleted. The messages stay failed.")


def _confirmed_until(request: PageRequest) -> int | None:
    """Return when the page counted the dead letters; None if the confirmation box is not selected.

    Later dead letters are not included.
    """
    return parse_int(request.form.get("until", ""), 15) if request.form.get("sure") == "yes" else None


def _find_webhook(request: PageRequest, hook: WebhookBacklog) -> Webhook | None:
    record = request.setup.records.get(("webhook", hook.webhook))
    return record if isinstance(record, Webhook) else None


def _parse_dead_letter_key(text: str) -> DeadLetterKey:
    key = DeadLetterKey.parse(text)
    if key is None:
        raise PageNotFound
    return key
