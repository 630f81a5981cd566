"""People: who may be invited and given links, and that nothing changed leaves no entry."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from heliograph.domain.accounts.idp_groups import OPERATOR
from heliograph.domain.accounts.people import Person
from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.manage import people
from heliograph.manage.people import PRINTED, LinkTerms, NewPerson
from heliograph.storage.store import Store
from tests.storage.samples import ENTRY, settle

pytestmark = pytest.mark.anyio

OWNER = Actor(kind="person", id="usr_owner", address="192.0.2.7")
SHOWN = LinkTerms(by_operator=False, mailed=False)
ADA = NewPerson(email="Ada@Example.com", name="Ada")


async def entries(store: Store) -> list[tuple[str, str, str, str | None]]:
    lines = await store.audit.lines(None)
    return [(line.actor, line.action, line.detail, line.team) for line in lines if line.action != ENTRY.action][::-1]


async def known(store: Store, **roles: str) -> Person:
    return await settle(store.people, "ada@example.com", "Ada", roles)


async def test_an_invitation_and_its_link_have_one_entry(store: Store, teams: None) -> None:
    made = await people.invite(store, OWNER, "team_1", ADA, "viewer", SHOWN)
    found = await store.people.use_link(made.token, "invite")
    assert found is None  # whoever made it is no owner
    assert await store.people.invitations(made.person.id) == {"team_1": "viewer"}
    assert await entries(store) == [("usr_owner", "member.invite", "viewer", "team_1")]


@pytest.mark.parametrize(
    ("wanted", "role", "fields"),
    [
        (NewPerson(email="ada", name="a\nb"), "boss", {"email", "name", "role"}),
        (NewPerson(email="ada@example.com"), "viewer", {"email"}),  # is there already
    ],
)
async def test_who_cannot_be_invited(store: Store, teams: None, wanted: NewPerson, role: str, fields: set[str]) -> None:
    await known(store, team_1="developer")
    with pytest.raises(InvalidRequest) as refused:
        await people.invite(store, OWNER, "team_1", wanted, role, SHOWN)
    assert set((refused.value.details or {}).get("fields", {refused.value.param})) == fields
    assert await entries(store) == []


async def test_nothing_changed_no_entry(store: Store, teams: None) -> None:
    ada = await known(store, **{"": "operator", "team_1": "owner"})
    await store.people.set_password(ada.id, "argon2id…", ENTRY)
    operator = await store.people.get(ada.id)
    assert operator
    await people.offer_operator(store, OWNER, operator, OPERATOR, PRINTED)
    await people.offer_role(store, OWNER, operator, "team_1", "viewer", PRINTED)
    await people.set_role(store, OWNER, ada.id, ada.email, "team_1", "owner", "owner")
    await people.end_role(store, OWNER, ada.id, ada.email, "team_2", "")
    await people.end_totp(store, OWNER, operator)
    await people.end_sessions(store, OWNER, ada.id, ada.email)
    again = await people.add_or_offer(store, COMMAND_LINE, ADA, instance_role=OPERATOR, team="team_1", role="owner")
    assert again.token == ""
    assert await entries(store) == []


async def test_who_is_gone_is_not_made_again_by_a_role(store: Store, teams: None) -> None:
    ada = await known(store)
    await people.remove(store, COMMAND_LINE, ada)
    for change in (
        people.offer_role(store, OWNER, ada, "team_1", "viewer", PRINTED),
        people.offer_operator(store, OWNER, ada, OPERATOR, PRINTED),
    ):
        with pytest.raises(NotFound):
            await change
    assert await store.people.count() == 0


@pytest.mark.parametrize(
    ("elsewhere", "by_operator", "may"), [(False, False, True), (True, False, False), (True, True, True)]
)
async def test_an_owner_lets_in_again_only_who_is_in_no_other_team(
    store: Store, teams: None, elsewhere: bool, by_operator: bool, may: bool
) -> None:
    ada = await known(store, team_1="viewer", **({"team_2": "viewer"} if elsewhere else {}))
    terms = LinkTerms(by_operator=by_operator, mailed=False)
    refused: AbstractContextManager[Any] = (
        nullcontext() if may else pytest.raises(InvalidRequest, match="ask an operator")
    )
    with refused:
        await people.make_team_link(store, OWNER, ada, "team_1", "reset", terms)
    assert [action for _, action, *_ in await entries(store)] == (["link.reset"] if may else [])
