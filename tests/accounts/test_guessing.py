"""Guessing at sign-in: it slows the guesser, by account and by network, and keeps no owner out."""

import pytest

from heliograph.dashboard.passwords import TRIES_MAX, WAITING_MAX, PasswordQueue
from heliograph.dashboard.views.reauth import WRONG as NOT_YOURS
from heliograph.dashboard.views.sign_in import BUSY, FAMILIAR_TRIES_MAX, NETWORK_TRIES_MAX, WRONG
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage import people
from heliograph.storage.attempt_limiter import SPAN_MS
from tests.accounts.house import PASSWORD, Browser, House
from tests.proof.size import size

pytestmark = pytest.mark.anyio

HOME, ROAD = "203.0.113.7", "203.0.113.200"
OWNER = "owner@example.com"
EACH = size("guesses from an address")


async def owner(house: House) -> Browser:
    """Somebody who chose a password at home; answers the browser."""
    browser, made = house.browser(HOME), await house.offer(OWNER)
    assert (await browser.post(f"/dashboard/link/{made.token}", password=PASSWORD)).status == 303
    return browser


async def guess(house: House, email: str, address: str, times: int) -> list[int]:
    browser = house.browser(address)
    return [(await browser.sign_in(email, "wrong password")).status for _ in range(times)]


async def test_guesses_over_fifty_addresses(house: House) -> None:
    device = await owner(house)
    statuses = [status for at in range(50) for status in await guess(house, OWNER, f"198.51.100.{at}", EACH)]
    assert statuses == [403] * TRIES_MAX + [429] * (50 * EACH - TRIES_MAX)
    assert (await house.browser("198.51.100.77").sign_in(OWNER)).status == 429  # the guesser found it too late
    assert (await house.browser(HOME).sign_in(OWNER)).status == 303  # a right password from a known network
    device.address = ROAD
    assert (await device.sign_in(OWNER)).status == 303  # a known browser, wherever it is
    house.clock.forward(SPAN_MS)
    assert (await house.browser("198.51.100.77").sign_in(OWNER)).status == 303


async def test_guesses_from_the_owners_own_network(house: House) -> None:
    """The network's tries are used up, and still the owner's browser gets in."""
    device = await owner(house)
    assert await guess(house, OWNER, HOME, 40) == [403] * TRIES_MAX + [429] * (40 - TRIES_MAX)
    assert (await house.browser(HOME).sign_in(OWNER)).status == 429
    assert (await device.sign_in(OWNER)).status == 303
    wrong = [(await device.sign_in(OWNER, "wrong password")).status for _ in range(FAMILIAR_TRIES_MAX)]
    assert wrong == [429] * FAMILIAR_TRIES_MAX
    assert (await device.sign_in(OWNER)).status == 429  # a stolen browser does not guess without end either


async def test_a_network_that_guesses_everybody(house: House) -> None:
    await owner(house)
    statuses = [(await guess(house, f"{at}@example.com", HOME, 1))[0] for at in range(NETWORK_TRIES_MAX + 3)]
    assert statuses == [403] * NETWORK_TRIES_MAX + [429] * 3
    assert (await house.browser(HOME).sign_in(OWNER)).status == 303
    assert await guess(house, "new@example.com", ROAD, 1) == [403]


async def test_a_network_of_ipv6_is_one_client(house: House) -> None:
    statuses = []
    for at in range(NETWORK_TRIES_MAX + 1):
        statuses += await guess(house, f"{at}@example.com", f"2001:db8:1:2::{at:x}", 1)
    assert statuses == [403] * NETWORK_TRIES_MAX + [429]
    assert await guess(house, "next@example.com", "2001:db8:1:3::1", 1) == [403]


@pytest.mark.parametrize("tries", [1, TRIES_MAX + 1])
async def test_nobody_learns_who_has_an_account(house: House, tries: int) -> None:
    await owner(house)
    pages = []
    for email in (OWNER, "nobody@example.com"):
        browser = house.browser(ROAD)
        for _ in range(tries):
            answer = await browser.sign_in(email, "wrong password")
        pages.append((answer.status, answer.body.replace(email, "")))
    assert pages[0] == pages[1]
    assert (WRONG in pages[0][1]) is (tries == 1)


async def test_codes_are_guessed_no_faster(house: House) -> None:
    await owner(house)
    person = await house.people.find(OWNER)
    assert person
    await house.people.set_totp(person.id, "sealed by nobody", ["recovery"], 0, COMMAND_LINE.did(1, "on", "x"))
    device, statuses = house.browser(ROAD), []
    for _ in range(TRIES_MAX + 1):
        asked = await device.sign_in(OWNER)
        ticket = asked.body.partition('name="ticket" value="')[2].partition('"')[0]
        statuses.append(
            bool(ticket)
            and "Too many wrong tries" in (await device.post("/dashboard/sign-in", ticket=ticket, code="000000")).body
        )
    assert statuses == [False] * (TRIES_MAX + 1)
    assert (await device.sign_in(OWNER)).status == 429


async def test_who_finds_a_session_open_does_not_lock_its_owner_out(house: House) -> None:
    device = await owner(house)
    form = await house.code_form(OWNER)
    for guess in ("", "wrong password"):
        answer = await device.post("/dashboard/account/totp", **form, check=guess)
        assert (answer.status, NOT_YOURS in answer.body) == (400, True)
    assert (await house.browser(HOME).sign_in(OWNER)).status == 303  # without a code
    assert "recovery codes" in (await device.post("/dashboard/account/totp", **form, check=PASSWORD)).body


async def test_many_strangers_at_once_do_not_keep_the_others_waiting(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await owner(house)
    monkeypatch.setattr("heliograph.dashboard.passwords._strangers", PasswordQueue(0))
    refused = await house.browser(ROAD).sign_in(OWNER)
    assert (refused.status, BUSY in refused.body, WAITING_MAX > 0) == (503, True, True)
    assert (await device.sign_in(OWNER)).status == 303


async def test_what_is_known_of_a_person_goes_with_the_person(house: House) -> None:
    await owner(house)
    person = await house.people.find(OWNER)
    assert person
    network = f"network {HOME}"
    assert await house.store.sessions.familiar(person.id, [f"network {ROAD}", network]) == network
    await people.remove(house.store, COMMAND_LINE, person)
    assert await house.store.sessions.familiar(person.id, [network]) is None
