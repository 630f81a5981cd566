"""Judges each team by its bounces and complaints."""

import structlog

from heliograph.deliver.duties.repeat import repeat
from heliograph.rules.mail.reputation import rates
from heliograph.storage.store import Store

EVERY_S = 60.0

log = structlog.get_logger()


async def judge_teams(store: Store) -> None:
    async def judge() -> None:
        for judged in await store.reputation.judge():
            log.warning("reputation judged", team=judged.team, state=judged.state, why=rates(judged))

    await repeat(EVERY_S, judge)
