"""Sends notices to people by mail and chat: each notice once, and none about notices."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from heliograph.carrier_failover import Handover
from heliograph.domain.delivery.outcome import Accepted, Deferred
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.mail.system_mail import to_content
from heliograph.storage.notices import NoticeMail, Outcome
from heliograph.storage.store import Store
from heliograph.texts.notices import to_chat, to_mail
from heliograph.webhooks.client.http_post import Posted, Poster
from heliograph.webhooks.policy.retry import MAYBE_ARRIVED

AT_ONCE = 8  # concurrent mails and posts
JSON = {"Content-Type": "application/json"}

log = structlog.get_logger()


class Teller(msgspec.Struct, frozen=True, kw_only=True):
    """Sends due notices by mail and chat."""

    store: Store
    handover: Handover
    poster: Poster
    base_url: str
    open_hook: Callable[[str, str], str]  # (ciphertext, team) → chat webhook URL; ValueError if it cannot be decrypted

    async def round(self) -> None:
        setup = self.store.setup.current
        await self.store.notices.spread(setup, by_mail="email" not in simulated_channels(setup.carriers))
        free = asyncio.Semaphore(AT_ONCE)

        async def tell(told: NoticeMail) -> None:
            async with free:
                outcome = await (self._mail(told) if told.chat_of is None else self._post(told, told.chat_of))
            if outcome.state != "sent":
                log.warning("notice not sent", place=told.place, state=outcome.state, reason=outcome.detail)
            await self.store.notices.record(told, outcome)

        # Failures are only logged: a notice about failed notices would repeat forever.
        for failure in await asyncio.gather(*map(tell, await self.store.notices.take()), return_exceptions=True):
            if isinstance(failure, Exception):
                log.warning("notice broke off", error=type(failure).__name__)

    async def _mail(self, told: NoticeMail) -> Outcome:
        setup = self.store.setup.current
        mail = to_mail(told.happenings, setup, self.base_url, told.role)
        asked = await self.handover.mail(to_content(mail, setup.platform, told.email), told.mail)
        if not asked:
            return Outcome("waiting", "no email carrier can be reached")
        said = asked[-1].outcome
        if isinstance(said, Accepted):
            return Outcome("sent")
        again = isinstance(said, Deferred) and not said.uncertain
        return Outcome("waiting" if again else "failed", str(said.detail.get("text", "no answer")))

    async def _post(self, told: NoticeMail, team: str) -> Outcome:
        hook = await self.store.notices.hook(team)
        if hook is None:
            return Outcome("dropped", "the chat was removed")
        try:
            url = self.open_hook(hook.sealed, team)
        except ValueError:
            return Outcome("failed", "the address cannot be opened: save it again")
        body = to_chat(told.happenings, self.store.setup.current, self.base_url, url)
        return _judged(await self.poster.post(url, JSON, body))


def _judged(posted: Posted) -> Outcome:
    if posted.status is None:
        return Outcome("failed" if posted.reason in MAYBE_ARRIVED else "waiting", posted.error or "")
    if 200 <= posted.status < 300:
        return Outcome("sent")
    again = posted.status in (408, 429) or posted.status >= 500
    return Outcome("waiting" if again else "failed", f"the chat answered {posted.status}")
