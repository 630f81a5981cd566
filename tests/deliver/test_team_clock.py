"""Six days by a team's test clock equal six real days: the same events in the same order at the same times.

A live team in the same service is not affected.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from heliograph.accept.email import EmailRequest, send_email
from heliograph.accept.verify_start import VerifyRequest, find_verification, start_verification
from heliograph.app import App, build
from heliograph.bootstrap import make_secrets, open_store
from heliograph.cli.apply import apply_file
from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS, HOUR_MS, SECOND_MS, VERIFICATION_MS
from heliograph.domain.setup.records import Caller, Team
from heliograph.domain.setup.setup_file import parse_setup_file
from heliograph.manage import team_clock
from heliograph.settings import Settings
from heliograph.storage.queues import QUEUES_AND_HELD
from tests.carriers.hook_receiver import Receiver
from tests.clocks import TestClock
from tests.service import PATIENCE_S

pytestmark = pytest.mark.anyio
LATE_MS = 20 * SECOND_MS  # delay of a busy machine
TEAM = """
[[teams]]
id = "{id}"
mode = "{mode}"
test_clock = {on}
features = ["verify"]
  [[teams.keys]]
  name = "server"
  [[teams.webhooks]]
  url = "{url}"
  events = ["email.delivered"]
"""
DOMAIN = """
  [[teams.domains]]
  id = "dom_live"
  name = "live.test"
  brand = "Live"
  verified = true
  approved = true
"""


@pytest.fixture
async def app(settings: Settings, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    """Start without jitter, so that two runs have equal times."""
    monkeypatch.setattr(clock, "randbelow", lambda limit: limit // 2)
    settings = msgspec.structs.replace(settings, webhook_allow_private=("127.0.0.0/8",))
    secrets = make_secrets(settings)
    async with open_store(settings, clock, "seat/0", secrets) as store, Receiver(("500",)) as receiver:
        teams = [
            TEAM.format(id=id_, on=on, mode=mode, url=receiver.url)
            for id_, on, mode in (
                ("team_clocked", "true", "sandbox"),
                ("team_plain", "false", "sandbox"),
                ("team_live", "false", "live"),
            )
        ]
        await apply_file(store, settings, parse_setup_file("".join([*teams, DOMAIN]), {}))
        app = build(settings, "all", secrets, store, clock)
        names = ("worker", "webhooks", "delays", "test clocks")
        tasks = [asyncio.ensure_future(app.jobs[name]()) for name in names]
        yield app
        for worker in app.workers:
            await worker.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await app.close()


class Run:
    """What a team sends, and the events that it receives."""

    def __init__(self, app: App, id_: str) -> None:
        self.context, self.store, self.id = app.context, app.context.store, id_
        self.started_at = self.context.clock.team_now(self.team.record.ref)

    @property
    def team(self) -> Team:
        return self.store.setup.current.teams[self.id]

    @property
    def caller(self) -> Caller:
        return next(caller for caller in self.store.setup.current.callers.values() if caller.team is self.team)

    async def send(self, to: str, **fields: Any) -> None:
        await send_email(self.context, self.caller, EmailRequest(to=to, subject="Hello", text="Hi", **fields), None)

    async def send_all(self) -> None:
        await self.send("deferred@simulator.test")
        await self.send("softbounce@simulator.test")
        self.code = (await start_verification(self.context, self.caller, VerifyRequest(to="+15005550006"), None)).id
        expires = timestamp(self.started_at + 3 * HOUR_MS)
        await self.send("deferred+late@simulator.test", expires_at=expires)
        for hours in (30, 7):
            await self.send(
                f"delivered+{hours}@simulator.test", scheduled_at=timestamp(self.started_at + hours * HOUR_MS)
            )

    async def verification_status(self) -> tuple[str, int]:
        """Return the verification's state, and when it became final."""
        verification = await find_verification(self.context, self.caller, self.code)
        return verification.status, (verification.expires_at - self.started_at) // LATE_MS

    async def order(self) -> list[tuple[str, str]]:
        feed = await self.store.events.feed(self.team.record.ref, "", 100)
        return [(event.type, event.recipient or "") for event in feed]

    async def timeline(self) -> list[tuple[str, str, int]]:
        """Return each event and webhook attempt: type, subject, and time since the start."""
        ref, (hook,) = self.team.record.ref, self.team.webhooks
        observed = [(e.type, e.recipient or "", e.created_at) for e in await self.store.events.feed(ref, "", 100)]
        assert observed == sorted(observed, key=lambda item: item[2]), "the feed is in the order of times"
        for delivery in await self.store.deliveries.list_page(hook.id, None, 100):
            observed += [(f"{delivery.type} {item.number}", delivery.event, item.at) for item in delivery.attempts]
        names = {
            event: str(number)
            for number, event in enumerate(sorted({peer_info for _, peer_info, _ in observed if "evt_" in peer_info}))
        }
        events = [(kind, names.get(peer_info, peer_info), at - self.started_at) for kind, peer_info, at in observed]
        return sorted(events, key=lambda item: item[:2])

    async def due(self) -> int | None:
        parameters = {
            "team": self.team.record.ref,
            "lanes": QUEUES_AND_HELD,
            "webhooks": [(hook.id,) for hook in self.team.webhooks],
        }
        ((due,),) = await self.store.database.read(lambda tx: tx.run("next_due", **parameters))
        return None if due is None else int(due)


async def test_six_days_by_test_clock_equal_six_days_by_real_clock(app: App, clock: TestClock) -> None:
    async with asyncio.timeout(PATIENCE_S):
        moved, live = Run(app, "team_clocked"), Run(app, "team_live")
        await live.send("delivered@simulator.test", from_="hello@live.test")
        await live.send(
            "delivered@simulator.test", from_="hello@live.test", scheduled_at=timestamp(live.started_at + HOUR_MS)
        )
        while ("email.delivered", "delivered@simulator.test") not in await live.order():
            await asyncio.sleep(0.02)
        noticed = await live.order()
        await moved.send_all()
        await team_clock.advance(moved.store, SERVICE, moved.team, 6 * DAY_MS // SECOND_MS)
        while moved.store.setup.current.advancing_teams:
            await asyncio.sleep(0.02)
        assert await live.order() == noticed
        plain = Run(app, "team_plain")
        await plain.send_all()
        end = plain.started_at + 6 * DAY_MS
        while (due := await plain.due()) is not None and due <= end:
            clock.forward(due - clock.now())
            plain.store.wakeups.receive()
            await asyncio.sleep(0.02)
        clock.forward(end - clock.now())
        actual, expected = await moved.timeline(), await plain.timeline()
        assert await moved.order() == await plain.order()
        assert (
            await moved.verification_status()
            == await plain.verification_status()
            == ("expired", VERIFICATION_MS // LATE_MS)
        )
    assert [event[:2] for event in actual] == [event[:2] for event in expected]
    assert {"email.delayed", "email.failed", "email.delivered", "email.delivered 10"} <= {kind for kind, _, _ in actual}
    assert ("email.failed", "deferred+late@simulator.test") in {event[:2] for event in actual}
    differing = [
        (event, other) for event, other in zip(actual, expected, strict=True) if abs(event[2] - other[2]) > LATE_MS
    ]
    assert differing == []
