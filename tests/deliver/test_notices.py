"""Notices by mail and chat: each once, to the members who want it, and none about notices."""

import json
from typing import Any

import pytest

from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carriers
from heliograph.deliver.jobs.notices import NoticeSender
from heliograph.domain.audit.actor import SERVICE, Actor
from heliograph.domain.delivery.outcome import Accepted, Deferred, Refused
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.domain.operations.notices import HOURLY_MAX, dead_letter_notice, low_credit_notice
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage import notices as manage
from heliograph.manage.people import assign_role
from heliograph.settings import Settings
from heliograph.storage import audit, notice_queue
from heliograph.storage.notices import ChatWebhook
from heliograph.storage.store import Store
from heliograph.webhooks.client.http_post import PostResult
from tests.accounts.house import BASE, Instance
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.conftest import asking
from tests.storage.samples import ENTRY, settle

pytestmark = pytest.mark.anyio

ADA, DEV, EYE, OPS, BOB = (f"{name}@example.com" for name in ("ada", "dev", "eye", "ops", "bob"))
OPERATOR = Actor(kind="person", id="usr_operator")


class Chat:
    """A chat with preset responses."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, str]] = []
        self.response = PostResult(status=200, duration_ms=1)

    async def post(self, url: str, headers: Any, body: bytes) -> PostResult:
        self.posts.append((url, next(iter(json.loads(body).values()))))
        return self.response


class World:
    def __init__(self, house: Instance) -> None:
        self.house, self.store, self.clock, self.chat = house, house.store, house.clock, Chat()

    @property
    def sender(self) -> NoticeSender:
        """Return the notice sender of a process."""
        failover = CarrierFailover(self.store, Carriers(lambda _: self.house.post), self.clock)
        chat: Any = self.chat
        return NoticeSender(
            store=self.store, failover=failover, poster=chat, base_url=BASE, decrypt_hook=lambda sealed, _: sealed
        )

    async def did(self, action: str, subject: str = "x", team: str | None = "team_a", actor: Actor = SERVICE) -> None:
        entry = actor.audit_entry(self.clock.now(), action, subject, "whk_1: why", team=team)
        await self.store.database.write(lambda tx: audit.write(tx, entry))

    async def delivered(self) -> list[tuple[str, str]]:
        """Return the recipients and subjects of a round's mails."""
        del self.house.post.mails[:]
        await self.sender.send_due()
        return sorted((mail.to[0], mail.subject) for mail in self.house.post.mails)

    async def set_chat(self, team: str = "team_a") -> None:
        await self.store.notices.set_chat_webhook(ChatWebhook(team, f"https://chat.test/{team}", "chat.test", 1), ENTRY)


async def let_in(store: Store, email: str, roles: dict[str, str]) -> None:
    """Add a user who can sign in."""
    person = await settle(store.people, email, email, roles)
    await store.people.set_password(person.id, "hashed", ENTRY)


@pytest.fixture
async def world(store: Store, clock: TestClock) -> World:
    house = Instance(store, clock)
    await house.set_up()
    await house.send_mail()
    for email, roles in {
        ADA: {"team_a": "owner"},
        DEV: {"team_a": "developer", "team_b": "viewer"},
        EYE: {"team_a": "viewer"},
        OPS: {"": "operator"},
    }.items():
        await let_in(store, email, roles)
    await house.invite(BOB, team_a="owner")  # invited, but not accepted
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
async def test_notice_is_sent_once_to_each_subscriber(world: World, action: str, subject: str) -> None:
    await world.did(action)
    assert await world.delivered() == [(ADA, subject), (DEV, subject)]
    (mail, _) = world.house.post.mails
    assert mail.text and mail.html and mail.headers["List-Unsubscribe"] == f"<{BASE}/dashboard/account/notices>"
    assert await world.delivered() == []
    await world.did("team.change")
    assert await world.delivered() == []


async def test_low_credit_and_dead_letters_send_notices(world: World) -> None:
    low, dead = (
        low_credit_notice(11, "evt_1", world.clock.now(), "4.20", "5.00"),
        dead_letter_notice(2, world.clock.now()),
    )
    for _ in range(2):  # the same notice again
        await world.store.database.write(lambda tx: notice_queue.enqueue(tx, low, dead))
    assert await world.delivered() == [
        (ADA, "[The team_a] Credit is low: 4.20 USD"),
        (DEV, "[The team_a] Credit is low: 4.20 USD"),
        (OPS, "[Heliograph] New dead letters"),
    ]
    assert await world.delivered() == []


async def test_operator_action_notifies_the_other_operators(world: World) -> None:
    ada = Actor(kind="person", id=await world.house.id_of(ADA))
    await world.did("template.approve", actor=ada)
    assert [to for to, _ in await world.delivered()] == [DEV]


async def test_notice_is_sent_only_to_those_who_chose_it(world: World) -> None:
    for email, teams, expected in [(EYE, ["team_a"], {"team_a/domain"}), (ADA, ["team_a"], set())]:
        id_ = await world.house.id_of(email)
        assert await manage.set_preferences(world.store, OPERATOR, id_, email, teams, expected)
        assert not await manage.set_preferences(world.store, OPERATOR, id_, email, teams, expected)
    await world.did("domain.failed")
    await world.did("webhook.disable")
    assert [to for to, _ in await world.delivered()] == [DEV, DEV, EYE]


async def test_former_or_suspended_members_get_no_notice(world: World) -> None:
    await world.did("domain.failed")
    await world.store.notices.fan_out(world.store.setup.current, by_mail=True)
    dev = await world.house.id_of(DEV)
    await assign_role(world.store, dev, "team_a", None, ENTRY)  # between the event and the mail
    assert [to for to, _ in await world.delivered()] == [ADA]
    team = TeamRecord(ref=11, id="team_a", name="A", suspended=True)
    await set_up(world.store, rows=[to_row("team", "team_a", team, "team_a")])
    await world.did("webhook.disable")
    assert await world.delivered() == []


async def test_notice_is_sent_once_by_two_processes(world: World) -> None:
    await world.did("domain.failed")
    await world.delivered()
    other = World(world.house)
    assert await other.delivered() == []


async def test_notice_mail_in_progress_is_not_sent_again(world: World) -> None:
    """The process was killed; the notice may have arrived."""
    await world.did("domain.failed")
    await world.store.notices.fan_out(world.store.setup.current, by_mail=True)
    assert len(await world.store.notices.take_due()) == 2
    world.clock.forward(DAY_MS)
    assert await world.delivered() == []


@pytest.mark.parametrize(
    ("says", "again"),
    [
        (Refused(detail={"text": "550 no"}), False),
        (Deferred(detail={"text": "421 later"}), True),
        (Deferred(detail={"text": "cut off"}, uncertain=True), False),
    ],
)
async def test_deferred_notice_mail_is_retried_alone(world: World, says: Any, again: bool) -> None:
    await world.did("domain.failed")
    world.house.post.says = says
    assert len(await world.delivered()) == 2
    assert await world.delivered() == []
    world.house.post.says = Accepted(carrier_id="1")
    world.clock.forward(MINUTE_MS)
    assert len(await world.delivered()) == (2 if again else 0)
    assert await world.delivered() == []  # and the failure caused no notice


async def test_notice_is_dropped_after_repeated_failures(world: World) -> None:
    await world.did("domain.failed")
    world.house.post.says = Deferred(detail={"text": "421 later"})
    rounds = 0
    for _ in range(20):
        rounds += bool(await world.delivered())
        world.clock.forward(12 * HOUR_MS)
    assert rounds == 6
    (last,) = await world.store.notices.newest(await world.house.id_of(ADA))
    assert (last.state, last.detail) == ("failed", "421 later")


async def test_notices_beyond_ten_an_hour_are_sent_as_one_summary(world: World) -> None:
    for number in range(HOURLY_MAX + 15):
        await world.did("template.approve", f"t{number}")
    mails = [subject for to, subject in await world.delivered() if to == ADA]
    assert len(mails) == HOURLY_MAX and "[Heliograph] 16 notices" in mails
    await world.did("template.approve", "one more")
    assert await world.delivered() == []
    world.clock.forward(HOUR_MS)
    assert [to for to, _ in await world.delivered()] == [ADA, DEV]


async def test_notices_without_a_real_email_carrier_go_to_chats_only(store: Store, clock: TestClock) -> None:
    house = Instance(store, clock)
    await house.set_up()
    await let_in(store, ADA, {"team_a": "owner"})
    world = World(house)
    await world.set_chat()
    await world.did("domain.failed")
    assert await world.delivered() == []
    assert [url for url, _ in world.chat.posts] == ["https://chat.test/team_a"]
    await house.send_mail()
    assert await world.delivered() == []  # a problem that no longer exists


async def test_chat_gets_notices_of_its_team_or_of_the_instance(world: World) -> None:
    await world.set_chat()
    await world.set_chat("")
    await world.did("domain.failed", "a.test")
    await world.did("domain.failed", "b.test", team="team_b")
    await world.did("domain.failed", "sun.test", team=None)
    await world.delivered()
    await world.delivered()
    assert [(url, text.splitlines()[0]) for url, text in sorted(world.chat.posts)] == [
        ("https://chat.test/", "[Heliograph] sun.test can no longer send"),
        ("https://chat.test/team_a", "[The team_a] a.test can no longer send"),
    ]


@pytest.mark.parametrize(
    ("says", "again"),
    [
        (PostResult(status=200, duration_ms=1), False),
        (PostResult(status=404, duration_ms=1), False),
        (PostResult(status=429, duration_ms=1), True),
        (PostResult(status=503, duration_ms=1), True),
        (PostResult(reason="no_connection", duration_ms=1), True),
        (PostResult(reason="too_slow", duration_ms=1), False),  # it may have arrived
        (PostResult(reason="not_http", duration_ms=1), False),
    ],
)
async def test_chat_post_that_cannot_have_arrived_is_retried(world: World, says: PostResult, again: bool) -> None:
    await world.set_chat()
    world.chat.response = says
    await world.store.notices.test_chat_webhook("team_a", ENTRY)
    assert await world.delivered() == []  # a test only posts to the chat
    world.clock.forward(MINUTE_MS)
    await world.delivered()
    assert len(world.chat.posts) == 1 + again


async def test_old_notices_are_deleted(world: World, settings: Settings) -> None:
    await world.did("domain.failed")
    await world.delivered()
    world.clock.forward(31 * DAY_MS)
    await world.store.maintenance.purge()
    async with asking(settings) as sql:
        assert await sql("SELECT (SELECT count(*) FROM notice), (SELECT count(*) FROM happening)") == [(0, 0)]
