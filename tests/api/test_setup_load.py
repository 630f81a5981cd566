"""One key changes the setup often: sends of other teams are not delayed."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import pytest

from tests.lock_waits import LOCK_WAITS
from tests.service import Service

pytestmark = pytest.mark.anyio

WAITING = f"SELECT count(*) FROM {LOCK_WAITS}"


def post_template(service: Service, number: int) -> int:
    body = {"channel": "email", "name": f"Load {number}", "subject": "Hello", "text": "Hello"}
    return service.post("/v1/templates", body, key="ACME").status


def post_domain(service: Service, number: int) -> int:
    return service.post("/v1/domains", {"name": f"load-{number}.acme.test"}, key="ACME").status


def send(service: Service) -> int:
    body = {"to": "me@example.com", "subject": "Hello", "text": "Hello"}
    return service.post("/v1/emails", body, key="SANDBOX").status


@pytest.mark.parametrize("post", [post_template, post_domain])
def test_setup_changes_forty_at_once_another_teams_sends_are_accepted(service: Service, post: Any) -> None:
    with ThreadPoolExecutor(41) as pool:
        changes = [pool.submit(post, service, number) for number in range(40)]
        sends = [send(service) for _ in range(10)]
        assert sends == [202] * 10
        assert {change.result() for change in changes} == {201}


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_setup_changes_stuck_behind_a_row_another_teams_sends_are_accepted(
    service: Service, database_url: str
) -> None:
    holder: Any = await asyncpg.connect(database_url)
    watcher: Any = await asyncpg.connect(database_url)
    with ThreadPoolExecutor(41) as pool:
        try:
            async with holder.transaction():
                await holder.execute("UPDATE counter SET next = next WHERE name = 'setting'")
                changes = [pool.submit(post_template, service, number) for number in range(40)]
                while await watcher.fetchval(WAITING) < 2:
                    pass
                for _ in range(5):
                    assert pool.submit(send, service).result() == 202
                    assert await watcher.fetchval(WAITING) == 2
            assert {change.result() for change in changes} == {201}
        finally:
            await holder.close()
            await watcher.close()
