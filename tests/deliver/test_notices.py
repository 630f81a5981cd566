"""People are told, by mail and in a chat: each thing once, to members who want it, and never about notices."""

import json
from typing import Any

import pytest

from heliograph.carrier_failover import Handover
from heliograph.carriers.contract import Carriers
from heliograph.deliver.jobs.notices import Teller
from heliograph.domain.audit.actor import SERVICE, Actor
from heliograph.domain.delivery.outcome import Accepted, Deferred, Refused
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.domain.operations.notices import HOURLY, dead_letters, low_credit
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage import notices as manage
from heliograph.manage.people import assign
from heliograph.settings import Settings
from heliograph.storage import audit, notice_queue
from heliograph.storage.notices import ChatHook
from heliograph.storage.store import Store
from heliograph.webhooks.client.http_post import Posted
from tests.accounts.house import BASE, House
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.conftest import asking
from tests.storage.samples import ENTRY, settle

pytestmark = pytest.mark.anyio

ADA, DEV, EYE, OPS, BOB = (f"{name}@example.com" for name in ("ada", "dev", "eye", "ops", "bob"))
OPERATOR = Actor(kind="person", id="usr_operator")


class Chat:
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, str]] = []
        self.says = Posted(status=200, duration_ms=1)

    async def post(self, url: str, headers: Any, body: bytes) -> Posted:
        self.posts.append((url, next(iter(json.loads(body).values()))))
        return self.says


class World:
    def __init__(self, house: House) -> None:
        self.house, self.store, self.clock, self.chat = house, house.store, house.clock, Chat()

    @property
    def teller(self) -> Teller:
        """As a process of its own has it."""
        handover = Handover(self.store, Carriers(lambda _: self.house.post), self.clock)
        chat: Any = self.chat
        return Teller(
            store=self.store, handover=handover, poster=chat, base_url=BASE, open_hook=lambda sealed, _: sealed
        )

    async def did(self, action: str, subject: str = "x", team: str | None = "team_a", actor: Actor = SERVICE) -> None:
        entry = actor.did(self.clock.now(), action, subject, "whk_1: why", team=team)
        await self.store.database.write(lambda tx: audit.write(tx, entry))

    async def told(self) -> list[tuple[str, str]]:
        """Whom a round mailed, and about what."""
        del self.house.post.mails[:]
        await self.teller.round()
        return sorted((mail.to[0], mail.subject) for mail in self.house.post.mails)

    async def set_chat(self, team: str = "team_a") -> None:
        await self.store.notices.set_hook(ChatHook(team, f"https://chat.test/{team}", "chat.test", 1), ENTRY)


async def let_in(store: Store, email: str, roles: dict[str, str]) -> None:
    """Somebody who can sign in."""
    person = await settle(store.people, email, email, roles)
    await store.people.set_password(person.id, "hashed", ENTRY)


@pytest.fixture
async def world(store: Store, clock: TestClock) -> World:
    house = House(store, clock)
    await house.set_up()
    await house.send_mail()
    for email, roles in {
        ADA: {"team_a": "owner"},
        DEV: {"team_a": "developer", "team_b": "viewer"},
        EYE: {"team_a": "viewer"},
        OPS: {"": "operator"},
    }.items():
        await let_in(store, email, roles)
    await house.offer(BOB, team_a="owner")  # invited, and has not accepted
    return World(house)


@pytest.mark.parametrize(
    ("action", "subject"),
    [
        ("template.approve", "[The team_a] Approved: “x”"),
        ("domain.refuse", "[The team_a] Refused: “x”"),
        ("template.upstream_paused", "[The team_a] Meta paused “x”"),
        ("domain.failed", "[The team_a] x can no longer send"),
        ("webhook.disable", "[The team_a] The webhook to its address was disabled"),
        ("reputation.warn", "[The team_a] Too many emails bounce"),
        ("reputation.pause", "[The team_a] Direct emails are paused"),
    ],
)
async def test_each_thing_is_told_once_to_those_who_are_told(world: World, action: str, subject: str) -> None:
    await world.did(action)
    assert await world.told() == [(ADA, subject), (DEV, subject)]
    (mail, _) = world.house.post.mails
    assert mail.text and mail.html and mail.headers["List-Unsubscribe"] == f"<{BASE}/dashboard/account/notices>"
    assert await world.told() == []
    await world.did("team.change")
    assert await world.told() == []


async def test_low_credit_and_dead_letters(world: World) -> None:
    low, dead = low_credit(11, "evt_1", world.clock.now(), "4.20", "5.00"), dead_letters(2, world.clock.now())
    for _ in range(2):  # the same happening, noted again
        await world.store.database.write(lambda tx: notice_queue.note(tx, low, dead))
    assert await world.told() == [
        (ADA, "[The team_a] Credit is low: 4.20 USD"),
        (DEV, "[The team_a] Credit is low: 4.20 USD"),
        (OPS, "[Heliograph] Messages are parked as dead letters"),
    ]
    assert await world.told() == []


async def test_what_an_operator_did_is_told_to_the_others(world: World) -> None:
    ada = Actor(kind="person", id=await world.house.id_of(ADA))
    await world.did("template.approve", actor=ada)
    assert [to for to, _ in await world.told()] == [DEV]


async def test_choices_count(world: World) -> None:
    for email, teams, wanted in [(EYE, ["team_a"], {"team_a/domain"}), (ADA, ["team_a"], set())]:
        id_ = await world.house.id_of(email)
        assert await manage.choose(world.store, OPERATOR, id_, email, teams, wanted)
        assert not await manage.choose(world.store, OPERATOR, id_, email, teams, wanted)
    await world.did("domain.failed")
    await world.did("webhook.disable")
    assert [to for to, _ in await world.told()] == [DEV, DEV, EYE]


async def test_who_left_or_is_of_a_suspended_team_is_told_nothing(world: World) -> None:
    await world.did("domain.failed")
    await world.store.notices.spread(world.store.setup.current, by_mail=True)
    dev = await world.house.id_of(DEV)
    await assign(world.store, dev, "team_a", None, ENTRY)  # between the happening and the mail
    assert [to for to, _ in await world.told()] == [ADA]
    team = TeamRecord(ref=11, id="team_a", name="A", suspended=True)
    await set_up(world.store, rows=[to_row("team", "team_a", team, "team_a")])
    await world.did("webhook.disable")
    assert await world.told() == []


async def test_two_processes_tell_it_once(world: World) -> None:
    await world.did("domain.failed")
    await world.told()
    other = World(world.house)
    assert await other.told() == []


async def test_a_mail_that_was_begun_is_not_begun_again(world: World) -> None:
    """The process died with it: it may have arrived."""
    await world.did("domain.failed")
    await world.store.notices.spread(world.store.setup.current, by_mail=True)
    assert len(await world.store.notices.take()) == 2
    world.clock.forward(DAY_MS)
    assert await world.told() == []


@pytest.mark.parametrize(
    ("says", "again"),
    [
        (Refused(detail={"text": "550 no"}), False),
        (Deferred(detail={"text": "421 later"}), True),
        (Deferred(detail={"text": "cut off"}, uncertain=True), False),
    ],
)
async def test_a_mail_put_off_is_tried_again_and_no_other_is(world: World, says: Any, again: bool) -> None:
    await world.did("domain.failed")
    world.house.post.says = says
    assert len(await world.told()) == 2
    assert await world.told() == []
    world.house.post.says = Accepted(carrier_id="1")
    world.clock.forward(MINUTE_MS)
    assert len(await world.told()) == (2 if again else 0)
    assert await world.told() == []  # and what failed told nobody of itself


async def test_it_is_given_up_after_a_while(world: World) -> None:
    await world.did("domain.failed")
    world.house.post.says = Deferred(detail={"text": "421 later"})
    rounds = 0
    for _ in range(20):
        rounds += bool(await world.told())
        world.clock.forward(12 * HOUR_MS)
    assert rounds == 6
    (last,) = await world.store.notices.newest(await world.house.id_of(ADA))
    assert (last.state, last.detail) == ("failed", "421 later")


async def test_ten_an_hour_and_the_rest_together(world: World) -> None:
    for number in range(HOURLY + 15):
        await world.did("template.approve", f"t{number}")
    mails = [subject for to, subject in await world.told() if to == ADA]
    assert len(mails) == HOURLY and "[Heliograph] 16 notices" in mails
    await world.did("template.approve", "one more")
    assert await world.told() == []
    world.clock.forward(HOUR_MS)
    assert [to for to, _ in await world.told()] == [ADA, DEV]


async def test_without_a_real_email_carrier_only_chats_are_told(store: Store, clock: TestClock) -> None:
    house = House(store, clock)
    await house.set_up()
    await let_in(store, ADA, {"team_a": "owner"})
    world = World(house)
    await world.set_chat()
    await world.did("domain.failed")
    assert await world.told() == []
    assert [url for url, _ in world.chat.posts] == ["https://chat.test/team_a"]
    await house.send_mail()
    assert await world.told() == []  # what is over is over


async def test_a_chat_hears_its_team_and_the_instances_chat_the_instance(world: World) -> None:
    await world.set_chat()
    await world.set_chat("")
    await world.did("domain.failed", "a.test")
    await world.did("domain.failed", "b.test", team="team_b")
    await world.did("domain.failed", "sun.test", team=None)
    await world.told()
    await world.told()
    assert [(url, text.splitlines()[0]) for url, text in sorted(world.chat.posts)] == [
        ("https://chat.test/", "[Heliograph] sun.test can no longer send"),
        ("https://chat.test/team_a", "[The team_a] a.test can no longer send"),
    ]


@pytest.mark.parametrize(
    ("says", "again"),
    [
        (Posted(status=200, duration_ms=1), False),
        (Posted(status=404, duration_ms=1), False),
        (Posted(status=429, duration_ms=1), True),
        (Posted(status=503, duration_ms=1), True),
        (Posted(reason="no_connection", duration_ms=1), True),
        (Posted(reason="too_slow", duration_ms=1), False),  # it may have arrived
        (Posted(reason="not_http", duration_ms=1), False),
    ],
)
async def test_a_post_is_tried_again_when_it_cannot_have_arrived(world: World, says: Posted, again: bool) -> None:
    await world.set_chat()
    world.chat.says = says
    await world.store.notices.test_hook("team_a", ENTRY)
    assert await world.told() == []  # a test tells the chat alone
    world.clock.forward(MINUTE_MS)
    await world.told()
    assert len(world.chat.posts) == 1 + again


async def test_what_is_old_is_forgotten(world: World, settings: Settings) -> None:
    await world.did("domain.failed")
    await world.told()
    world.clock.forward(31 * DAY_MS)
    await world.store.upkeep.purge()
    async with asking(settings) as sql:
        assert await sql("SELECT (SELECT count(*) FROM notice), (SELECT count(*) FROM happening)") == [(0, 0)]
