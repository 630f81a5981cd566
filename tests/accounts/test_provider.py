"""Signing in with an identity provider: who is let in, with which roles; and everything that is not believed."""

import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from heliograph.app import PROVIDER_S, make_provider
from heliograph.carriers.http_client import Web
from heliograph.dashboard import oidc
from heliograph.dashboard.views import provider as view
from heliograph.dashboard.views import reauth
from heliograph.dashboard.views.sign_in import NETWORK_TRIES_MAX
from heliograph.domain.accounts.idp_groups import read_group_roles
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage.people import NewPerson, demo_link
from heliograph.settings import Settings
from tests.accounts.authenticator import Authenticator
from tests.accounts.house import PASSWORD, Answer, Browser, House
from tests.accounts.provider import CLIENT, KEY, OTHER_KEY, SECRET, Idp, running_idp
from tests.storage.samples import ENTRY

pytestmark = pytest.mark.anyio

ADA = {"sub": "ada-1", "email": "ada@example.com", "email_verified": True, "name": "Ada", "groups": ["devs"]}
A, B, OPERATOR = "/dashboard/teams/team_a", "/dashboard/teams/team_b", "/dashboard/operator"
ROLES = "devs=team_a:developer,leads=team_a:owner,ops=operator,ghosts=team_gone:owner"
FAILED = "This sign-in with Example ID did not work."


class World:
    def __init__(self, house: House, idp: Idp, web: Web) -> None:
        self.house, self.idp, self.web = house, idp, web
        self.open()

    def open(self, *, passwords: bool = True, roles: str = ROLES, email_trusted: bool = False) -> None:
        settings = Settings(
            public_url="https://mail.example.com",
            oidc_issuer=self.idp.issuer,
            oidc_client_id=CLIENT,
            oidc_client_secret=SECRET,
            oidc_name="Example ID",
            oidc_roles=read_group_roles(roles),
            oidc_email_trusted=email_trusted,
        )
        self.house.open(provider=make_provider(settings, self.house.clock, self.web), passwords=passwords)

    async def sign_in(self, browser: Browser | None = None, **claims: Any) -> tuple[Browser, Answer]:
        browser = browser or self.house.browser()
        gone = await browser.get("/dashboard/sign-in/provider")
        assert gone.status == 303, gone.body
        return browser, await browser.get(self.idp.authorize(gone.place, **ADA | claims))

    async def refused(self, why: str = FAILED, status: int = 403, **claims: Any) -> None:
        browser, answer = await self.sign_in(**claims)
        assert (answer.status, why in answer.body) == (status, True), answer.body
        assert not await browser.sees("/dashboard/account")

    async def actions(self) -> list[tuple[str, str, str]]:
        lines = await self.house.store.audit.lines(None)
        return [(line.action, line.subject, line.detail) for line in reversed(lines)]


@pytest.fixture
async def world(house: House) -> AsyncIterator[World]:
    web = Web()
    async with running_idp(house.clock) as idp:
        yield World(house, idp, web)
        await web.close()


# -- who is let in -----------------------------------------------------------------------------------------


async def test_somebody_new_comes_with_the_role_of_the_group(world: World) -> None:
    browser, answer = await world.sign_in()
    assert (answer.status, answer.place) == (303, "/dashboard")
    assert await browser.sees(A)
    assert not await browser.sees(f"{A}/team/new")
    assert not await browser.sees(B)
    assert await world.actions() == [
        ("person.add", "ada@example.com", "Example ID"),
        ("member.role", "ada@example.com", "none → developer, by Example ID"),
        ("account.sign_in", "ada@example.com", "with Example ID"),
    ]
    person = await world.house.people.find("ada@example.com")
    assert person
    assert (person.name, person.password, person.proven) == ("Ada", None, 1)


async def test_roles_follow_the_groups_at_each_sign_in(world: World) -> None:
    await world.house.person("boss@example.com", team_a="owner")
    await world.house.person("root@example.com", operator=True)
    for groups, sees in (
        (["devs"], [A]),
        (["leads", "devs", "ops"], [A, f"{A}/team/new", B, OPERATOR]),
        (["ops"], [A, f"{A}/team/new", B, OPERATOR]),
        ([], []),
        (["devs", "strangers"], [A]),
    ):
        browser, _ = await world.sign_in(groups=groups)
        assert [path for path in (A, f"{A}/team/new", B, OPERATOR) if await browser.sees(path)] == sees, groups


async def test_a_team_that_no_group_is_for_stays_as_it_is(world: World) -> None:
    await world.house.person("ada@example.com", team_b="owner")
    browser, _ = await world.sign_in(groups=[])
    assert await browser.sees(f"{B}/team/new")
    assert not await browser.sees(A)


async def test_the_last_operator_and_the_last_owner_stay(world: World) -> None:
    await world.house.person("ada@example.com", operator=True, team_a="owner")
    browser, _ = await world.sign_in(groups=[])
    assert await browser.sees(OPERATOR)
    assert (await world.house.people.roles(await world.house.id_of("ada@example.com"))) == {"team_a": "owner"}


@pytest.mark.parametrize("groups", [[], ["unknown"], ["DEVS"], ["ghosts"], "strange", [1, None], None, {"devs": True}])
async def test_nobody_new_comes_without_a_role(world: World, groups: Any) -> None:
    await world.refused("You have no role here yet.", groups=groups)
    assert await world.house.people.find("ada@example.com") is None


async def test_one_group_may_be_a_word(world: World) -> None:
    browser, _ = await world.sign_in(groups="devs")
    assert await browser.sees(A)


async def test_groups_that_are_too_many_for_a_token_take_no_role_away(world: World) -> None:
    """Some providers then say only where they could be asked for."""
    await world.sign_in()
    world.idp.userinfo = {"sub": "ada-1"}
    world.idp.sign = lambda claims: world.idp.signed({key: claims[key] for key in claims if key != "groups"})
    await world.refused(_claim_names={"groups": "src1"})
    assert await world.house.people.roles(await world.house.id_of("ada@example.com")) == {"team_a": "developer"}


async def test_more_groups_than_are_read_take_no_role_away(world: World) -> None:
    many = [f"group {number}" for number in range(oidc.GROUPS_MAX - 1)]
    await world.sign_in(groups=[*many, "devs"])
    await world.refused(groups=[*many, "more", "devs"])
    assert await world.house.people.roles(await world.house.id_of("ada@example.com")) == {"team_a": "developer"}


async def test_what_only_userinfo_says(world: World) -> None:
    world.idp.sign = lambda claims: world.idp.signed(
        {k: v for k, v in claims.items() if k not in ("email", "groups", "name")}
    )
    world.idp.userinfo = ADA | {"email_verified": False}  # and not the token's word for another address
    await world.refused("does not say that your address is verified")
    world.idp.userinfo = ADA
    browser, _ = await world.sign_in()
    assert await browser.sees(A)
    world.idp.userinfo = ADA | {"sub": "eve-1"}
    await world.refused()


async def test_the_session_ends_however_much_it_is_used(world: World) -> None:
    browser, _ = await world.sign_in()
    for _ in range(11):
        world.house.clock.forward(view.LASTS_MS // 12)
        assert await browser.sees(A)
    world.house.clock.forward(view.LASTS_MS // 12)
    assert not await browser.sees(A)


@pytest.mark.both_databases
async def test_out_here_and_there(world: World) -> None:
    browser, _ = await world.sign_in()
    out = await browser.post("/dashboard/sign-out")
    assert out.place == "/dashboard/sign-in?out"
    assert not await browser.sees(A)
    assert 'href="/dashboard/sign-out/provider"' in (await browser.get(out.place)).body
    place = (await browser.get("/dashboard/sign-out/provider")).place
    assert place.startswith(f"{world.idp.issuer}/end?client_id=heliograph&post_logout_redirect_uri=https%3A%2F%2Fmail.")


# -- whose account it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verified", [False, None, "yes", 1, "", [True]])
async def test_an_address_that_is_not_verified_is_nobodys(world: World, verified: Any) -> None:
    await world.house.person("ada@example.com", operator=True)
    await world.refused(
        "does not say that your address is verified", sub="eve", email_verified=verified, groups=["ops"]
    )
    assert (await world.actions())[-1][0] != "account.sign_in"


async def test_a_provider_that_says_nothing_of_the_address_is_trusted_on_request(world: World) -> None:
    """Entra ID never says it."""
    world.idp.userinfo = {"sub": "ada-1"}
    world.idp.sign = lambda claims: world.idp.signed({k: v for k, v in claims.items() if k != "email_verified"})
    await world.refused("sets HELIOGRAPH_OIDC_EMAIL_TRUSTED=on")
    world.open(email_trusted=True)
    browser, _ = await world.sign_in()
    assert await browser.sees(A)


@pytest.mark.parametrize("verified", [False, None, "no"])
async def test_but_not_against_its_word(world: World, verified: Any) -> None:
    world.open(email_trusted=True)
    await world.refused("does not say that your address is verified", email_verified=verified)


async def test_known_by_the_subject_whatever_the_address(world: World) -> None:
    await world.sign_in()
    browser, answer = await world.sign_in(email="other@example.com", email_verified=False)
    assert answer.status == 303
    assert "ada@example.com" in (await browser.get("/dashboard/account")).body
    assert await world.house.people.find("other@example.com") is None


async def test_an_address_given_to_somebody_else_is_not_the_account(world: World) -> None:
    await world.sign_in()
    await world.refused("belongs to somebody else at Example ID", sub="ada-2")
    root = await world.house.person("root@example.com", operator=True)
    id_ = await world.house.id_of("ada@example.com")
    assert "ada-1" in (await root.get(f"{OPERATOR}/people/{id_}")).body
    assert (await root.post(f"{OPERATOR}/people/{id_}/provider")).status == 303
    _, answer = await world.sign_in(sub="ada-2")
    assert answer.status == 303


async def test_a_proven_account_keeps_its_password(world: World) -> None:
    await world.house.person("ada@example.com", team_b="viewer")
    browser, _ = await world.sign_in()
    assert await browser.sees(A)
    assert await browser.sees(B)
    assert (await world.house.browser().sign_in("ada@example.com")).status == 303
    assert "Connected" in (await browser.get("/dashboard/account")).body


async def _squat(world: World, mallory: Browser) -> Browser:
    """The owner of team B invites Ada and follows the link himself."""
    link = (await mallory.post(f"{B}/team", email="ada@example.com", role="viewer")).link
    squatter = world.house.browser()
    assert (await squatter.post(link, password="mallory knows this")).status == 303
    return squatter


async def test_who_took_the_account_before_gets_nothing_of_it(world: World) -> None:
    mallory = await world.house.person("mallory@example.com", team_b="owner")
    squatter = await _squat(world, mallory)
    browser, _ = await world.sign_in()
    assert await browser.sees(A)
    assert not await squatter.sees("/dashboard/account")
    assert (await squatter.sign_in("ada@example.com", "mallory knows this")).status == 403


async def test_nor_does_who_takes_it_by_a_link_later(world: World) -> None:
    mallory = await world.house.person("mallory@example.com", team_b="owner")
    await world.house.offer("ada@example.com", team_b="viewer")
    browser, _ = await world.sign_in(groups=[])
    await browser.post("/dashboard/invitations", team="team_b", answer="accept")
    id_ = await world.house.id_of("ada@example.com")
    link = (await mallory.post(f"{B}/team/{id_}/link")).link
    taker = world.house.browser()
    await taker.post(link, password="mallory knows this")
    await world.sign_in()  # now with a group
    assert not await taker.sees(A)
    assert (await taker.sign_in("ada@example.com", "mallory knows this")).status == 403


@pytest.mark.parametrize("before", [False, True])
async def test_nor_does_who_invites_somebody_that_has_no_password(world: World, before: bool) -> None:
    """Ada came by the provider alone: an owner's shown link chooses no password for all that she is."""
    mallory = await world.house.person("mallory@example.com", team_b="owner")
    if before:
        link = (await mallory.post(f"{B}/team", email="ada@example.com", role="viewer")).link
    ada, _ = await world.sign_in(groups=["devs", "ops"])
    if not before:
        link = (await mallory.post(f"{B}/team", email="ada@example.com", role="viewer")).link
    taker = world.house.browser()
    await taker.post(link, password="mallory knows this")
    assert not await taker.sees(OPERATOR)
    assert not await taker.sees(A)
    assert await ada.sees(OPERATOR)
    await ada.post(link if not before else "/dashboard/invitations", team="team_b", answer="accept")
    assert await ada.sees(B)


async def test_the_providers_word_is_both_factors(world: World) -> None:
    await world.house.person("ada@example.com", team_b="viewer")
    id_ = await world.house.id_of("ada@example.com")
    sealed = world.house.sealer.seal(b"1" * 20, f"totp/{id_}")
    await world.house.people.set_totp(id_, sealed, ["recovery"], 0, ENTRY)
    _, answer = await world.sign_in()
    assert answer.status == 303
    assert (await world.house.browser().sign_in("ada@example.com")).status == 200  # and asks for a code


async def test_who_was_invited_accepts_on_the_first_page(world: World) -> None:
    await world.house.offer("ada@example.com", team_b="viewer")
    browser, answer = await world.sign_in(groups=[])
    assert answer.status == 303
    assert not await browser.sees(B)
    await browser.post("/dashboard/invitations", team="team_b", answer="accept")
    assert await browser.sees(B)


# -- an open session -----------------------------------------------------------------------------------------


async def add_password(browser: Browser) -> int:
    return (await browser.post("/dashboard/account/password", new="a password of mallory's")).status


async def add_passkey(browser: Browser) -> int:
    answer = Authenticator().make((await browser.get("/dashboard/account/passkeys/new")).body)
    return (await browser.post("/dashboard/account/passkeys", passkey="Phone", credential=answer)).status


ADDING = pytest.mark.parametrize("add", [add_password, add_passkey])
Add = Callable[[Browser], Awaitable[int]]


async def prove(world: World, browser: Browser, **claims: Any) -> Answer:
    gone = await browser.get("/dashboard/account/provider")
    assert {"prompt=login", "max_age=0"} <= set(urlsplit(gone.place).query.split("&"))
    return await browser.get(world.idp.authorize(gone.place, **ADA | claims))


@ADDING
async def test_who_finds_a_session_open_adds_no_way_in(world: World, add: Add) -> None:
    browser, _ = await world.sign_in()
    assert await add(browser) == 400
    page = (await browser.get("/dashboard/account")).body
    assert 'href="/dashboard/account/provider"' in page
    assert 'action="/dashboard/account/password"' not in page
    answer = await prove(world, browser, auth_time=world.house.clock.now() // 1000)
    assert (answer.status, answer.place) == (303, "/dashboard/account")
    assert 'action="/dashboard/account/password"' in (await browser.get("/dashboard/account")).body
    assert await add(browser) == 303


@ADDING
@pytest.mark.parametrize(
    ("ago_s", "claims", "why"),
    [
        (None, {}, "does not say that you signed in there just now"),  # a provider that does not know max_age
        (3600, {}, "does not say that you signed in there just now"),  # who took prompt=login out of the address
        (True, {}, "does not say that you signed in there just now"),
        (0, {"sub": "eve-1", "email": "eve@example.com"}, "that was not your account"),
    ],
)
async def test_what_proves_nothing(world: World, add: Add, ago_s: int | None, claims: dict[str, Any], why: str) -> None:
    browser, _ = await world.sign_in()
    at = ago_s if ago_s is None or ago_s is True else world.house.clock.now() // 1000 - ago_s
    answer = await prove(world, browser, auth_time=at, **claims)
    assert (answer.status, why in answer.body) == (403, True)
    assert await add(browser) == 400
    assert "ada@example.com" in (await browser.get("/dashboard/account")).body  # and it is still the same person


@ADDING
async def test_a_proof_is_of_one_session_and_does_not_last(world: World, add: Add) -> None:
    browser, _ = await world.sign_in()
    other, _ = await world.sign_in()
    await prove(world, browser, auth_time=world.house.clock.now() // 1000)
    other.cookies[reauth.COOKIE] = browser.cookies[reauth.COOKIE]
    assert await add(other) == 400
    world.house.clock.forward(reauth.LASTS_MS)
    assert await add(browser) == 400


async def test_who_finds_a_session_open_turns_no_code_on(world: World) -> None:
    browser, _ = await world.sign_in()
    form = await world.house.code_form("ada@example.com")
    assert (await browser.get("/dashboard/account/totp")).place == "/dashboard/account"
    assert (await browser.post("/dashboard/account/totp", **form)).place == "/dashboard/account"
    assert "Turn off" not in (await browser.get("/dashboard/account")).body
    await prove(world, browser, auth_time=world.house.clock.now() // 1000)
    assert "recovery codes" in (await browser.post("/dashboard/account/totp", **form)).body


async def test_an_answer_for_another_session_changes_nothing(world: World) -> None:
    browser, _ = await world.sign_in()
    path = world.idp.authorize(
        (await browser.get("/dashboard/account/provider")).place, **ADA, auth_time=world.house.clock.now() // 1000
    )
    other, _ = await world.sign_in()
    other.cookies[view.COOKIE] = browser.cookies[view.COOKIE]
    assert (await other.get(path)).place == "/dashboard"
    await browser.post("/dashboard/sign-out")
    assert (await browser.get(path)).status == 403
    assert not await browser.sees(A)


# -- what is not believed ----------------------------------------------------------------------------------


NONE, HS256 = b'{"alg": "none", "typ": "JWT"}', b'{"alg": "HS256", "kid": "first"}'


def _part(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def _unsigned(claims: dict[str, Any]) -> str:
    return f"{_part(NONE)}.{_part(json.dumps(claims).encode())}."


def _by_public_key(claims: dict[str, Any]) -> str:
    """By hand: the library does not do it."""
    text = f"{_part(HS256)}.{_part(json.dumps(claims).encode())}"
    return f"{text}.{_part(hmac.digest(KEY.as_pem(private=False), text.encode(), 'sha256'))}"


def _by_client_secret(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])


def _by_another_key(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "first"}, claims, OTHER_KEY)


def _by_a_key_of_its_own(claims: dict[str, Any]) -> str:
    header = {"alg": "RS256", "kid": "second", "jwk": OTHER_KEY.as_dict(private=False)}
    return jwt.encode(header, claims, OTHER_KEY)


def _changed(claims: dict[str, Any]) -> str:
    head, _, tail = jwt.encode({"alg": "RS256", "kid": "first"}, claims, KEY).split(".")
    return f"{head}.{_part(json.dumps(claims | {'sub': 'root'}).encode())}.{tail}"


@pytest.mark.parametrize(
    "sign",
    [
        _unsigned,
        _by_public_key,
        _by_client_secret,
        _by_another_key,
        _by_a_key_of_its_own,
        _changed,
        lambda _: "",
        lambda _: "a.b.c",
    ],
)
async def test_tokens_that_are_not_the_providers(world: World, sign: Callable[[dict[str, Any]], str]) -> None:
    world.idp.sign = sign
    await world.refused()
    world.idp.sign = world.idp.signed
    assert (await world.sign_in())[1].status == 303  # and nothing of it was kept


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": None},
        {"aud": [CLIENT, "another"]},  # without azp
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"azp": "another"},
        {"iss": "https://evil.test"},
        {"iss": None},
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {"iat": None},
        {"iat": 1},
        {"iat": 1 << 40},
        {"nbf": 1 << 40},
        {"sub": ""},
        {"sub": None},
        {"sub": 7},
        {"sub": "x" * 256},
        {"sub": "ada\0"},
    ],
    ids=str,
)
async def test_claims_that_are_not_for_this_sign_in(world: World, claims: dict[str, Any]) -> None:
    await world.refused(**claims)


async def test_an_expired_token(world: World) -> None:
    now = world.house.clock.now() // 1000
    await world.refused(exp=now - oidc.LEEWAY_S)
    assert (await world.sign_in(exp=now - oidc.LEEWAY_S + 5))[1].status == 303


async def test_several_audiences_with_ours_as_the_party(world: World) -> None:
    assert (await world.sign_in(aud=[CLIENT, "api"], azp=CLIENT))[1].status == 303


async def test_keys_that_changed_are_fetched(world: World) -> None:
    await world.sign_in()
    world.idp.key, world.idp.published = OTHER_KEY, [{"kty": "new"}, {}, OTHER_KEY.as_dict(private=False)]
    assert (await world.sign_in())[1].status == 303
    world.idp.published = []
    world.house.clock.forward(oidc.KEPT_MS)
    await world.refused()


# -- the way there and back --------------------------------------------------------------------------------


async def test_a_state_of_another_browser(world: World) -> None:
    """Somebody is sent to the callback with an attacker's code: they would be signed in as the attacker."""
    attacker, victim = world.house.browser(), world.house.browser()
    path = world.idp.authorize((await attacker.get("/dashboard/sign-in/provider")).place, **ADA)
    for browser in (victim, world.house.browser()):
        assert (await browser.get(path)).status == 403
        await browser.get("/dashboard/sign-in/provider")
        assert (await browser.get(path)).status == 403
        assert (await browser.get(path.partition("&state=")[0])).status == 403
    assert "/token" not in world.idp.asked
    assert (await attacker.get(path)).status == 303


async def test_a_callback_is_good_once(world: World) -> None:
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).place, **ADA)
    kept = dict(browser.cookies)
    assert (await browser.get(path)).status == 303
    assert not browser.cookies[view.COOKIE]
    thief = world.house.browser()
    thief.cookies = {view.COOKIE: kept[view.COOKIE]}
    assert (await thief.get(path)).status == 403  # the provider knows the code was used
    world.idp.forgives = True
    assert (await thief.get(path)).status == 403  # and so do we, where it does not
    assert not await thief.sees(A)


async def test_a_cookie_that_is_old_or_made_up(world: World) -> None:
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).place, **ADA)
    sealed = browser.cookies[view.COOKIE]
    browser.cookies[view.COOKIE] = sealed[:-2] + ("AA" if sealed[-2:] != "AA" else "BB")
    assert (await browser.get(path)).status == 403
    browser.cookies[view.COOKIE] = sealed
    world.house.clock.forward(view.WAIT_MS)
    assert (await browser.get(path)).status == 403


async def test_where_one_goes_after_it(world: World) -> None:
    for next_page, ends_at in (
        ("/dashboard/account?a=b", "/dashboard/account?a=b"),
        ("https://evil.test/", "/dashboard"),
        ("//evil.test/dashboard", "/dashboard"),
        ("/dashboard\r\nSet-Cookie: a=b", "/dashboard"),
        ("/\\evil.test", "/dashboard"),
    ):
        browser = world.house.browser()
        gone = await browser.get(f"/dashboard/sign-in/provider?{urlencode({'next': next_page})}")
        assert (await browser.get(world.idp.authorize(gone.place, **ADA))).place == ends_at


async def test_the_way_on_is_kept_by_the_button(world: World) -> None:
    page = await world.house.browser().get("/dashboard/sign-in?next=/dashboard/account%22%3E")
    assert 'href="/dashboard/sign-in/provider?next=%2Fdashboard%2Faccount%22%3E"' in page.body


async def test_an_answer_of_another_provider(world: World) -> None:
    """RFC 9207."""
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).place, **ADA)
    assert FAILED in (await browser.get(f"{path}&iss=https%3A%2F%2Fevil.test")).body
    assert "/token" not in world.idp.asked
    world.idp.discovery |= {"authorization_response_iss_parameter_supported": True}
    world.open()
    assert FAILED in (await browser.get(path)).body
    assert (await browser.get(f"{path}&iss={world.idp.issuer}")).status == 303


async def test_who_is_refused_there(world: World) -> None:
    browser = world.house.browser()
    state = parse_qs(urlsplit((await browser.get("/dashboard/sign-in/provider")).place).query)["state"][0]
    query = urlencode({"error": "access_denied", "error_description": "<b>evil", "state": state})
    answer = await browser.get(f"/dashboard/sign-in/callback?{query}")
    assert (answer.status, "Example ID did not let you in." in answer.body) == (403, True)
    assert "evil" not in answer.body


async def test_guessing_codes_is_slowed(world: World) -> None:
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).place, **ADA)
    state = path.partition("&state=")[2]
    for _ in range(NETWORK_TRIES_MAX):
        assert (await browser.get(f"/dashboard/sign-in/callback?code=guess&state={state}")).status == 403
    assert (await browser.get(path)).status == 429


# -- a provider in trouble ---------------------------------------------------------------------------------


AWAY = "Example ID does not answer just now."


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.test"},
        {"token_endpoint": "ftp://example.com"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "http://a b/"},
        {"jwks_uri": None},
        {"end_session_endpoint": "javascript:alert(1)"},
    ],
    ids=str,
)
async def test_a_document_that_is_none(world: World, document: dict[str, Any]) -> None:
    world.idp.discovery |= document
    answer = await world.house.browser().get("/dashboard/sign-in/provider")
    assert (answer.status, AWAY in answer.body) == (503, True)


async def test_an_answer_without_end(world: World) -> None:
    world.idp.is_huge = True
    assert (await world.house.browser().get("/dashboard/sign-in/provider")).status == 503
    world.idp.is_huge = False
    world.house.clock.forward(oidc.AWAY_MS)
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).place, **ADA)
    world.idp.is_huge = True
    assert (await browser.get(path)).status == 503


async def test_a_provider_that_is_down_or_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.app.PROVIDER_S", 0.3)
    assert PROVIDER_S <= 5
    world.idp.hangs = True
    began = time.monotonic()
    for _ in range(5):  # those after the first do not wait for it
        assert (await world.house.browser().get("/dashboard/sign-in/provider")).status == 503
    assert time.monotonic() - began < 2
    assert len(world.idp.asked) == 1
    world.idp.hangs = False
    world.house.clock.forward(oidc.AWAY_MS)
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).place, **ADA)
    world.idp.hangs = True
    assert (await browser.get(path)).status == 503
    world.idp.issuer = "http://127.0.0.1:9"
    world.open()
    answer = await world.house.browser().get("/dashboard/sign-in/provider")
    assert (answer.status, AWAY in answer.body) == (503, True)
    assert (await world.house.browser().sign_in("nobody@example.com")).status == 403  # passwords go on


# -- without passwords -------------------------------------------------------------------------------------


async def test_passwords_can_be_closed(world: World) -> None:
    mallory = await world.house.person("mallory@example.com", team_b="owner", operator=True)
    offered = (await mallory.post(f"{B}/team", email="ada@example.com", role="viewer")).link
    printed = await world.house.offer("bob@example.com", team_b="viewer")
    world.open(passwords=False)
    page = await world.house.browser().get("/dashboard/sign-in")
    assert "Sign in with Example ID" in page.body
    assert "Password" not in page.body
    assert (await world.house.browser().sign_in("mallory@example.com")).status == 403
    assert (await mallory.post("/dashboard/account/password", old=PASSWORD, new=PASSWORD * 2)).status == 400
    guest = world.house.browser()
    assert (await guest.get(offered)).place == "/dashboard/sign-in"
    assert (await guest.post(offered, password=PASSWORD)).status == 404
    browser, _ = await world.sign_in(groups=[])
    await browser.post("/dashboard/invitations", team="team_b", answer="accept")
    assert await browser.sees(B)
    bob = world.house.browser()  # what the command line prints is the way in when the provider is away
    assert (await bob.post(f"/dashboard/link/{printed.token}", password=PASSWORD)).status == 303


async def test_without_a_provider_nobody_has_to_show_anything_there(house: House) -> None:
    """The demo's person came by a link, and has no password."""
    link = await demo_link(house.store, COMMAND_LINE, NewPerson(email="demo@example.com", name="Demo"), ("team_b",))
    browser = house.browser()
    assert (await browser.post(f"/dashboard/link/{link}")).status == 303
    assert await add_password(browser) == 303


async def test_without_a_provider_there_is_no_such_page(house: House) -> None:
    for path in ("/dashboard/sign-in/provider", "/dashboard/sign-in/callback", "/dashboard/sign-out/provider"):
        assert (await house.browser().get(path)).status == 404
    assert "/sign-in/provider" not in (await house.browser().get("/dashboard/sign-in")).body


async def test_passwords_and_links_are_in_the_audit_log_too(house: House) -> None:
    await house.person("ada@example.com", team_a="owner")
    await house.browser().sign_in("ada@example.com")
    line = (await house.store.audit.lines(None))[0]
    assert (line.action, line.detail, line.address) == ("account.sign_in", "with a password", "192.0.2.1")
