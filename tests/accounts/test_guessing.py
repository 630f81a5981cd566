"""Limits on password guessing, per account and per network, never lock out the account's owner."""

import pytest

from heliograph.dashboard.passwords import ATTEMPTS_MAX, QUEUE_MAX, PasswordQueue
from heliograph.dashboard.views.reauth import WRONG_PASSWORD as NOT_YOURS
from heliograph.dashboard.views.sign_in import BUSY, KNOWN_CLIENT_ATTEMPTS_MAX, NETWORK_ATTEMPTS_MAX, WRONG_PASSWORD
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage import people
from heliograph.storage.attempt_limiter import WINDOW_MS
from tests.accounts.house import PASSWORD, Browser, Instance
from tests.proof.size import size

pytestmark = pytest.mark.anyio

HOME, ROAD = "203.0.113.7", "203.0.113.200"
OWNER = "owner@example.com"
EACH = size("guesses from an address")


async def owner(house: Instance) -> Browser:
    """Create a user with a password and return the browser that was used."""
    browser, invitation = house.browser(HOME), await house.invite(OWNER)
    assert (await browser.post(f"/dashboard/link/{invitation.token}", password=PASSWORD)).status == 303
    return browser


async def guess_password(house: Instance, email: str, address: str, times: int) -> list[int]:
    browser = house.browser(address)
    return [(await browser.sign_in(email, "wrong password")).status for _ in range(times)]


async def test_guessing_one_account_from_many_addresses_is_limited(house: Instance) -> None:
    device = await owner(house)
    statuses = [status for at in range(50) for status in await guess_password(house, OWNER, f"198.51.100.{at}", EACH)]
    assert statuses == [403] * ATTEMPTS_MAX + [429] * (50 * EACH - ATTEMPTS_MAX)
    assert (await house.browser("198.51.100.77").sign_in(OWNER)).status == 429  # even the correct password
    assert (await house.browser(HOME).sign_in(OWNER)).status == 303  # correct password from a known network
    device.address = ROAD
    assert (await device.sign_in(OWNER)).status == 303  # a known browser in any network
    house.clock.forward(WINDOW_MS)
    assert (await house.browser("198.51.100.77").sign_in(OWNER)).status == 303


async def test_guessing_from_owners_network_does_not_block_owner(house: Instance) -> None:
    """The owner's browser can sign in even if its network has no attempts left."""
    device = await owner(house)
    assert await guess_password(house, OWNER, HOME, 40) == [403] * ATTEMPTS_MAX + [429] * (40 - ATTEMPTS_MAX)
    assert (await house.browser(HOME).sign_in(OWNER)).status == 429
    assert (await device.sign_in(OWNER)).status == 303
    wrong = [(await device.sign_in(OWNER, "wrong password")).status for _ in range(KNOWN_CLIENT_ATTEMPTS_MAX)]
    assert wrong == [429] * KNOWN_CLIENT_ATTEMPTS_MAX
    assert (await device.sign_in(OWNER)).status == 429  # attempts from a known browser are limited too


async def test_network_guessing_many_accounts_is_blocked(house: Instance) -> None:
    await owner(house)
    statuses = [
        (await guess_password(house, f"{at}@example.com", HOME, 1))[0] for at in range(NETWORK_ATTEMPTS_MAX + 3)
    ]
    assert statuses == [403] * NETWORK_ATTEMPTS_MAX + [429] * 3
    assert (await house.browser(HOME).sign_in(OWNER)).status == 303
    assert await guess_password(house, "new@example.com", ROAD, 1) == [403]


async def test_ipv6_network_counts_as_one_client(house: Instance) -> None:
    statuses = []
    for at in range(NETWORK_ATTEMPTS_MAX + 1):
        statuses += await guess_password(house, f"{at}@example.com", f"2001:db8:1:2::{at:x}", 1)
    assert statuses == [403] * NETWORK_ATTEMPTS_MAX + [429]
    assert await guess_password(house, "next@example.com", "2001:db8:1:3::1", 1) == [403]


@pytest.mark.parametrize("tries", [1, ATTEMPTS_MAX + 1])
async def test_failed_sign_in_does_not_reveal_whether_account_exists(house: Instance, tries: int) -> None:
    await owner(house)
    pages = []
    for email in (OWNER, "nobody@example.com"):
        browser = house.browser(ROAD)
        for _ in range(tries):
            answer = await browser.sign_in(email, "wrong password")
        pages.append((answer.status, answer.body.replace(email, "")))
    assert pages[0] == pages[1]
    assert (WRONG_PASSWORD in pages[0][1]) is (tries == 1)


async def test_guessing_totp_codes_counts_as_sign_in_attempts(house: Instance) -> None:
    await owner(house)
    person = await house.people.find(OWNER)
    assert person
    await house.people.set_totp(person.id, "sealed by nobody", ["recovery"], 0, COMMAND_LINE.audit_entry(1, "on", "x"))
    device, statuses = house.browser(ROAD), []
    for _ in range(ATTEMPTS_MAX + 1):
        response = await device.sign_in(OWNER)
        ticket = response.body.partition('name="ticket" value="')[2].partition('"')[0]
        statuses.append(
            bool(ticket)
            and "Too many failed attempts"
            in (await device.post("/dashboard/sign-in", ticket=ticket, code="000000")).body
        )
    assert statuses == [False] * (ATTEMPTS_MAX + 1)
    assert (await device.sign_in(OWNER)).status == 429


async def test_guessing_in_open_session_does_not_lock_owner_out(house: Instance) -> None:
    device = await owner(house)
    form = await house.send_sign_in_form(OWNER)
    for guess in ("", "wrong password"):
        response = await device.post("/dashboard/account/totp", **form, check=guess)
        assert (response.status, NOT_YOURS in response.body) == (400, True)
    assert (await house.browser(HOME).sign_in(OWNER)).status == 303  # TOTP was not enabled
    assert "recovery codes" in (await device.post("/dashboard/account/totp", **form, check=PASSWORD)).body


async def test_concurrent_guesses_do_not_delay_other_sign_ins(house: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    device = await owner(house)
    monkeypatch.setattr("heliograph.dashboard.passwords._unknown_clients", PasswordQueue(0))
    refused = await house.browser(ROAD).sign_in(OWNER)
    assert (refused.status, BUSY in refused.body, QUEUE_MAX > 0) == (503, True, True)
    assert (await device.sign_in(OWNER)).status == 303


async def test_deleted_person_leaves_no_familiar_devices(house: Instance) -> None:
    await owner(house)
    person = await house.people.find(OWNER)
    assert person
    network = f"network {HOME}"
    assert await house.store.sessions.find_familiar_device(person.id, [f"network {ROAD}", network]) == network
    await people.remove(house.store, COMMAND_LINE, person)
    assert await house.store.sessions.find_familiar_device(person.id, [network]) is None
