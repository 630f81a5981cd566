"""People in the store: what happens in one transaction, and who cannot be taken away."""

import asyncio

import pytest

from heliograph.domain.accounts import people as rules
from heliograph.domain.accounts.people import Link, Person, RoleChange, Standing
from heliograph.domain.audit.actor import COMMAND_LINE, AuditEntry
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.storage.audit import Audit
from heliograph.storage.people import People
from heliograph.storage.sessions import Sessions
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY, settle

pytestmark = pytest.mark.anyio


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return store.sessions


@pytest.fixture
def people(store: Store, clock: TestClock) -> People:
    return store.people


def entry(action: str, team: str | None = None) -> AuditEntry:
    return COMMAND_LINE.did(at=1, team=team, action=action, subject="x")


async def add(people: People, name: str, **roles: str) -> Person:
    """Who has these roles; an empty team: runs the instance."""
    return await settle(people, f"{name}@example.com", name, roles)


async def set_role(people: People, person: Person, role: str | None, entry: AuditEntry = ENTRY) -> None:
    given = {"team_1": role}
    await people.change(person.id, given, lambda one: rules.set_roles(one, given, entry))


async def offer(people: People, person: Person, entry: AuditEntry = ENTRY, **roles: str) -> None:
    link = Link("", "invite")
    await people.offer(person.email, person.name, roles, lambda one: rules.offer(one, roles, link, entry))


async def remove(people: People, person: Person) -> None:
    await people.change(person.id, [""], lambda one: rules.remove(one, entry("remove")))


async def follow(people: People, token: str, password: str | None, session: str = "") -> Person | None:
    def judge(link: Link, standing: Standing) -> RoleChange | None:
        chosen = entry("account.password")
        return rules.follow(link, standing, chosen, chooses=password is not None, signed_in=bool(session))

    return await people.follow(token, judge, password, session)


async def actions(people: People, team: str | None = None) -> list[str]:
    lines = await Audit(people._database).lines(team)
    return [line.action for line in lines if line.action != ENTRY.action]


async def test_the_first_operator_is_one(people: People) -> None:
    tokens = [await people.make_link(Link("", "first"), ENTRY) for _ in range(2)]
    change = RoleChange(entries=(entry("account.password"),), roles={"": "operator"})
    made = await people.add_first(tokens[0], "ada@example.com", "Ada", "argon2id…", change)
    assert made
    assert (made.email, made.name, made.operator, made.proven) == ("ada@example.com", "Ada", 1, 1)
    for token in tokens:
        assert await people.add_first(token, "eve@example.com", "Eve", "argon2id…", change) is None
    assert await people.count() == 1
    assert await actions(people) == ["account.password"]


async def test_a_link_is_good_once_and_for_its_time(people: People, clock: TestClock) -> None:
    ada = await add(people, "ada")
    before, used = (
        await people.make_link(Link(ada.id, "invite"), ENTRY),
        await people.make_link(Link(ada.id, "invite"), ENTRY),
    )
    assert await people.find_link(before) is None  # the next one does what it did
    found = await people.find_link(used)
    assert found
    assert (found.person, found.purpose) == (ada.id, "invite")
    assert await people.use_link(used, "invite") == found
    assert await people.use_link(used, "invite") is None
    old = await people.make_link(Link(ada.id, "invite"), ENTRY)
    clock.forward(7 * DAY_MS)
    assert await people.find_link(old) is None
    assert await people.use_link(old, "invite") is None


async def test_a_link_followed_as_it_may_not_be_stays(people: People) -> None:
    """Who has a password accepts signed in, and with a new one unless the old one is proven."""
    ada = await add(people, "ada")
    await people.set_password(ada.id, "argon2id…", entry("password"))
    await set_role(people, ada, "owner")
    link = await people.make_link(Link(ada.id, "invite", "team_1"), ENTRY)
    for password, session in (("new", ""), (None, ""), (None, "ses_1")):
        assert await follow(people, link, password, session) is None
        assert await people.roles(ada.id) == {}
    followed = await follow(people, link, "new", "ses_1")
    assert followed
    assert (followed.password, followed.proven) == ("new", 0)
    assert await people.roles(ada.id) == {"team_1": "owner"}
    assert await actions(people) == ["member.accept", "password"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE member SET role = 'viewer' WHERE person = '{maker}'",
        "DELETE FROM member WHERE person = '{maker}'",
        "DELETE FROM member WHERE person = '{person}'",
        "INSERT INTO member VALUES ('{person}', 'team_2', 'viewer')",
        "UPDATE person SET operator = 1 WHERE id = '{person}'",
        "DELETE FROM person WHERE id = '{person}'",
    ],
)
async def test_a_link_is_judged_when_it_is_followed(people: People, sql: Sql, change: str) -> None:
    """Also where nothing has ended it: the rule under which it was made must still hold."""
    maker, person = await add(people, "maker", team_1="owner"), await add(people, "ada", team_1="developer")
    link = await people.make_link(Link(person.id, "reset", "team_1", maker.id), ENTRY)
    assert await people.find_link(link)
    await sql(change.format(maker=maker.id, person=person.id))
    assert await people.find_link(link) is None
    assert await follow(people, link, "new") is None


async def test_an_invitation_changed_ends_its_links(people: People) -> None:
    ada = await add(people, "ada")
    for role in ("owner", None):
        await set_role(people, ada, "viewer")
        links = [await people.make_link(Link(ada.id, "invite", team), ENTRY) for team in ("team_1", "")]
        await set_role(people, ada, role)
        assert [await people.find_link(link) for link in links] == [None, None]
        await set_role(people, ada, None)


async def test_a_password_changed_while_somebody_signs_in(people: People, sessions: Sessions) -> None:
    ada = await add(people, "ada")
    await people.set_password(ada.id, "new", entry("password"))
    assert await sessions.sign_in(ada, "127.0.0.1", "test") is None


async def test_a_new_password_ends_sessions_and_links(people: People, sessions: Sessions) -> None:
    ada = await add(people, "ada")
    tokens = [await sessions.sign_in(ada, "127.0.0.1", "test") or "" for _ in range(2)]
    kept = await sessions.find(tokens[0])
    link = await people.make_link(Link(ada.id, "reset"), ENTRY)
    assert kept
    await people.set_password(ada.id, "argon2id…", entry("account.password"), kept.session)
    assert await sessions.find(tokens[0])
    assert await sessions.find(tokens[1]) is None
    assert await people.find_link(link) is None
    assert await actions(people) == ["account.password"]


async def test_a_session_lasts_while_it_is_used(people: People, sessions: Sessions, clock: TestClock) -> None:
    ada = await add(people, "ada")
    used, left = await sessions.sign_in(ada, "", "") or "", await sessions.sign_in(ada, "", "") or ""
    for _ in range(2):
        clock.forward(10 * DAY_MS)
        assert await sessions.find(used)
    assert await sessions.find(left) is None
    await sessions.sign_in(ada, "", "")
    assert len(await sessions.of(ada.id)) == 2


async def test_a_team_keeps_an_owner(people: People) -> None:
    ada = await add(people, "ada", team_1="owner")
    await offer(people, await add(people, "bob"), team_1="owner")  # not yet one
    for role in ("viewer", None):
        with pytest.raises(InvalidRequest, match="keeps an owner"):
            await set_role(people, ada, role, entry("refused", "team_1"))
    await add(people, "bob", team_1="owner")
    for _ in range(2):
        await set_role(people, ada, None, entry("remove", "team_1"))
    assert [(one.email, one.role) for one in await people.members("team_1") if not one.invited] == [
        ("bob@example.com", "owner")
    ]
    assert await actions(people, "team_1") == ["remove"]
    assert await actions(people, "team_2") == []


async def test_the_instance_keeps_an_operator(people: People, sessions: Sessions) -> None:
    ada, bob = await add(people, "ada", **{"": "operator"}, team_1="developer"), await add(people, "bob")
    token = await sessions.sign_in(ada, "", "") or ""
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="keeps an operator"):
            await remove(people, ada)
        await offer(people, bob, entry("operator"), **{"": "operator"})  # which bob has not accepted yet
    await add(people, "bob", **{"": "operator"})
    await remove(people, ada)
    assert (await people.find("ada@example.com"), await sessions.find(token)) == (None, None)
    assert await people.members("team_1") == []
    assert await actions(people) == ["remove", "operator", "operator"]


@pytest.mark.parametrize("team", ["team_1", ""])
async def test_of_two_who_leave_at_once_one_stays(people: People, team: str) -> None:
    """Each of them locks what the other is before it is decided about."""
    roles = {team: "owner" if team else "operator"}
    both = [await settle(people, f"{name}@example.com", name, roles) for name in ("ada", "bob")]

    def leave(standing: Standing) -> RoleChange | None:
        return rules.set_roles(standing, {team: None}, ENTRY)

    ended = await asyncio.gather(*(people.change(one.id, [team], leave) for one in both), return_exceptions=True)
    assert sorted(map(type, ended), key=str) == [bool, InvalidRequest]


async def test_nothing_waits_for_who_is_gone(store: Store, people: People) -> None:
    ada = await add(people, "ada")
    await store.decisions.tell(ada.id, "Refused: send as Ada.", "/dashboard")
    await remove(people, ada)
    assert await store.decisions.take(ada.id) == []


async def test_codes_are_used_once(people: People) -> None:
    ada = await add(people, "ada")
    await people.set_totp(ada.id, "sealed", ["aaaa", "bbbb"], 0, entry("on"))
    assert [await people.use_totp_step(ada.id, step) for step in (7, 7, 6, 8)] == [True, False, False, True]
    assert [await people.use_recovery(ada.id, code) for code in ("aaaa", "aaaa", "cccc")] == [True, False, False]
    assert await people.count_recovery(ada.id) == 1
    await people.end_totp(ada.id, entry("off"))
    assert await people.count_recovery(ada.id) == 0


async def test_everybody_by_pages_and_by_search(people: People) -> None:
    for name in ("ada", "bob", "c_1", "cx1"):
        await add(people, name)
    first = await people.lines(limit=2)
    assert [line.name for line in first] == ["ada", "bob", "c_1"]
    assert [line.name for line in await people.lines(after=first[1].email, limit=2)] == ["c_1", "cx1"]
    assert [line.name for line in await people.lines("C_1@")] == ["c_1"]


async def test_the_audit_log_by_pages(store: Store) -> None:
    for number in range(10):
        await store.audit.add(entry(str(number), "team_1" if number % 2 else None))
    first = await store.audit.lines("team_1", limit=2)
    assert [line.action for line in first] == ["9", "7", "5"]
    assert [line.action for line in await store.audit.lines("team_1", first[1].key, 2)] == ["5", "3", "1"]
    assert len(await store.audit.lines(None)) == 10
