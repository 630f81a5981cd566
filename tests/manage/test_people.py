"""People: who may be invited and get links; an action without effect writes no audit entry."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from heliograph.domain.accounts.idp_groups import OPERATOR
from heliograph.domain.accounts.people import Person
from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.manage import people
from heliograph.manage.people import UNMAILED_BY_OPERATOR, LinkTerms, NewPerson
from heliograph.storage.store import Store
from tests.storage.samples import ENTRY, settle

pytestmark = pytest.mark.anyio

OWNER = Actor(kind="person", id="usr_owner", address="192.0.2.7")
SHOWN = LinkTerms(by_operator=False, by_mail=False)
ADA = NewPerson(email="Ada@Example.com", name="Ada")


async def entries(store: Store) -> list[tuple[str, str, str, str | None]]:
    lines = await store.audit.list_rows(None)
    return [(line.actor, line.action, line.detail, line.team) for line in lines if line.action != ENTRY.action][::-1]


async def known(store: Store, **roles: str) -> Person:
    return await settle(store.people, "ada@example.com", "Ada", roles)


async def test_an_invitation_and_its_link_have_one_entry(store: Store, teams: None) -> None:
    created = await people.invite(store, OWNER, "team_1", ADA, "viewer", SHOWN)
    result = await store.people.use_link(created.token, "invite")
    assert result is None  # the creator of the link is not an owner
    assert await store.people.list_invitations(created.person.id) == {"team_1": "viewer"}
    assert await entries(store) == [("usr_owner", "member.invite", "viewer", "team_1")]


@pytest.mark.parametrize(
    ("wanted", "role", "fields"),
    [
        (NewPerson(email="ada", name="a\nb"), "boss", {"email", "name", "role"}),
        (NewPerson(email="ada@example.com"), "viewer", {"email"}),  # is a member already
    ],
)
async def test_invalid_invitation_is_refused(
    store: Store, teams: None, wanted: NewPerson, role: str, fields: set[str]
) -> None:
    await known(store, team_1="developer")
    with pytest.raises(InvalidRequest) as error:
        await people.invite(store, OWNER, "team_1", wanted, role, SHOWN)
    assert set((error.value.details or {}).get("fields", {error.value.param})) == fields
    assert await entries(store) == []


async def test_unchanged_person_writes_no_audit_entry(store: Store, teams: None) -> None:
    ada = await known(store, **{"": "operator", "team_1": "owner"})
    await store.people.set_password(ada.id, "argon2id…", ENTRY)
    operator = await store.people.get(ada.id)
    assert operator
    await people.offer_instance_role(store, OWNER, operator, OPERATOR, UNMAILED_BY_OPERATOR)
    await people.offer_team_role(store, OWNER, operator, "team_1", "viewer", UNMAILED_BY_OPERATOR)
    await people.set_role(store, OWNER, ada.id, ada.email, "team_1", "owner", "owner")
    await people.remove_role(store, OWNER, ada.id, ada.email, "team_2", "")
    await people.disable_totp(store, OWNER, operator)
    await people.end_sessions(store, OWNER, ada.id, ada.email)
    second_result = await people.add_or_invite(
        store, COMMAND_LINE, ADA, instance_role=OPERATOR, team="team_1", role="owner"
    )
    assert second_result.token == ""
    assert await entries(store) == []


async def test_removed_person_is_not_recreated_by_a_role_change(store: Store, teams: None) -> None:
    ada = await known(store)
    await people.remove(store, COMMAND_LINE, ada)
    for change in (
        people.offer_team_role(store, OWNER, ada, "team_1", "viewer", UNMAILED_BY_OPERATOR),
        people.offer_instance_role(store, OWNER, ada, OPERATOR, UNMAILED_BY_OPERATOR),
    ):
        with pytest.raises(NotFound):
            await change
    assert await store.people.count() == 0


@pytest.mark.parametrize(
    ("elsewhere", "by_operator", "may"), [(False, False, True), (True, False, False), (True, True, True)]
)
async def test_owner_resets_passwords_only_of_members_in_no_other_team(
    store: Store, teams: None, elsewhere: bool, by_operator: bool, may: bool
) -> None:
    ada = await known(store, team_1="viewer", **({"team_2": "viewer"} if elsewhere else {}))
    terms = LinkTerms(by_operator=by_operator, by_mail=False)
    error: AbstractContextManager[Any] = (
        nullcontext() if may else pytest.raises(InvalidRequest, match="Ask an operator")
    )
    with error:
        await people.make_team_link(store, OWNER, ada, "team_1", "reset", terms)
    assert [action for _, action, *_ in await entries(store)] == (["link.reset"] if may else [])
