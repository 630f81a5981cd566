"""Sign-in with an identity provider: accepted users, their roles, and rejected responses."""

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
from heliograph.carriers.http_client import CarrierHttp
from heliograph.dashboard import oidc
from heliograph.dashboard.views import provider as view
from heliograph.dashboard.views import reauth
from heliograph.dashboard.views.sign_in import NETWORK_ATTEMPTS_MAX
from heliograph.domain.accounts.idp_groups import parse_group_roles
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage.people import NewPerson, make_demo_link
from heliograph.settings import Settings
from tests.accounts.authenticator import Authenticator
from tests.accounts.house import PASSWORD, Browser, Instance, Response
from tests.accounts.provider import CLIENT, KEY, OTHER_KEY, SECRET, FakeProvider, running_idp
from tests.storage.samples import ENTRY

pytestmark = pytest.mark.anyio

ADA = {"sub": "ada-1", "email": "ada@example.com", "email_verified": True, "name": "Ada", "groups": ["devs"]}
A, B, OPERATOR = "/dashboard/teams/team_a", "/dashboard/teams/team_b", "/dashboard/operator"
ROLES = "devs=team_a:developer,leads=team_a:owner,ops=operator,ghosts=team_gone:owner"
FAILED = "Signing in with Example ID failed."


class World:
    def __init__(self, house: Instance, idp: FakeProvider, web: CarrierHttp) -> None:
        self.house, self.idp, self.web = house, idp, web
        self.open()

    def open(self, *, passwords: bool = True, roles: str = ROLES, email_trusted: bool = False) -> None:
        settings = Settings(
            public_url="https://mail.example.com",
            oidc_issuer=self.idp.issuer,
            oidc_client_id=CLIENT,
            oidc_client_secret=SECRET,
            oidc_name="Example ID",
            oidc_roles=parse_group_roles(roles),
            oidc_email_trusted=email_trusted,
        )
        self.house.start(provider=make_provider(settings, self.house.clock, self.web), password_sign_in=passwords)

    async def sign_in(self, browser: Browser | None = None, **claims: Any) -> tuple[Browser, Response]:
        browser = browser or self.house.browser()
        gone = await browser.get("/dashboard/sign-in/provider")
        assert gone.status == 303, gone.body
        return browser, await browser.get(self.idp.authorize(gone.location, **ADA | claims))

    async def refused(self, why: str = FAILED, status: int = 403, **claims: Any) -> None:
        browser, response = await self.sign_in(**claims)
        assert (response.status, why in response.body) == (status, True), response.body
        assert not await browser.can_see("/dashboard/account")

    async def actions(self) -> list[tuple[str, str, str]]:
        lines = await self.house.store.audit.list_rows(None)
        return [(line.action, line.subject, line.detail) for line in reversed(lines)]


@pytest.fixture
async def world(house: Instance) -> AsyncIterator[World]:
    web = CarrierHttp()
    async with running_idp(house.clock) as idp:
        yield World(house, idp, web)
        await web.close()


# -- accepted users ----------------------------------------------------------------------------------------


async def test_new_person_gets_role_of_group(world: World) -> None:
    browser, response = await world.sign_in()
    assert (response.status, response.location) == (303, "/dashboard")
    assert await browser.can_see(A)
    assert not await browser.can_see(f"{A}/team/new")
    assert not await browser.can_see(B)
    assert await world.actions() == [
        ("person.add", "ada@example.com", "Example ID"),
        ("member.role", "ada@example.com", "none → developer, by Example ID"),
        ("account.sign_in", "ada@example.com", "with Example ID"),
    ]
    person = await world.house.people.find("ada@example.com")
    assert person
    assert (person.name, person.password, person.proven) == ("Ada", None, 1)


async def test_roles_follow_groups_at_each_sign_in(world: World) -> None:
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
        assert [path for path in (A, f"{A}/team/new", B, OPERATOR) if await browser.can_see(path)] == sees, groups


async def test_role_in_team_without_group_is_kept(world: World) -> None:
    await world.house.person("ada@example.com", team_b="owner")
    browser, _ = await world.sign_in(groups=[])
    assert await browser.can_see(f"{B}/team/new")
    assert not await browser.can_see(A)


async def test_last_operator_and_last_owner_keep_roles_without_group(world: World) -> None:
    await world.house.person("ada@example.com", operator=True, team_a="owner")
    browser, _ = await world.sign_in(groups=[])
    assert await browser.can_see(OPERATOR)
    assert (await world.house.people.get_roles(await world.house.id_of("ada@example.com"))) == {"team_a": "owner"}


@pytest.mark.parametrize("groups", [[], ["unknown"], ["DEVS"], ["ghosts"], "strange", [1, None], None, {"devs": True}])
async def test_new_person_without_role_is_rejected(world: World, groups: Any) -> None:
    await world.refused("You have no role here yet.", groups=groups)
    assert await world.house.people.find("ada@example.com") is None


async def test_groups_claim_may_be_a_string(world: World) -> None:
    browser, _ = await world.sign_in(groups="devs")
    assert await browser.can_see(A)


async def test_groups_claim_replaced_by_reference_keeps_roles(world: World) -> None:
    """Some providers then send only a reference to the groups."""
    await world.sign_in()
    world.idp.userinfo = {"sub": "ada-1"}
    world.idp.sign = lambda claims: world.idp.sign_other({key: claims[key] for key in claims if key != "groups"})
    await world.refused(_claim_names={"groups": "src1"})
    assert await world.house.people.get_roles(await world.house.id_of("ada@example.com")) == {"team_a": "developer"}


async def test_too_many_groups_keep_roles(world: World) -> None:
    many = [f"group {number}" for number in range(oidc.GROUPS_MAX - 1)]
    await world.sign_in(groups=[*many, "devs"])
    await world.refused(groups=[*many, "more", "devs"])
    assert await world.house.people.get_roles(await world.house.id_of("ada@example.com")) == {"team_a": "developer"}


async def test_claims_missing_in_token_are_read_from_userinfo(world: World) -> None:
    world.idp.sign = lambda claims: world.idp.sign_other(
        {k: v for k, v in claims.items() if k not in ("email", "groups", "name")}
    )
    world.idp.userinfo = ADA | {"email_verified": False}  # the token says nothing about this address
    await world.refused("confirm that your email address is verified")
    world.idp.userinfo = ADA
    browser, _ = await world.sign_in()
    assert await browser.can_see(A)
    world.idp.userinfo = ADA | {"sub": "eve-1"}
    await world.refused()


async def test_provider_session_ends_despite_activity(world: World) -> None:
    browser, _ = await world.sign_in()
    for _ in range(11):
        world.house.clock.forward(view.SESSION_LIFETIME_MS // 12)
        assert await browser.can_see(A)
    world.house.clock.forward(view.SESSION_LIFETIME_MS // 12)
    assert not await browser.can_see(A)


@pytest.mark.both_databases
async def test_sign_out_redirects_to_provider_sign_out(world: World) -> None:
    browser, _ = await world.sign_in()
    out = await browser.post("/dashboard/sign-out")
    assert out.location == "/dashboard/sign-in?out"
    assert not await browser.can_see(A)
    assert 'href="/dashboard/sign-out/provider"' in (await browser.get(out.location)).body
    location = (await browser.get("/dashboard/sign-out/provider")).location
    assert location.startswith(
        f"{world.idp.issuer}/end?client_id=heliograph&post_logout_redirect_uri=https%3A%2F%2Fmail."
    )


# -- matching accounts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verified", [False, None, "yes", 1, "", [True]])
async def test_unverified_email_is_rejected(world: World, verified: Any) -> None:
    await world.house.person("ada@example.com", operator=True)
    await world.refused(
        "confirm that your email address is verified", sub="eve", email_verified=verified, groups=["ops"]
    )
    assert (await world.actions())[-1][0] != "account.sign_in"


async def test_missing_email_verified_is_accepted_when_configured(world: World) -> None:
    """Entra ID never sends `email_verified`."""
    world.idp.userinfo = {"sub": "ada-1"}
    world.idp.sign = lambda claims: world.idp.sign_other({k: v for k, v in claims.items() if k != "email_verified"})
    await world.refused("can set HELIOGRAPH_OIDC_EMAIL_TRUSTED=on")
    world.open(email_trusted=True)
    browser, _ = await world.sign_in()
    assert await browser.can_see(A)


@pytest.mark.parametrize("verified", [False, None, "no"])
async def test_email_verified_false_is_rejected_even_when_trusted(world: World, verified: Any) -> None:
    world.open(email_trusted=True)
    await world.refused("confirm that your email address is verified", email_verified=verified)


async def test_known_subject_signs_in_with_changed_email(world: World) -> None:
    await world.sign_in()
    browser, response = await world.sign_in(email="other@example.com", email_verified=False)
    assert response.status == 303
    assert "ada@example.com" in (await browser.get("/dashboard/account")).body
    assert await world.house.people.find("other@example.com") is None


async def test_reassigned_email_does_not_sign_in_to_old_account(world: World) -> None:
    await world.sign_in()
    await world.refused("is connected to a different Example ID account", sub="ada-2")
    root = await world.house.person("root@example.com", operator=True)
    id_ = await world.house.id_of("ada@example.com")
    assert "ada-1" in (await root.get(f"{OPERATOR}/people/{id_}")).body
    assert (await root.post(f"{OPERATOR}/people/{id_}/provider")).status == 303
    _, response = await world.sign_in(sub="ada-2")
    assert response.status == 303


async def test_provider_sign_in_keeps_password_of_proven_account(world: World) -> None:
    await world.house.person("ada@example.com", team_b="viewer")
    browser, _ = await world.sign_in()
    assert await browser.can_see(A)
    assert await browser.can_see(B)
    assert (await world.house.browser().sign_in("ada@example.com")).status == 303
    assert "Connected" in (await browser.get("/dashboard/account")).body


async def _invite_and_accept_as_attacker(world: World, mallory: Browser) -> Browser:
    """The owner of team B invites Ada and uses her link himself."""
    link = (await mallory.post(f"{B}/team", email="ada@example.com", role="viewer")).link
    squatter = world.house.browser()
    assert (await squatter.post(link, password="mallory knows this")).status == 303
    return squatter


async def test_unproven_account_loses_password_at_provider_sign_in(world: World) -> None:
    mallory = await world.house.person("mallory@example.com", team_b="owner")
    squatter = await _invite_and_accept_as_attacker(world, mallory)
    browser, _ = await world.sign_in()
    assert await browser.can_see(A)
    assert not await squatter.can_see("/dashboard/account")
    assert (await squatter.sign_in("ada@example.com", "mallory knows this")).status == 403


async def test_later_link_cannot_take_over_provider_account(world: World) -> None:
    mallory = await world.house.person("mallory@example.com", team_b="owner")
    await world.house.invite("ada@example.com", team_b="viewer")
    browser, _ = await world.sign_in(groups=[])
    await browser.post("/dashboard/invitations", team="team_b", answer="accept")
    id_ = await world.house.id_of("ada@example.com")
    link = (await mallory.post(f"{B}/team/{id_}/link")).link
    taker = world.house.browser()
    await taker.post(link, password="mallory knows this")
    await world.sign_in()  # the user is in a group now
    assert not await taker.can_see(A)
    assert (await taker.sign_in("ada@example.com", "mallory knows this")).status == 403


@pytest.mark.parametrize("before", [False, True])
async def test_invitation_link_cannot_set_password_of_provider_account(world: World, before: bool) -> None:
    """Ada has only signed in with the provider: an owner's invitation link cannot set a password for her account."""
    mallory = await world.house.person("mallory@example.com", team_b="owner")
    if before:
        link = (await mallory.post(f"{B}/team", email="ada@example.com", role="viewer")).link
    ada, _ = await world.sign_in(groups=["devs", "ops"])
    if not before:
        link = (await mallory.post(f"{B}/team", email="ada@example.com", role="viewer")).link
    taker = world.house.browser()
    await taker.post(link, password="mallory knows this")
    assert not await taker.can_see(OPERATOR)
    assert not await taker.can_see(A)
    assert await ada.can_see(OPERATOR)
    await ada.post(link if not before else "/dashboard/invitations", team="team_b", answer="accept")
    assert await ada.can_see(B)


async def test_provider_sign_in_needs_no_totp(world: World) -> None:
    await world.house.person("ada@example.com", team_b="viewer")
    id_ = await world.house.id_of("ada@example.com")
    sealed = world.house.sealer.encrypt(b"1" * 20, f"totp/{id_}")
    await world.house.people.set_totp(id_, sealed, ["recovery"], 0, ENTRY)
    _, response = await world.sign_in()
    assert response.status == 303
    assert (await world.house.browser().sign_in("ada@example.com")).status == 200  # the TOTP code is required too


async def test_invited_provider_user_accepts_on_start_page(world: World) -> None:
    await world.house.invite("ada@example.com", team_b="viewer")
    browser, response = await world.sign_in(groups=[])
    assert response.status == 303
    assert not await browser.can_see(B)
    await browser.post("/dashboard/invitations", team="team_b", answer="accept")
    assert await browser.can_see(B)


# -- re-authentication ---------------------------------------------------------------------------------------


async def add_password(browser: Browser) -> int:
    return (await browser.post("/dashboard/account/password", new="a password of mallory's")).status


async def add_passkey(browser: Browser) -> int:
    response = Authenticator().make((await browser.get("/dashboard/account/passkeys/new")).body)
    return (await browser.post("/dashboard/account/passkeys", passkey="Phone", credential=response)).status


ADDING = pytest.mark.parametrize("add", [add_password, add_passkey])
Add = Callable[[Browser], Awaitable[int]]


async def reauthenticate(world: World, browser: Browser, **claims: Any) -> Response:
    response = await browser.get("/dashboard/account/provider")
    assert {"prompt=login", "max_age=0"} <= set(urlsplit(response.location).query.split("&"))
    return await browser.get(world.idp.authorize(response.location, **ADA | claims))


@ADDING
async def test_adding_sign_in_method_requires_reauthentication(world: World, add: Add) -> None:
    browser, _ = await world.sign_in()
    assert await add(browser) == 400
    page = (await browser.get("/dashboard/account")).body
    assert 'href="/dashboard/account/provider"' in page
    assert 'action="/dashboard/account/password"' not in page
    answer = await reauthenticate(world, browser, auth_time=world.house.clock.now() // 1000)
    assert (answer.status, answer.location) == (303, "/dashboard/account")
    assert 'action="/dashboard/account/password"' in (await browser.get("/dashboard/account")).body
    assert await add(browser) == 303


@ADDING
@pytest.mark.parametrize(
    ("ago_s", "claims", "why"),
    [
        (None, {}, "confirm that you just signed in"),  # a provider that ignores max_age
        (3600, {}, "confirm that you just signed in"),  # the user removed prompt=login from the URL
        (True, {}, "confirm that you just signed in"),
        (0, {"sub": "eve-1", "email": "eve@example.com"}, "You signed in to a different Example ID account"),
    ],
)
async def test_invalid_reauthentication_is_rejected(
    world: World, add: Add, ago_s: int | None, claims: dict[str, Any], why: str
) -> None:
    browser, _ = await world.sign_in()
    at = ago_s if ago_s is None or ago_s is True else world.house.clock.now() // 1000 - ago_s
    answer = await reauthenticate(world, browser, auth_time=at, **claims)
    assert (answer.status, why in answer.body) == (403, True)
    assert await add(browser) == 400
    assert "ada@example.com" in (await browser.get("/dashboard/account")).body  # the same user is still signed in


@ADDING
async def test_reauthentication_is_bound_to_session_and_expires(world: World, add: Add) -> None:
    browser, _ = await world.sign_in()
    other, _ = await world.sign_in()
    await reauthenticate(world, browser, auth_time=world.house.clock.now() // 1000)
    other.cookies[reauth.REAUTH_COOKIE] = browser.cookies[reauth.REAUTH_COOKIE]
    assert await add(other) == 400
    world.house.clock.forward(reauth.REAUTH_LIFETIME_MS)
    assert await add(browser) == 400


async def test_enabling_totp_requires_reauthentication(world: World) -> None:
    browser, _ = await world.sign_in()
    form = await world.house.send_sign_in_form("ada@example.com")
    assert (await browser.get("/dashboard/account/totp")).location == "/dashboard/account"
    assert (await browser.post("/dashboard/account/totp", **form)).location == "/dashboard/account"
    assert "Turn off" not in (await browser.get("/dashboard/account")).body
    await reauthenticate(world, browser, auth_time=world.house.clock.now() // 1000)
    assert "recovery codes" in (await browser.post("/dashboard/account/totp", **form)).body


async def test_provider_callback_for_other_session_changes_nothing(world: World) -> None:
    browser, _ = await world.sign_in()
    path = world.idp.authorize(
        (await browser.get("/dashboard/account/provider")).location, **ADA, auth_time=world.house.clock.now() // 1000
    )
    other, _ = await world.sign_in()
    other.cookies[view.AUTHORIZATION_COOKIE] = browser.cookies[view.AUTHORIZATION_COOKIE]
    assert (await other.get(path)).location == "/dashboard"
    await browser.post("/dashboard/sign-out")
    assert (await browser.get(path)).status == 403
    assert not await browser.can_see(A)


# -- rejected responses ------------------------------------------------------------------------------------


NONE, HS256 = b'{"alg": "none", "typ": "JWT"}', b'{"alg": "HS256", "kid": "first"}'


def _encode_part(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def _unsigned_token(claims: dict[str, Any]) -> str:
    return f"{_encode_part(NONE)}.{_encode_part(json.dumps(claims).encode())}."


def _signed_with_public_key(claims: dict[str, Any]) -> str:
    """Sign by hand, because the library refuses to use a public key as an HMAC secret."""
    text = f"{_encode_part(HS256)}.{_encode_part(json.dumps(claims).encode())}"
    return f"{text}.{_encode_part(hmac.digest(KEY.as_pem(private=False), text.encode(), 'sha256'))}"


def _signed_with_client_secret(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])


def _signed_with_unknown_key(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "first"}, claims, OTHER_KEY)


def _signed_with_embedded_key(claims: dict[str, Any]) -> str:
    header = {"alg": "RS256", "kid": "second", "jwk": OTHER_KEY.as_dict(private=False)}
    return jwt.encode(header, claims, OTHER_KEY)


def _tampered_token(claims: dict[str, Any]) -> str:
    head, _, tail = jwt.encode({"alg": "RS256", "kid": "first"}, claims, KEY).split(".")
    return f"{head}.{_encode_part(json.dumps(claims | {'sub': 'root'}).encode())}.{tail}"


@pytest.mark.parametrize(
    "sign",
    [
        _unsigned_token,
        _signed_with_public_key,
        _signed_with_client_secret,
        _signed_with_unknown_key,
        _signed_with_embedded_key,
        _tampered_token,
        lambda _: "",
        lambda _: "a.b.c",
    ],
)
async def test_id_token_with_invalid_signature_is_rejected(world: World, sign: Callable[[dict[str, Any]], str]) -> None:
    world.idp.sign = sign
    await world.refused()
    world.idp.sign = world.idp.sign_other
    assert (await world.sign_in())[1].status == 303  # nothing was stored


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
async def test_id_token_with_invalid_claims_is_rejected(world: World, claims: dict[str, Any]) -> None:
    await world.refused(**claims)


async def test_expired_id_token_is_rejected_after_leeway(world: World) -> None:
    now = world.house.clock.now() // 1000
    await world.refused(exp=now - oidc.LEEWAY_S)
    assert (await world.sign_in(exp=now - oidc.LEEWAY_S + 5))[1].status == 303


async def test_multiple_audiences_with_our_azp_are_accepted(world: World) -> None:
    assert (await world.sign_in(aud=[CLIENT, "api"], azp=CLIENT))[1].status == 303


async def test_changed_provider_keys_are_fetched_again(world: World) -> None:
    await world.sign_in()
    world.idp.key, world.idp.published = OTHER_KEY, [{"kty": "new"}, {}, OTHER_KEY.as_dict(private=False)]
    assert (await world.sign_in())[1].status == 303
    world.idp.published = []
    world.house.clock.forward(oidc.CACHE_MS)
    await world.refused()


# -- redirects ---------------------------------------------------------------------------------------------


async def test_callback_with_state_of_other_browser_is_rejected(world: World) -> None:
    """A callback with an attacker's code must not sign the victim in as the attacker."""
    attacker, victim = world.house.browser(), world.house.browser()
    path = world.idp.authorize((await attacker.get("/dashboard/sign-in/provider")).location, **ADA)
    for browser in (victim, world.house.browser()):
        assert (await browser.get(path)).status == 403
        await browser.get("/dashboard/sign-in/provider")
        assert (await browser.get(path)).status == 403
        assert (await browser.get(path.partition("&state=")[0])).status == 403
    assert "/token" not in world.idp.asked
    assert (await attacker.get(path)).status == 303


async def test_callback_works_once(world: World) -> None:
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).location, **ADA)
    saved_cookies = dict(browser.cookies)
    assert (await browser.get(path)).status == 303
    assert not browser.cookies[view.AUTHORIZATION_COOKIE]
    thief = world.house.browser()
    thief.cookies = {view.AUTHORIZATION_COOKIE: saved_cookies[view.AUTHORIZATION_COOKIE]}
    assert (await thief.get(path)).status == 403  # the provider rejects the used code
    world.idp.forgives = True
    assert (await thief.get(path)).status == 403  # the service rejects it even if the provider does not
    assert not await thief.can_see(A)


async def test_callback_with_expired_or_forged_cookie_is_rejected(world: World) -> None:
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).location, **ADA)
    sealed = browser.cookies[view.AUTHORIZATION_COOKIE]
    browser.cookies[view.AUTHORIZATION_COOKIE] = sealed[:-2] + ("AA" if sealed[-2:] != "AA" else "BB")
    assert (await browser.get(path)).status == 403
    browser.cookies[view.AUTHORIZATION_COOKIE] = sealed
    world.house.clock.forward(view.AUTHORIZATION_LIFETIME_MS)
    assert (await browser.get(path)).status == 403


async def test_provider_sign_in_redirects_only_within_dashboard(world: World) -> None:
    for next_page, ends_at in (
        ("/dashboard/account?a=b", "/dashboard/account?a=b"),
        ("https://evil.test/", "/dashboard"),
        ("//evil.test/dashboard", "/dashboard"),
        ("/dashboard\r\nSet-Cookie: a=b", "/dashboard"),
        ("/\\evil.test", "/dashboard"),
    ):
        browser = world.house.browser()
        gone = await browser.get(f"/dashboard/sign-in/provider?{urlencode({'next': next_page})}")
        assert (await browser.get(world.idp.authorize(gone.location, **ADA))).location == ends_at


async def test_provider_button_keeps_next_page(world: World) -> None:
    page = await world.house.browser().get("/dashboard/sign-in?next=/dashboard/account%22%3E")
    assert 'href="/dashboard/sign-in/provider?next=%2Fdashboard%2Faccount%22%3E"' in page.body


async def test_callback_with_other_issuer_is_rejected(world: World) -> None:
    """RFC 9207."""
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).location, **ADA)
    assert FAILED in (await browser.get(f"{path}&iss=https%3A%2F%2Fevil.test")).body
    assert "/token" not in world.idp.asked
    world.idp.discovery |= {"authorization_response_iss_parameter_supported": True}
    world.open()
    assert FAILED in (await browser.get(path)).body
    assert (await browser.get(f"{path}&iss={world.idp.issuer}")).status == 303


async def test_error_from_provider_is_shown_safely(world: World) -> None:
    browser = world.house.browser()
    state = parse_qs(urlsplit((await browser.get("/dashboard/sign-in/provider")).location).query)["state"][0]
    query = urlencode({"error": "access_denied", "error_description": "<b>evil", "state": state})
    response = await browser.get(f"/dashboard/sign-in/callback?{query}")
    assert (response.status, "Example ID denied the sign-in." in response.body) == (403, True)
    assert "evil" not in response.body


async def test_guessing_callback_codes_is_limited(world: World) -> None:
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).location, **ADA)
    state = path.partition("&state=")[2]
    for _ in range(NETWORK_ATTEMPTS_MAX):
        assert (await browser.get(f"/dashboard/sign-in/callback?code=guess&state={state}")).status == 403
    assert (await browser.get(path)).status == 429


# -- unavailable provider ----------------------------------------------------------------------------------


AWAY = "Example ID is not responding."


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
async def test_invalid_discovery_document_returns_503(world: World, document: dict[str, Any]) -> None:
    world.idp.discovery |= document
    response = await world.house.browser().get("/dashboard/sign-in/provider")
    assert (response.status, AWAY in response.body) == (503, True)


async def test_endless_provider_response_returns_503(world: World) -> None:
    world.idp.is_huge = True
    assert (await world.house.browser().get("/dashboard/sign-in/provider")).status == 503
    world.idp.is_huge = False
    world.house.clock.forward(oidc.RETRY_DELAY_MS)
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).location, **ADA)
    world.idp.is_huge = True
    assert (await browser.get(path)).status == 503


async def test_unreachable_provider_returns_503(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.app.PROVIDER_S", 0.3)
    assert PROVIDER_S <= 5
    world.idp.hangs = True
    began = time.monotonic()
    for _ in range(5):  # later requests fail without waiting for the provider
        assert (await world.house.browser().get("/dashboard/sign-in/provider")).status == 503
    assert time.monotonic() - began < 2
    assert len(world.idp.asked) == 1
    world.idp.hangs = False
    world.house.clock.forward(oidc.RETRY_DELAY_MS)
    browser = world.house.browser()
    path = world.idp.authorize((await browser.get("/dashboard/sign-in/provider")).location, **ADA)
    world.idp.hangs = True
    assert (await browser.get(path)).status == 503
    world.idp.issuer = "http://127.0.0.1:9"
    world.open()
    response = await world.house.browser().get("/dashboard/sign-in/provider")
    assert (response.status, AWAY in response.body) == (503, True)
    assert (await world.house.browser().sign_in("nobody@example.com")).status == 403  # password sign-in still works


# -- without passwords -------------------------------------------------------------------------------------


async def test_password_sign_in_can_be_disabled(world: World) -> None:
    mallory = await world.house.person("mallory@example.com", team_b="owner", operator=True)
    offered = (await mallory.post(f"{B}/team", email="ada@example.com", role="viewer")).link
    printed = await world.house.invite("bob@example.com", team_b="viewer")
    world.open(passwords=False)
    page = await world.house.browser().get("/dashboard/sign-in")
    assert "Sign in with Example ID" in page.body
    assert "Password" not in page.body
    assert (await world.house.browser().sign_in("mallory@example.com")).status == 403
    assert (await mallory.post("/dashboard/account/password", old=PASSWORD, new=PASSWORD * 2)).status == 400
    guest = world.house.browser()
    assert (await guest.get(offered)).location == "/dashboard/sign-in"
    assert (await guest.post(offered, password=PASSWORD)).status == 404
    browser, _ = await world.sign_in(groups=[])
    await browser.post("/dashboard/invitations", team="team_b", answer="accept")
    assert await browser.can_see(B)
    bob = world.house.browser()  # links printed by the command line work while the provider is unavailable
    assert (await bob.post(f"/dashboard/link/{printed.token}", password=PASSWORD)).status == 303


async def test_reauthentication_without_provider_is_not_required(house: Instance) -> None:
    """The demo user signed in with a link and has no password."""
    link = await make_demo_link(
        house.store, COMMAND_LINE, NewPerson(email="demo@example.com", name="Demo"), ("team_b",)
    )
    browser = house.browser()
    assert (await browser.post(f"/dashboard/link/{link}")).status == 303
    assert await add_password(browser) == 303


async def test_provider_pages_without_provider_return_404(house: Instance) -> None:
    for path in ("/dashboard/sign-in/provider", "/dashboard/sign-in/callback", "/dashboard/sign-out/provider"):
        assert (await house.browser().get(path)).status == 404
    assert "/sign-in/provider" not in (await house.browser().get("/dashboard/sign-in")).body


async def test_password_and_link_sign_ins_are_in_audit_log(house: Instance) -> None:
    await house.person("ada@example.com", team_a="owner")
    await house.browser().sign_in("ada@example.com")
    line = (await house.store.audit.list_rows(None))[0]
    assert (line.action, line.detail, line.address) == ("account.sign_in", "with a password", "192.0.2.1")
