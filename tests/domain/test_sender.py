import pytest

from heliograph.domain.mail.address import Address
from heliograph.domain.mail.sender import Sender, default_brand_values, resolve_brand_domain, resolve_sender
from heliograph.domain.refusals import (
    BrandDomainNotFound,
    DisplayNameIdNotApproved,
    DisplayNameIdNotFound,
    DisplayNameIdWrongDomain,
    DisplayNameNotApproved,
    FromDomainUnverified,
    InvalidFromAddress,
    KeyDomainScope,
    NoApprovedBrandDomain,
    Refusal,
    SandboxFromLocked,
)
from heliograph.domain.setup.records import (
    Caller,
    DisplayName,
    Domain,
    Key,
    Mode,
    Platform,
    Team,
    TeamRecord,
)

PLATFORM = Platform(sender="hello@sandbox.test", brand="Heliograph")


def domain(name: str, brand: str, verified: bool = True, approved: bool = True) -> Domain:
    id = "dom_" + name.partition(".")[0]
    return Domain(id=id, team="team_a", name=name, brand=brand, verified=verified, approved=approved)


ACME = domain("acme.test", "Acme")
SHOP = domain("shop.test", "Acme Shop")
RAW = domain("raw.test", "Raw", verified=False)
NEW = domain("new.test", "New", approved=False)
BUCH = domain("xn--bcher-kva.test", "Bücher")


def display_name(id: str, name: str, domain: Domain, approved: bool = True) -> DisplayName:
    return DisplayName(id=id, team="team_a", domain=domain.id, name=name, approved=approved)


NAMES = [
    display_name("dn_shop", "ACME SUPPORT", SHOP),
    display_name("dn_support", "Acme Support", ACME),
    display_name("dn_sales", "Shop Sales", SHOP),
    display_name("dn_new", "Acme News", ACME, approved=False),
]


def team(mode: Mode, *domains: Domain) -> Team:
    return Team(
        record=TeamRecord(ref=1, id="team_a", name="A", mode=mode),
        domains={d.name: d for d in domains},
        display_names={n.id: n for n in NAMES},
    )


def key(pin: str | None = None) -> Key:
    return Key(id="0123456789", team="team_a", name="k", hash="", domain=pin)


LIVE = team("live", SHOP, ACME, RAW, NEW, BUCH)
SANDBOX = team("sandbox", ACME)
UNAPPROVED = team("live", RAW, NEW)


def resolve(of: Team, from_: str | None, id: str | None = None, pin: str | None = None) -> Sender:
    return resolve_sender(Caller(team=of, key=key(pin)), PLATFORM, from_, id)


@pytest.mark.parametrize(
    ("of", "from_", "id", "pin", "header"),
    [
        # live
        (LIVE, "hi@acme.test", None, None, "Acme <hi@acme.test>"),
        (LIVE, "<hi@acme.test>", None, None, "Acme <hi@acme.test>"),
        (LIVE, "Hi@ACME.test", None, "acme.test", "Acme <Hi@ACME.test>"),
        (LIVE, "hi@bücher.test", None, "xn--bcher-kva.test", "Bücher <hi@bücher.test>"),
        (LIVE, "Acme <hi@acme.test>", None, None, "Acme <hi@acme.test>"),
        (LIVE, "hi@acme.test", "dn_support", None, "Acme Support <hi@acme.test>"),
        (LIVE, "Acme Support <hi@acme.test>", None, None, "Acme Support <hi@acme.test>"),
        (LIVE, '" acme   SUPPORT " <hi@acme.test>', None, None, "Acme Support <hi@acme.test>"),
        (LIVE, " Acme\u00a0\tSupport\u3000<hi@acme.test>\n", None, None, "Acme Support <hi@acme.test>"),
        (LIVE, '"\u2003Acme\t" <hi@acme.test> ', None, None, "Acme <hi@acme.test>"),
        (LIVE, "\thi@acme.test\u00a0", None, None, "Acme <hi@acme.test>"),
        (LIVE, "acme support <hi@shop.test>", None, None, "ACME SUPPORT <hi@shop.test>"),  # own domain first
        (LIVE, "shop sales <hi@acme.test>", None, None, "Shop Sales <hi@acme.test>"),  # any of the team's
        (LIVE, "ACME support <hi@acme.test>", "dn_support", None, "Acme Support <hi@acme.test>"),
        # sandbox
        (SANDBOX, None, None, None, "Heliograph <hello@sandbox.test>"),
        (SANDBOX, None, None, "acme.test", "Heliograph <hello@sandbox.test>"),  # the pin is not applied
        (SANDBOX, "Hello@Sandbox.test", None, None, "Heliograph <Hello@Sandbox.test>"),
        (SANDBOX, "Heliograph <hello@sandbox.test>", None, None, "Heliograph <hello@sandbox.test>"),
        (SANDBOX, "acme support <hello@sandbox.test>", None, None, "ACME SUPPORT <hello@sandbox.test>"),
        (team("sandbox"), None, None, None, "Heliograph <hello@sandbox.test>"),
    ],
)
def test_resolved_sender_has_the_expected_header(
    of: Team, from_: str | None, id: str | None, pin: str | None, header: str
) -> None:
    assert resolve(of, from_, id, pin).header == header


def test_sender_domain_is_the_team_domain_and_none_in_sandbox() -> None:
    assert resolve(LIVE, "hi@acme.test").domain == ACME
    assert resolve(SANDBOX, None).domain is None


@pytest.mark.parametrize(
    ("of", "from_", "id", "pin", "refusal", "param"),
    [
        # live, in order: each row would also fail the later checks
        (UNAPPROVED, None, "dn_none", "shop.test", NoApprovedBrandDomain, "from"),
        (UNAPPROVED, "hi@raw.test", None, None, NoApprovedBrandDomain, "from"),
        (team("live"), "hi@acme.test", None, None, NoApprovedBrandDomain, "from"),
        (LIVE, None, "dn_none", "shop.test", InvalidFromAddress, "from"),
        (LIVE, "", None, None, InvalidFromAddress, "from"),
        (LIVE, "Acme", "dn_none", "shop.test", InvalidFromAddress, "from"),
        (LIVE, "Acme, Inc <hi@acme.test>", None, None, InvalidFromAddress, "from"),
        (LIVE, "hi@acme.test\r\nBcc: x@y.io", None, None, InvalidFromAddress, "from"),
        (LIVE, "Other <hi@other.test>", "dn_none", "shop.test", FromDomainUnverified, "from"),
        (LIVE, "hi@raw.test", None, None, FromDomainUnverified, "from"),
        (LIVE, "hi@new.test", None, None, FromDomainUnverified, "from"),
        (
            LIVE,
            "hi@mail.acme.test",
            None,
            None,
            FromDomainUnverified,
            "from",
        ),  # a subdomain is another domain
        (LIVE, "hello@sandbox.test", None, None, FromDomainUnverified, "from"),
        (LIVE, "Other <hi@acme.test>", "dn_none", "shop.test", KeyDomainScope, "from"),
        # sandbox
        (SANDBOX, "", None, None, InvalidFromAddress, "from"),
        (SANDBOX, "hello", "dn_none", None, InvalidFromAddress, "from"),
        (SANDBOX, "Other <hi@acme.test>", "dn_none", None, SandboxFromLocked, "from"),
        (SANDBOX, "hello+x@sandbox.test", None, None, SandboxFromLocked, "from"),
        # display names
        (LIVE, "Other <hi@acme.test>", "dn_none", None, DisplayNameIdNotFound, "from_display_id"),
        (LIVE, "hi@acme.test", "", None, DisplayNameIdNotFound, "from_display_id"),
        (LIVE, "Other <hi@acme.test>", "dn_shop", None, DisplayNameIdWrongDomain, "from_display_id"),
        (LIVE, "hi@shop.test", "dn_new", None, DisplayNameIdWrongDomain, "from_display_id"),
        (LIVE, "Other <hi@acme.test>", "dn_new", None, DisplayNameIdNotApproved, "from_display_id"),
        (LIVE, "Other <hi@acme.test>", "dn_support", None, DisplayNameNotApproved, "from"),
        (LIVE, "Acme <hi@acme.test>", "dn_support", None, DisplayNameNotApproved, "from"),
        (LIVE, "Other <hi@acme.test>", None, None, DisplayNameNotApproved, "from"),
        (LIVE, "ACME <hi@acme.test>", None, None, DisplayNameNotApproved, "from"),  # the brand is exact
        (
            LIVE,
            "Acme Shop <hi@acme.test>",
            None,
            None,
            DisplayNameNotApproved,
            "from",
        ),  # another domain's brand
        (LIVE, "Acme News <hi@acme.test>", None, None, DisplayNameNotApproved, "from"),
        (LIVE, '"" <hi@acme.test>', None, None, DisplayNameNotApproved, "from"),
        (SANDBOX, None, "dn_none", None, DisplayNameIdNotFound, "from_display_id"),
        (SANDBOX, None, "dn_support", None, DisplayNameIdWrongDomain, "from_display_id"),
        (SANDBOX, "Acme <hello@sandbox.test>", None, None, DisplayNameNotApproved, "from"),
        (SANDBOX, "heliograph <hello@sandbox.test>", None, None, DisplayNameNotApproved, "from"),
    ],
)
def test_sender_not_allowed_is_refused(
    of: Team, from_: str | None, id: str | None, pin: str | None, refusal: type[Refusal], param: str
) -> None:
    with pytest.raises(Refusal) as refused:
        resolve(of, from_, id, pin)
    assert (type(refused.value), refused.value.param) == (refusal, param)


def test_platform_without_a_sender_raises_an_internal_error() -> None:
    with pytest.raises(ValueError, match="platform.sender"):
        resolve_sender(Caller(team=SANDBOX, key=key()), Platform(sender="nobody"), None, None)


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("Acme Support", "Acme Support <a@acme.test>"),
        ("Café 東京", "Café 東京 <a@acme.test>"),
        ("O'Neil & Co", "O'Neil & Co <a@acme.test>"),
        ("Acme, Inc.", '"Acme, Inc." <a@acme.test>'),
        ("Acme Inc.", '"Acme Inc." <a@acme.test>'),
        ('The "A"', r'"The \"A\"" <a@acme.test>'),
        ("a\\b", r'"a\\b" <a@acme.test>'),
        ("a@b", '"a@b" <a@acme.test>'),
        ("Two  spaces", '"Two  spaces" <a@acme.test>'),
    ],
)
def test_sender_header_quotes_the_display_name(name: str, header: str) -> None:
    address = Address("a@acme.test", "a@acme.test", "acme.test")
    assert Sender(address=address, name=name, domain=ACME).header == header


@pytest.mark.parametrize(
    ("of", "pin", "id", "chosen"),
    [
        (LIVE, None, None, SHOP),
        (LIVE, None, "dom_acme", ACME),
        (LIVE, "acme.test", None, ACME),
        (LIVE, "acme.test", "dom_acme", ACME),
        (SANDBOX, None, None, ACME),
        (SANDBOX, None, "dom_acme", ACME),
        (SANDBOX, "gone.test", None, None),
        (team("sandbox"), None, None, None),
        (team("sandbox", RAW), None, None, None),
    ],
)
def test_brand_domain_id_or_pinned_key_selects_the_domain(
    of: Team, pin: str | None, id: str | None, chosen: Domain | None
) -> None:
    assert resolve_brand_domain(of, key(pin), id) == chosen


@pytest.mark.parametrize(
    ("of", "pin", "id", "refusal", "param"),
    [
        (team("live"), None, None, NoApprovedBrandDomain, None),
        (UNAPPROVED, None, "dom_raw", NoApprovedBrandDomain, None),
        (LIVE, "acme.test", "dom_none", BrandDomainNotFound, "brand_domain_id"),
        (LIVE, None, "dom_raw", BrandDomainNotFound, "brand_domain_id"),
        (LIVE, None, "dom_new", BrandDomainNotFound, "brand_domain_id"),
        (LIVE, None, "", BrandDomainNotFound, "brand_domain_id"),
        (team("sandbox"), None, "dom_acme", BrandDomainNotFound, "brand_domain_id"),
        (LIVE, "acme.test", "dom_shop", KeyDomainScope, "brand_domain_id"),
        (LIVE, "new.test", None, KeyDomainScope, None),
    ],
)
def test_brand_domain_not_available_is_refused(
    of: Team, pin: str | None, id: str | None, refusal: type[Refusal], param: str | None
) -> None:
    with pytest.raises(Refusal) as refused:
        resolve_brand_domain(of, key(pin), id)
    assert (type(refused.value), refused.value.param) == (refusal, param)


@pytest.mark.parametrize(
    ("mode", "has_domain", "name"),
    [("live", True, "Acme"), ("sandbox", True, "Acme"), ("sandbox", False, "Heliograph")],
)
def test_preview_brand_values_default_to_the_domain_or_the_platform(mode: Mode, has_domain: bool, name: str) -> None:
    of = team(mode, *[domain("acme.test", "Acme")] * has_domain)
    displayed = {"Acme": "acme.test", "Heliograph": "sandbox.test"}[name]
    assert default_brand_values(of, PLATFORM) == {"name": name, "domain": displayed}
