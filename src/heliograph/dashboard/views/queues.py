"""Queues of the instance: what waits, what is dead, and delivery as a whole held back."""

from msgspec.structs import replace

from heliograph.dashboard.visit import Answer, Page, Redirect, Visit
from heliograph.rules.setup import PLATFORM_ID, Setup, to_row
from heliograph.rules.team import Webhook
from heliograph.storage import queues
from heliograph.storage.people import NEWEST
from heliograph.storage.queues import PAGE, WaitingHook
from heliograph.storage.store import SetupChange

HERE = "/dashboard/operator/queues"
GONE = "It is no dead letter any more, or its content is no longer kept."


async def show(visit: Visit) -> Answer:
    database, now = visit.desk.store.database, visit.desk.clock.now()
    before = _place(visit.query.get("before", "")) or (NEWEST, 0)
    dead = await database.read(lambda tx: queues.dead_letters(tx, before))
    last = dead[PAGE - 1] if len(dead) > PAGE else None
    hooks = await database.read(queues.waiting_hooks)
    return Page(
        "queues.html",
        {
            "queues": await database.read(lambda tx: queues.queues(tx, now)),
            "hooks": [(hook, _webhook(visit, hook)) for hook in hooks],
            "dead": dead[:PAGE],
            "following": f"{last.message}-{last.position}" if last else "",
            "later": before[0] != NEWEST,
            "teams": visit.setup.teams_by_ref,
            "paused": visit.setup.platform.paused,
        },
    )


async def pause(visit: Visit) -> Answer:
    paused = visit.form.get("paused") == "yes"

    def decide(current: Setup) -> SetupChange:
        platform = replace(current.platform, paused=paused)
        same = platform == current.platform
        return SetupChange(rows=() if same else [to_row("platform", PLATFORM_ID, platform, None)])

    await visit.change_setup("delivery.pause" if paused else "delivery.resume", "platform", decide)
    return Redirect(HERE, "Delivery is paused; messages are accepted and wait." if paused else "Delivery goes on.")


async def retry(visit: Visit) -> Answer:
    database, (message, position) = visit.desk.store.database, _place(visit.form.get("place", "")) or (0, 0)
    entry = visit.entry("deadletter.retry", visit.form.get("id", "")[:64])
    if not await database.write(lambda tx: queues.retry(tx, message, position, entry)):
        return Redirect(HERE, GONE)
    visit.desk.accepted()
    return Redirect(HERE, "It is in the queue again.")


async def drop(visit: Visit) -> Answer:
    database, (message, position) = visit.desk.store.database, _place(visit.form.get("place", "")) or (0, 0)
    entry = visit.entry("deadletter.drop", visit.form.get("id", "")[:64])
    done = await database.write(lambda tx: queues.drop(tx, message, position, entry))
    return Redirect(HERE, "Dropped: it stays failed." if done else GONE)


def _webhook(visit: Visit, hook: WaitingHook) -> Webhook | None:
    record = visit.setup.records.get(("webhook", hook.webhook))
    return record if isinstance(record, Webhook) else None


def _place(text: str) -> tuple[int, int] | None:
    """`message-position`."""
    parts = text.split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        return None
    return int(parts[0]), int(parts[1])
