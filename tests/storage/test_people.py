"""Users in the store: what happens in one transaction, and who cannot be removed."""

import asyncio

import pytest

from heliograph.domain.accounts import people as rules
from heliograph.domain.accounts.people import CurrentRoles, Link, Person, RoleChange
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
    return COMMAND_LINE.audit_entry(at=1, team=team, action=action, subject="x")


async def add(people: People, name: str, **roles: str) -> Person:
    """Add a user with these roles; an empty team makes an operator."""
    return await settle(people, f"{name}@example.com", name, roles)


async def set_role(people: People, person: Person, role: str | None, entry: AuditEntry = ENTRY) -> None:
    values = {"team_1": role}
    await people.change_roles(person.id, values, lambda item: rules.set_roles(item, values, entry))


async def offer(people: People, person: Person, entry: AuditEntry = ENTRY, **roles: str) -> None:
    link = Link("", "invite")
    await people.change_by_email(person.email, person.name, roles, lambda item: rules.invite(item, roles, link, entry))


async def remove(people: People, person: Person) -> None:
    await people.change_roles(person.id, [""], lambda item: rules.remove_person(item, entry("remove")))


async def follow(people: People, token: str, password: str | None, session: str = "") -> Person | None:
    def judge(link: Link, standing: CurrentRoles) -> RoleChange | None:
        chosen = entry("account.password")
        return rules.follow_link(link, standing, chosen, sets_password=password is not None, signed_in=bool(session))

    return await people.accept_link(token, judge, password, session)


async def actions(people: People, team: str | None = None) -> list[str]:
    lines = await Audit(people._database).list_rows(team)
    return [line.action for line in lines if line.action != ENTRY.action]


async def test_first_operator_is_created_once(people: People) -> None:
    tokens = [await people.create_link(Link("", "first"), ENTRY) for _ in range(2)]
    change = RoleChange(entries=(entry("account.password"),), roles={"": "operator"})
    created = await people.create_first_operator(tokens[0], "ada@example.com", "Ada", "argon2id…", change)
    assert created
    assert (created.email, created.name, created.operator, created.proven) == ("ada@example.com", "Ada", 1, 1)
    for token in tokens:
        assert await people.create_first_operator(token, "eve@example.com", "Eve", "argon2id…", change) is None
    assert await people.count() == 1
    assert await actions(people) == ["account.password"]


async def test_link_is_valid_once_and_until_it_expires(people: People, clock: TestClock) -> None:
    ada = await add(people, "ada")
    before, used = (
        await people.create_link(Link(ada.id, "invite"), ENTRY),
        await people.create_link(Link(ada.id, "invite"), ENTRY),
    )
    assert await people.find_link(before) is None  # the new link replaces the old one
    result = await people.find_link(used)
    assert result
    assert (result.person, result.purpose) == (ada.id, "invite")
    assert await people.use_link(used, "invite") == result
    assert await people.use_link(used, "invite") is None
    old = await people.create_link(Link(ada.id, "invite"), ENTRY)
    clock.forward(7 * DAY_MS)
    assert await people.find_link(old) is None
    assert await people.use_link(old, "invite") is None


async def test_link_that_was_refused_stays_valid(people: People) -> None:
    """A user with a password must be signed in to accept, and needs a new password unless theirs is verified."""
    ada = await add(people, "ada")
    await people.set_password(ada.id, "argon2id…", entry("password"))
    await set_role(people, ada, "owner")
    link = await people.create_link(Link(ada.id, "invite", "team_1"), ENTRY)
    for password, session in (("new", ""), (None, ""), (None, "ses_1")):
        assert await follow(people, link, password, session) is None
        assert await people.get_roles(ada.id) == {}
    followed = await follow(people, link, "new", "ses_1")
    assert followed
    assert (followed.password, followed.proven) == ("new", 0)
    assert await people.get_roles(ada.id) == {"team_1": "owner"}
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
async def test_link_is_checked_when_it_is_used(people: People, sql: Sql, change: str) -> None:
    """Even if nothing invalidated the link, its creator must still be allowed to create it."""
    maker, person = await add(people, "maker", team_1="owner"), await add(people, "ada", team_1="developer")
    link = await people.create_link(Link(person.id, "reset", "team_1", maker.id), ENTRY)
    assert await people.find_link(link)
    await sql(change.format(maker=maker.id, person=person.id))
    assert await people.find_link(link) is None
    assert await follow(people, link, "new") is None


async def test_changed_invitation_invalidates_its_links(people: People) -> None:
    ada = await add(people, "ada")
    for role in ("owner", None):
        await set_role(people, ada, "viewer")
        links = [await people.create_link(Link(ada.id, "invite", team), ENTRY) for team in ("team_1", "")]
        await set_role(people, ada, role)
        assert [await people.find_link(link) for link in links] == [None, None]
        await set_role(people, ada, None)


async def test_password_changed_during_sign_in_rejects_the_session(people: People, sessions: Sessions) -> None:
    ada = await add(people, "ada")
    await people.set_password(ada.id, "new", entry("password"))
    assert await sessions.sign_in(ada, "127.0.0.1", "test") is None


async def test_new_password_ends_sessions_and_links(people: People, sessions: Sessions) -> None:
    ada = await add(people, "ada")
    tokens = [await sessions.sign_in(ada, "127.0.0.1", "test") or "" for _ in range(2)]
    retained = await sessions.find(tokens[0])
    link = await people.create_link(Link(ada.id, "reset"), ENTRY)
    assert retained
    await people.set_password(ada.id, "argon2id…", entry("account.password"), retained.session)
    assert await sessions.find(tokens[0])
    assert await sessions.find(tokens[1]) is None
    assert await people.find_link(link) is None
    assert await actions(people) == ["account.password"]


async def test_session_is_extended_while_it_is_used(people: People, sessions: Sessions, clock: TestClock) -> None:
    ada = await add(people, "ada")
    used, left = await sessions.sign_in(ada, "", "") or "", await sessions.sign_in(ada, "", "") or ""
    for _ in range(2):
        clock.forward(10 * DAY_MS)
        assert await sessions.find(used)
    assert await sessions.find(left) is None
    await sessions.sign_in(ada, "", "")
    assert len(await sessions.list_sessions(ada.id)) == 2


async def test_last_owner_of_a_team_cannot_leave(people: People) -> None:
    ada = await add(people, "ada", team_1="owner")
    await offer(people, await add(people, "bob"), team_1="owner")  # not an owner yet
    for role in ("viewer", None):
        with pytest.raises(InvalidRequest, match="needs an owner"):
            await set_role(people, ada, role, entry("refused", "team_1"))
    await add(people, "bob", team_1="owner")
    for _ in range(2):
        await set_role(people, ada, None, entry("remove", "team_1"))
    assert [(item.email, item.role) for item in await people.list_members("team_1") if not item.invited] == [
        ("bob@example.com", "owner")
    ]
    assert await actions(people, "team_1") == ["remove"]
    assert await actions(people, "team_2") == []


async def test_last_operator_cannot_leave(people: People, sessions: Sessions) -> None:
    ada, bob = await add(people, "ada", **{"": "operator"}, team_1="developer"), await add(people, "bob")
    token = await sessions.sign_in(ada, "", "") or ""
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="needs an operator"):
            await remove(people, ada)
        await offer(people, bob, entry("operator"), **{"": "operator"})  # which bob has not accepted yet
    await add(people, "bob", **{"": "operator"})
    await remove(people, ada)
    assert (await people.find("ada@example.com"), await sessions.find(token)) == (None, None)
    assert await people.list_members("team_1") == []
    assert await actions(people) == ["remove", "operator", "operator"]


@pytest.mark.parametrize("team", ["team_1", ""])
async def test_last_two_owners_leaving_concurrently_keep_one(people: People, team: str) -> None:
    """Each change locks the other's roles before the decision."""
    roles = {team: "owner" if team else "operator"}
    both = [await settle(people, f"{name}@example.com", name, roles) for name in ("ada", "bob")]

    def leave(standing: CurrentRoles) -> RoleChange | None:
        return rules.set_roles(standing, {team: None}, ENTRY)

    ended = await asyncio.gather(
        *(people.change_roles(item.id, [team], leave) for item in both), return_exceptions=True
    )
    assert sorted(map(type, ended), key=str) == [bool, InvalidRequest]


async def test_deleted_account_has_no_unseen_decisions(store: Store, people: People) -> None:
    ada = await add(people, "ada")
    await store.decisions.add(ada.id, "Refused: send as Ada.", "/dashboard")
    await remove(people, ada)
    assert await store.decisions.take_unseen(ada.id) == []


async def test_sign_in_code_is_accepted_once(people: People) -> None:
    ada = await add(people, "ada")
    await people.set_totp(ada.id, "sealed", ["aaaa", "bbbb"], 0, entry("on"))
    assert [await people.use_totp_step(ada.id, step) for step in (7, 7, 6, 8)] == [True, False, False, True]
    assert [await people.use_recovery_code(ada.id, code) for code in ("aaaa", "aaaa", "cccc")] == [True, False, False]
    assert await people.count_recovery_codes(ada.id) == 1
    await people.remove_totp(ada.id, entry("off"))
    assert await people.count_recovery_codes(ada.id) == 0


async def test_accounts_are_listed_by_page_and_by_search(people: People) -> None:
    for name in ("ada", "bob", "c_1", "cx1"):
        await add(people, name)
    first = await people.list_rows(limit=2)
    assert [line.name for line in first] == ["ada", "bob", "c_1"]
    assert [line.name for line in await people.list_rows(after=first[1].email, limit=2)] == ["c_1", "cx1"]
    assert [line.name for line in await people.list_rows("C_1@")] == ["c_1"]


async def test_audit_log_is_listed_page_by_page(store: Store) -> None:
    for number in range(10):
        await store.audit.add(entry(str(number), "team_1" if number % 2 else None))
    first = await store.audit.list_rows("team_1", limit=2)
    assert [line.action for line in first] == ["9", "7", "5"]
    assert [line.action for line in await store.audit.list_rows("team_1", first[1].key, 2)] == ["5", "3", "1"]
    assert len(await store.audit.list_rows(None)) == 10
