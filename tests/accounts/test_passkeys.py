"""Passkeys: adding, signing in and removing, and rejection of invalid responses."""

import json
from typing import Any

import pytest

from heliograph.dashboard.passkeys import CHALLENGE_LIFETIME_MS, RelyingParty, relying_party
from heliograph.dashboard.views import account, passkeys, sign_in
from heliograph.dashboard.views.passkeys import CHALLENGE_COOKIE
from heliograph.dashboard.views.sign_in import NETWORK_ATTEMPTS_MAX
from heliograph.storage.passkeys import PASSKEYS_MAX
from tests.accounts.authenticator import ORIGIN, PRESENT, Authenticator, encode_base64url
from tests.accounts.house import PASSWORD, Browser, Instance, Response
from tests.storage.samples import ENTRY

pytestmark = pytest.mark.anyio

ADA, A, B = "ada@example.com", "/dashboard/teams/team_a", "/dashboard/teams/team_b"
ACCOUNT, DOOR = "/dashboard/account/passkeys", "/dashboard/sign-in/passkey"


async def add_passkey(
    browser: Browser, key: Authenticator, name: str = "Phone", check: str = PASSWORD, **client: Any
) -> Response:
    response = key.make((await browser.get(f"{ACCOUNT}/new")).body, **client)
    return await browser.post(ACCOUNT, passkey=name, check=check, credential=response)


async def sign_in_with_passkey(browser: Browser, key: Authenticator, path: str = DOOR, **client: Any) -> Response:
    response = key.sign((await browser.get(DOOR)).body, **client)
    return await browser.post(path, credential=response)


@pytest.fixture
async def ada(house: Instance) -> Browser:
    return await house.person(ADA, team_a="developer")


@pytest.fixture
async def key(ada: Browser) -> Authenticator:
    key = Authenticator()
    assert (await add_passkey(ada, key)).status == 303
    return key


@pytest.mark.both_databases
async def test_passkey_is_added_used_and_removed(house: Instance, ada: Browser, key: Authenticator) -> None:
    page = (await ada.get("/dashboard/account")).body
    assert "Phone" in page
    assert "never" in page.lower()
    browser = house.browser()
    entered = await sign_in_with_passkey(browser, key, f"{DOOR}?next=/dashboard/account")
    assert (entered.status, entered.location) == (303, "/dashboard/account")
    assert await browser.can_see(A)
    id_ = await house.id_of(ADA)
    assert (await browser.post(f"{ACCOUNT}/remove", id=encode_base64url(key.id))).status == 303
    assert (await sign_in_with_passkey(house.browser(), key)).status == 403
    lines = [(line.action, line.actor_name, line.detail) for line in reversed(await house.store.audit.list_rows(None))]
    assert lines[-3:] == [
        ("account.passkey", id_, "added: Phone"),
        ("account.sign_in", id_, "with the passkey Phone"),
        ("account.passkey", id_, "removed: Phone"),
    ]


async def test_passkey_sign_in_needs_no_totp(house: Instance, ada: Browser, key: Authenticator) -> None:
    id_ = await house.id_of(ADA)
    await house.people.set_totp(id_, house.sealer.encrypt(b"1" * 20, f"totp/{id_}"), ["recovery"], 0, ENTRY)
    browser = house.browser()
    assert (await sign_in_with_passkey(browser, key)).status == 303
    assert await browser.can_see(A)


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
        ({}, {"challenge": encode_base64url(b"another")}),
        ({}, {"challenge": ""}),
        ({}, {"type": "webauthn.other"}),
    ],
    ids=str,
)
async def test_passkey_response_to_other_challenge_is_rejected(
    house: Instance, ada: Browser, fault: dict[str, Any], client: dict[str, Any]
) -> None:
    key, bad = Authenticator(), Authenticator()
    for name, value in fault.items():
        setattr(bad, name, value)
    assert (await add_passkey(ada, bad, **client)).status == 400
    assert await house.store.passkeys.list_all(await house.id_of(ADA)) == []
    await add_passkey(ada, key)
    for name, value in fault.items():
        setattr(key, name, value)
    browser = house.browser()
    assert (await sign_in_with_passkey(browser, key, **client)).status == 403
    assert not await browser.can_see(A)


async def test_passkey_with_same_id_and_other_key_is_rejected(house: Instance, key: Authenticator) -> None:
    forged = Authenticator()
    forged.id, forged.handle = key.id, key.handle
    assert (await sign_in_with_passkey(house.browser(), forged)).status == 403
    bob = await house.person("bob@example.com", team_b="viewer")
    assert (await add_passkey(bob, forged)).status == 400  # the passkey cannot be registered by another user
    key.handle = (await house.id_of("bob@example.com")).encode()
    assert (await sign_in_with_passkey(house.browser(), key)).status == 403


async def test_passkey_with_decreasing_counter_is_rejected(house: Instance, ada: Browser) -> None:
    key = Authenticator()
    key.count = 5
    await add_passkey(ada, key)
    assert (await sign_in_with_passkey(house.browser(), key)).status == 303
    key.count = 4
    assert (await sign_in_with_passkey(house.browser(), key)).status == 403
    key.count = 7
    assert (await sign_in_with_passkey(house.browser(), key)).status == 303


async def test_passkey_counter_is_accepted_once(house: Instance, key: Authenticator) -> None:
    id_ = encode_base64url(key.id)
    assert [await house.store.passkeys.use(id_, count) for count in (0, 0, 3, 3, 2, 0, 4)] == [
        *(True, True, True, False, False, False, True)
    ]


async def test_passkey_challenge_is_bound_to_browser_and_single_use(house: Instance, key: Authenticator) -> None:
    browser, other = house.browser(), house.browser()
    response = key.sign((await browser.get(DOOR)).body)
    await other.get(DOOR)
    assert (await other.post(DOOR, credential=response)).status == 403
    assert (await house.browser().post(DOOR, credential=response)).status == 403
    thief = house.browser()
    thief.cookies = {CHALLENGE_COOKIE: browser.cookies[CHALLENGE_COOKIE]}
    assert (await browser.post(DOOR, credential=response)).status == 303
    assert (await thief.post(DOOR, credential=response)).status == 403
    assert not await thief.can_see(A)
    late = house.browser()
    response = key.sign((await late.get(DOOR)).body)
    house.clock.forward(CHALLENGE_LIFETIME_MS)
    assert (await late.post(DOOR, credential=response)).status == 403


async def test_passkey_challenge_of_other_session_is_rejected(house: Instance, ada: Browser) -> None:
    key, guest = Authenticator(), house.browser()
    bob = await house.person("bob@example.com", team_b="viewer")
    response = key.make((await bob.get(f"{ACCOUNT}/new")).body)
    ada.cookies[CHALLENGE_COOKIE] = bob.cookies[CHALLENGE_COOKIE]
    form = {"passkey": "Phone", "check": PASSWORD, "credential": response}
    assert (await ada.post(ACCOUNT, **form)).status == 400
    options = json.loads((await guest.get(DOOR)).body)
    ada.cookies[CHALLENGE_COOKIE] = guest.cookies[CHALLENGE_COOKIE]
    question = json.dumps(
        {"challenge": options["challenge"], "user": {"id": encode_base64url(b"x")}, "rp": {"id": options["rpId"]}}
    )
    assert (await ada.post(ACCOUNT, **form | {"credential": key.make(question)})).status == 400


@pytest.mark.parametrize(
    "answer", ["", "{}", "[]", "null", "{", '{"id": 7}', '{"id": "AA", "rawId": "AA"}', '{"id": "\\u0000"}', "[" * 5000]
)
async def test_malformed_passkey_response_is_rejected(house: Instance, ada: Browser, answer: str) -> None:
    await ada.get(f"{ACCOUNT}/new")
    assert (await ada.post(ACCOUNT, passkey="Phone", check=PASSWORD, credential=answer)).status == 400
    guest = house.browser()
    await guest.get(DOOR)
    assert (await guest.post(DOOR, credential=answer)).status == 403


async def test_damaged_passkey_response_is_rejected(house: Instance, ada: Browser, key: Authenticator) -> None:
    """Each part of a response is truncated or replaced."""
    credential = json.loads(key.sign((await house.browser().get(DOOR)).body))
    for name, part in credential["response"].items():
        for bad in ("", part[:-8], f"AAAA{part}", part * 2, 7, None, encode_base64url(b"\xa1\x01" * 40)):
            guest = house.browser()
            question = (await guest.get(DOOR)).body
            answer = json.loads(key.sign(question))
            if name == "userHandle" and bad is None:
                continue  # the user handle is optional
            answer["response"][name] = bad
            assert (await guest.post(DOOR, credential=json.dumps(answer))).status == 403, (name, bad)
    authenticator = Authenticator()
    for bad in (
        "",
        encode_base64url(b"\xa1\x01"),
        encode_base64url(b"\xbf" * 2000),
        encode_base64url(b"\x9f" * 20_000),
        7,
        None,
    ):
        answer = json.loads(authenticator.make((await ada.get(f"{ACCOUNT}/new")).body))
        answer["response"]["attestationObject"] = bad
        form = {"passkey": "Phone", "check": PASSWORD, "credential": json.dumps(answer)}
        assert (await ada.post(ACCOUNT, **form)).status == 400, str(bad)[:40]


async def test_adding_passkey_requires_password_and_free_slot(house: Instance, ada: Browser) -> None:
    assert (await add_passkey(ada, Authenticator(), check="wrong password")).status == 400
    assert (await add_passkey(ada, Authenticator(), name="")).status == 400
    assert (await add_passkey(ada, Authenticator(), name="x" * 201)).status == 400
    for number in range(PASSKEYS_MAX):
        assert (await add_passkey(ada, Authenticator(), name=f"Key {number}")).status == 303
    assert (await add_passkey(ada, Authenticator())).status == 400
    bob = await house.person("bob@example.com", team_b="viewer")
    mine = (await house.store.passkeys.list_all(await house.id_of(ADA)))[0]
    assert (await bob.post(f"{ACCOUNT}/remove", id=mine.id)).status == 404
    assert len(await house.store.passkeys.list_all(await house.id_of(ADA))) == PASSKEYS_MAX


async def test_password_reset_removes_passkeys_of_attacker(house: Instance) -> None:
    """An attacker's passkey is removed by a password reset link and with the account."""
    mallory = await house.person("mallory@example.com", team_b="owner")
    link = (await mallory.post(f"{B}/team", email="eve@example.com", role="viewer")).link
    squatter, key = house.browser(), Authenticator()
    await squatter.post(link, password="mallory knows this")
    assert (await add_passkey(squatter, key, check="mallory knows this")).status == 303
    root = await house.person("root@example.com", operator=True)
    id_ = await house.id_of("eve@example.com")
    assert "1 passkey" in (await root.get(f"/dashboard/operator/people/{id_}")).body
    reset = (await root.post(f"/dashboard/operator/people/{id_}/link")).link
    assert (await house.browser().post(reset, password=PASSWORD)).status == 303
    assert (await sign_in_with_passkey(house.browser(), key)).status == 403
    honest, authenticator = house.browser(), Authenticator()
    await honest.sign_in("eve@example.com")
    await add_passkey(honest, authenticator)
    await root.post(f"/dashboard/operator/people/{id_}/remove")
    assert await house.store.passkeys.find(encode_base64url(authenticator.id)) is None


async def test_passkey_guessing_is_limited(house: Instance, key: Authenticator) -> None:
    guest = house.browser()
    for _ in range(NETWORK_ATTEMPTS_MAX):
        assert (await guest.post(DOOR, credential="{}")).status == 403
    assert (await sign_in_with_passkey(guest, key)).status == 429


async def test_passkeys_are_unavailable_without_password_sign_in(
    house: Instance, ada: Browser, key: Authenticator
) -> None:
    house.start(password_sign_in=False)
    guest = house.browser()
    assert (await guest.get(DOOR)).status == 404
    assert (await guest.post(DOOR, credential="{}")).status == 404
    assert (await ada.get(f"{ACCOUNT}/new")).status == 404
    assert "passkey" not in (await ada.get("/dashboard/account")).body


async def test_passkeys_without_optional_dependency_are_unavailable(
    house: Instance, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    for view in (account, passkeys, sign_in):
        monkeypatch.setattr(view, "PASSKEYS_AVAILABLE", False)
    guest = house.browser()
    assert (await guest.get(DOOR)).status == (await ada.get(f"{ACCOUNT}/new")).status == 404
    assert "passkey" not in (await guest.get("/dashboard/sign-in")).body
    assert "heliograph[passkeys]" in (await ada.get("/dashboard/account")).body


@pytest.mark.parametrize(
    ("url", "party"),
    [
        ("https://mail.example.com", RelyingParty("mail.example.com", "https://mail.example.com")),
        ("https://Mail.example.com:443/x", RelyingParty("mail.example.com", "https://mail.example.com")),
        ("https://mail.example.com:8443", RelyingParty("mail.example.com", "https://mail.example.com:8443")),
        ("http://localhost:8700", RelyingParty("localhost", "http://localhost:8700")),
        ("http://mail.example.com", None),
        ("http://127.0.0.1:8700", None),
        ("https://[::1]", None),
        ("https://192.0.2.1", None),
    ],
)
def test_relying_party_requires_https_domain_or_localhost(url: str, party: RelyingParty | None) -> None:
    assert relying_party(url) == party
