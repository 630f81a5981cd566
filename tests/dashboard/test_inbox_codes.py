"""Codes in the sandbox's inbox: visible to developers until the verification ends, and never stored."""

import re
from typing import Any

import pytest

from heliograph.accept.verify_check import CheckRequest, check_verification
from heliograph.domain.limits import VERIFICATION_MS
from heliograph.storage.store import Store
from tests.accept.test_sandbox_limit import PHONE, TEAM, caller, prepare, verify
from tests.dashboard.inside import OPERATOR, Pages
from tests.proof.test_no_code_leaks import every_value, holds

INBOX = f"/dashboard/teams/{TEAM}/inbox?channel=verification"
CODE = re.compile(r"(?<![0-9+])[0-9]{6}(?![0-9])")
pytestmark = pytest.mark.anyio


async def start_verification(context: Any) -> str:
    (id_,) = re.findall(rb'"id":"(vrf_\w+)"', (await verify(context, PHONE)).body)
    return str(id_.decode())


async def shown_codes(pages: Pages, who: str) -> list[str]:
    response = await pages.get(INBOX, who)
    assert PHONE in response.text
    return CODE.findall(response.text)


async def test_code_is_shown_to_owner_and_developer_until_used(store: Store, clock: Any, database_url: str) -> None:
    context = await prepare(store, clock, "simulator")
    pages, id_ = Pages(context), await start_verification(context)
    (code,) = await shown_codes(pages, "owner")
    assert await shown_codes(pages, "developer") == await shown_codes(pages, OPERATOR) == [code]
    assert await shown_codes(pages, "viewer") == []
    assert not [value for value in await every_value(database_url) if holds(value, code)]
    done = await check_verification(context, caller(context), id_, CheckRequest(code=code))
    assert done.verified
    assert await shown_codes(pages, "owner") == []


async def test_expired_code_is_not_shown(store: Store, clock: Any) -> None:
    context = await prepare(store, clock, "simulator")
    await start_verification(context)
    clock.forward(VERIFICATION_MS)
    assert await shown_codes(Pages(context), "owner") == []


async def test_each_verification_shows_its_code_except_real_carriers(store: Store, clock: Any) -> None:
    context = await prepare(store, clock, "simulator")
    pages = Pages(context)
    for _ in range(3):
        await start_verification(context)
    assert len(set(await shown_codes(pages, "owner"))) == 3
    real = await prepare(store, clock, "test")
    await start_verification(real)
    assert len(await shown_codes(pages, "owner")) == 3
