"""Passkeys: added, signed in with, removed; and answers that are not a passkey's to this question."""

import json
from typing import Any

import pytest

from heliograph.dashboard.passkeys import WAIT_MS, Party, party_of
from heliograph.dashboard.views import account, passkeys, sign_in
from heliograph.dashboard.views.passkeys import COOKIE
from heliograph.dashboard.views.sign_in import NETWORK_TRIES_MAX
from heliograph.storage.passkeys import PASSKEYS_MAX
from tests.accounts.authenticator import ORIGIN, PRESENT, Authenticator, text
from tests.accounts.house import PASSWORD, Answer, Browser, House
from tests.storage.samples import ENTRY

pytestmark = pytest.mark.anyio

ADA, A, B = "ada@example.com", "/dashboard/teams/team_a", "/dashboard/teams/team_b"
ACCOUNT, DOOR = "/dashboard/account/passkeys", "/dashboard/sign-in/passkey"


async def add(
    browser: Browser, key: Authenticator, name: str = "Phone", check: str = PASSWORD, **client: Any
) -> Answer:
    answer = key.make((await browser.get(f"{ACCOUNT}/new")).body, **client)
    return await browser.post(ACCOUNT, passkey=name, check=check, credential=answer)


async def enter(browser: Browser, key: Authenticator, path: str = DOOR, **client: Any) -> Answer:
    answer = key.sign((await browser.get(DOOR)).body, **client)
    return await browser.post(path, credential=answer)


@pytest.fixture
async def ada(house: House) -> Browser:
    return await house.person(ADA, team_a="developer")


@pytest.fixture
async def key(ada: Browser) -> Authenticator:
    key = Authenticator()
    assert (await add(ada, key)).status == 303
    return key


@pytest.mark.both_databases
async def test_added_used_and_removed(house: House, ada: Browser, key: Authenticator) -> None:
    page = (await ada.get("/dashboard/account")).body
    assert "Phone" in page
    assert "never" in page.lower()
    browser = house.browser()
    entered = await enter(browser, key, f"{DOOR}?next=/dashboard/account")
    assert (entered.status, entered.place) == (303, "/dashboard/account")
    assert await browser.sees(A)
    id_ = await house.id_of(ADA)
    assert (await browser.post(f"{ACCOUNT}/remove", id=text(key.id))).status == 303
    assert (await enter(house.browser(), key)).status == 403
    lines = [(line.action, line.by, line.detail) for line in reversed(await house.store.audit.lines(None))]
    assert lines[-3:] == [
        ("account.passkey", id_, "added: Phone"),
        ("account.sign_in", id_, "with the passkey Phone"),
        ("account.passkey", id_, "removed: Phone"),
    ]


async def test_it_is_both_factors(house: House, ada: Browser, key: Authenticator) -> None:
    id_ = await house.id_of(ADA)
    await house.people.set_totp(id_, house.sealer.seal(b"1" * 20, f"totp/{id_}"), ["recovery"], 0, ENTRY)
    browser = house.browser()
    assert (await enter(browser, key)).status == 303
    assert await browser.sees(A)


@pytest.mark.parametrize(
    ("fault", "client"),
    [
        ({"flags": PRESENT}, {}),  # the device did not verify its owner
        ({"flags": 0}, {}),
        ({"origin": "https://evil.test"}, {}),
        ({"origin": f"{ORIGIN}:8443"}, {}),
        ({"origin": ORIGIN.replace("https", "http")}, {}),
        ({"party": "evil.test"}, {}),
        ({"party": "example.com"}, {}),
        ({}, {"challenge": text(b"another")}),
        ({}, {"challenge": ""}),
        ({}, {"type": "webauthn.other"}),
    ],
    ids=str,
)
async def test_answers_to_something_else(
    house: House, ada: Browser, fault: dict[str, Any], client: dict[str, Any]
) -> None:
    key, bad = Authenticator(), Authenticator()
    for name, value in fault.items():
        setattr(bad, name, value)
    assert (await add(ada, bad, **client)).status == 400
    assert await house.store.passkeys.of(await house.id_of(ADA)) == []
    await add(ada, key)
    for name, value in fault.items():
        setattr(key, name, value)
    browser = house.browser()
    assert (await enter(browser, key, **client)).status == 403
    assert not await browser.sees(A)


async def test_another_key_with_the_same_id(house: House, key: Authenticator) -> None:
    forged = Authenticator()
    forged.id, forged.handle = key.id, key.handle
    assert (await enter(house.browser(), forged)).status == 403
    bob = await house.person("bob@example.com", team_b="viewer")
    assert (await add(bob, forged)).status == 400  # and it cannot be taken over
    key.handle = (await house.id_of("bob@example.com")).encode()
    assert (await enter(house.browser(), key)).status == 403


async def test_a_counter_that_goes_back_is_a_copy(house: House, ada: Browser) -> None:
    key = Authenticator()
    key.count = 5
    await add(ada, key)
    assert (await enter(house.browser(), key)).status == 303
    key.count = 4
    assert (await enter(house.browser(), key)).status == 403
    key.count = 7
    assert (await enter(house.browser(), key)).status == 303


async def test_two_at_once_with_one_counter(house: House, key: Authenticator) -> None:
    id_ = text(key.id)
    assert [await house.store.passkeys.use(id_, count) for count in (0, 0, 3, 3, 2, 0, 4)] == [
        *(True, True, True, False, False, False, True)
    ]


async def test_a_challenge_is_of_one_browser_short_and_good_once(house: House, key: Authenticator) -> None:
    browser, other = house.browser(), house.browser()
    answer = key.sign((await browser.get(DOOR)).body)
    await other.get(DOOR)
    assert (await other.post(DOOR, credential=answer)).status == 403
    assert (await house.browser().post(DOOR, credential=answer)).status == 403
    thief = house.browser()
    thief.cookies = {COOKIE: browser.cookies[COOKIE]}
    assert (await browser.post(DOOR, credential=answer)).status == 303
    assert (await thief.post(DOOR, credential=answer)).status == 403
    assert not await thief.sees(A)
    late = house.browser()
    answer = key.sign((await late.get(DOOR)).body)
    house.clock.forward(WAIT_MS)
    assert (await late.post(DOOR, credential=answer)).status == 403


async def test_a_challenge_is_of_one_session(house: House, ada: Browser) -> None:
    key, guest = Authenticator(), house.browser()
    bob = await house.person("bob@example.com", team_b="viewer")
    answer = key.make((await bob.get(f"{ACCOUNT}/new")).body)
    ada.cookies[COOKIE] = bob.cookies[COOKIE]
    given = {"passkey": "Phone", "check": PASSWORD, "credential": answer}
    assert (await ada.post(ACCOUNT, **given)).status == 400
    asked = json.loads((await guest.get(DOOR)).body)
    ada.cookies[COOKIE] = guest.cookies[COOKIE]
    question = json.dumps({"challenge": asked["challenge"], "user": {"id": text(b"x")}, "rp": {"id": asked["rpId"]}})
    assert (await ada.post(ACCOUNT, **given | {"credential": key.make(question)})).status == 400


@pytest.mark.parametrize(
    "answer", ["", "{}", "[]", "null", "{", '{"id": 7}', '{"id": "AA", "rawId": "AA"}', '{"id": "\\u0000"}', "[" * 5000]
)
async def test_rubbish(house: House, ada: Browser, answer: str) -> None:
    await ada.get(f"{ACCOUNT}/new")
    assert (await ada.post(ACCOUNT, passkey="Phone", check=PASSWORD, credential=answer)).status == 400
    guest = house.browser()
    await guest.get(DOOR)
    assert (await guest.post(DOOR, credential=answer)).status == 403


async def test_damaged_answers_break_nothing(house: House, ada: Browser, key: Authenticator) -> None:
    """Each part of an answer cut short, or not what it should be."""
    whole = json.loads(key.sign((await house.browser().get(DOOR)).body))
    for name, part in whole["response"].items():
        for bad in ("", part[:-8], f"AAAA{part}", part * 2, 7, None, text(b"\xa1\x01" * 40)):
            guest = house.browser()
            question = (await guest.get(DOOR)).body
            answer = json.loads(key.sign(question))
            if name == "userHandle" and bad is None:
                continue  # it may be left out
            answer["response"][name] = bad
            assert (await guest.post(DOOR, credential=json.dumps(answer))).status == 403, (name, bad)
    made = Authenticator()
    for bad in ("", text(b"\xa1\x01"), text(b"\xbf" * 2000), text(b"\x9f" * 20_000), 7, None):
        answer = json.loads(made.make((await ada.get(f"{ACCOUNT}/new")).body))
        answer["response"]["attestationObject"] = bad
        given = {"passkey": "Phone", "check": PASSWORD, "credential": json.dumps(answer)}
        assert (await ada.post(ACCOUNT, **given)).status == 400, str(bad)[:40]


async def test_what_a_new_one_needs(house: House, ada: Browser) -> None:
    assert (await add(ada, Authenticator(), check="wrong password")).status == 400
    assert (await add(ada, Authenticator(), name="")).status == 400
    assert (await add(ada, Authenticator(), name="x" * 201)).status == 400
    for number in range(PASSKEYS_MAX):
        assert (await add(ada, Authenticator(), name=f"Key {number}")).status == 303
    assert (await add(ada, Authenticator())).status == 400
    bob = await house.person("bob@example.com", team_b="viewer")
    mine = (await house.store.passkeys.of(await house.id_of(ADA)))[0]
    assert (await bob.post(f"{ACCOUNT}/remove", id=mine.id)).status == 404
    assert len(await house.store.passkeys.of(await house.id_of(ADA))) == PASSKEYS_MAX


async def test_who_took_the_account_before_keeps_no_passkey(house: House) -> None:
    """By a link for a new password, or by removing the person."""
    mallory = await house.person("mallory@example.com", team_b="owner")
    link = (await mallory.post(f"{B}/team", email="eve@example.com", role="viewer")).link
    squatter, key = house.browser(), Authenticator()
    await squatter.post(link, password="mallory knows this")
    assert (await add(squatter, key, check="mallory knows this")).status == 303
    root = await house.person("root@example.com", operator=True)
    id_ = await house.id_of("eve@example.com")
    assert "1 passkey" in (await root.get(f"/dashboard/operator/people/{id_}")).body
    reset = (await root.post(f"/dashboard/operator/people/{id_}/link")).link
    assert (await house.browser().post(reset, password=PASSWORD)).status == 303
    assert (await enter(house.browser(), key)).status == 403
    honest, own = house.browser(), Authenticator()
    await honest.sign_in("eve@example.com")
    await add(honest, own)
    await root.post(f"/dashboard/operator/people/{id_}/remove")
    assert await house.store.passkeys.find(text(own.id)) is None


async def test_guessing_is_slowed(house: House, key: Authenticator) -> None:
    guest = house.browser()
    for _ in range(NETWORK_TRIES_MAX):
        assert (await guest.post(DOOR, credential="{}")).status == 403
    assert (await enter(guest, key)).status == 429


async def test_closed_with_the_passwords(house: House, ada: Browser, key: Authenticator) -> None:
    house.open(passwords=False)
    guest = house.browser()
    assert (await guest.get(DOOR)).status == 404
    assert (await guest.post(DOOR, credential="{}")).status == 404
    assert (await ada.get(f"{ACCOUNT}/new")).status == 404
    assert "passkey" not in (await ada.get("/dashboard/account")).body


async def test_without_their_extra(house: House, ada: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    for view in (account, passkeys, sign_in):
        monkeypatch.setattr(view, "ARE_HERE", False)
    guest = house.browser()
    assert (await guest.get(DOOR)).status == (await ada.get(f"{ACCOUNT}/new")).status == 404
    assert "passkey" not in (await guest.get("/dashboard/sign-in")).body
    assert "heliograph[passkeys]" in (await ada.get("/dashboard/account")).body


@pytest.mark.parametrize(
    ("url", "party"),
    [
        ("https://mail.example.com", Party("mail.example.com", "https://mail.example.com")),
        ("https://Mail.example.com:443/x", Party("mail.example.com", "https://mail.example.com")),
        ("https://mail.example.com:8443", Party("mail.example.com", "https://mail.example.com:8443")),
        ("http://localhost:8700", Party("localhost", "http://localhost:8700")),
        ("http://mail.example.com", None),
        ("http://127.0.0.1:8700", None),
        ("https://[::1]", None),
        ("https://192.0.2.1", None),
    ],
)
def test_where_browsers_have_passkeys(url: str, party: Party | None) -> None:
    assert party_of(url) == party
