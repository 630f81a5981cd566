"""Updates each team's reputation from its bounces and complaints."""

import structlog

from heliograph.domain.mail.reputation import describe_rates
from heliograph.storage.store import Store

log = structlog.get_logger()


async def update_reputations(store: Store) -> None:
    for reputation in await store.reputations.update_all():
        log.warning(
            "team reputation changed", team=reputation.team, state=reputation.state, reason=describe_rates(reputation)
        )
