"""Updates each team's reputation from its bounces and complaints."""

import structlog

from heliograph.domain.mail.reputation import rates
from heliograph.storage.store import Store

log = structlog.get_logger()


async def judge_teams(store: Store) -> None:
    for judged in await store.reputation.judge():
        log.warning("reputation judged", team=judged.team, state=judged.state, why=rates(judged))
