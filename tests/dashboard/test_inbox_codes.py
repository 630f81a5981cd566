"""Codes in the sandbox's inbox: read by those who may send, until the verification ends, and stored nowhere."""

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


async def start(context: Any) -> str:
    (id_,) = re.findall(rb'"id":"(vrf_\w+)"', (await verify(context, PHONE)).body)
    return str(id_.decode())


async def codes(pages: Pages, who: str) -> list[str]:
    shown = await pages.get(INBOX, who)
    assert PHONE in shown.text
    return CODE.findall(shown.text)


async def test_owners_and_developers_read_it_until_it_is_used(store: Store, clock: Any, database_url: str) -> None:
    context = await prepare(store, clock, "simulator")
    pages, id_ = Pages(context), await start(context)
    (code,) = await codes(pages, "owner")
    assert await codes(pages, "developer") == await codes(pages, OPERATOR) == [code]
    assert await codes(pages, "viewer") == []
    assert not [value for value in await every_value(database_url) if holds(value, code)]
    done = await check_verification(context, caller(context), id_, CheckRequest(code=code))
    assert done.verified
    assert await codes(pages, "owner") == []


async def test_it_is_gone_when_it_expired(store: Store, clock: Any) -> None:
    context = await prepare(store, clock, "simulator")
    await start(context)
    clock.forward(VERIFICATION_MS)
    assert await codes(Pages(context), "owner") == []


async def test_each_has_its_own_and_a_real_carriers_is_not_there(store: Store, clock: Any) -> None:
    context = await prepare(store, clock, "simulator")
    pages = Pages(context)
    for _ in range(3):
        await start(context)
    assert len(set(await codes(pages, "owner"))) == 3
    real = await prepare(store, clock, "test")
    await start(real)
    assert len(await codes(pages, "owner")) == 3
