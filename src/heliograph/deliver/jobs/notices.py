"""Sends notices to people by mail and chat."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from heliograph.carrier_failover import CarrierFailover
from heliograph.domain.delivery.outcome import Accepted, Deferred
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.mail.system_mail import build_content
from heliograph.storage.notices import NoticeMail, NoticeOutcome
from heliograph.storage.store import Store
from heliograph.texts.notices import to_chat, to_mail
from heliograph.webhooks.client.http_post import PostResult, WebhookHttpClient
from heliograph.webhooks.policy.retry import MAYBE_ARRIVED

CONCURRENT_MAX = 8  # concurrent mails and posts
JSON_HEADERS = {"Content-Type": "application/json"}

log = structlog.get_logger()


class NoticeSender(msgspec.Struct, frozen=True, kw_only=True):
    """Sends due notices by mail and chat."""

    store: Store
    failover: CarrierFailover
    poster: WebhookHttpClient
    base_url: str
    # (ciphertext, team) → chat webhook URL; ValueError if it cannot be decrypted
    decrypt_hook: Callable[[str, str], str]

    async def send_due(self) -> None:
        setup = self.store.setup.current
        await self.store.notices.fan_out(setup, by_mail="email" not in simulated_channels(setup.carriers))
        semaphore = asyncio.Semaphore(CONCURRENT_MAX)

        async def send(notice: NoticeMail) -> None:
            async with semaphore:
                outcome = await (
                    self._send_mail(notice)
                    if notice.chat_team is None
                    else self._post_to_chat(notice, notice.chat_team)
                )
            if outcome.state != "sent":
                log.warning("notice not sent", place=notice.destination, state=outcome.state, reason=outcome.detail)
            await self.store.notices.record(notice, outcome)

        # only logged: a notice about a failed notice could fail again, without end
        for result in await asyncio.gather(*map(send, await self.store.notices.take_due()), return_exceptions=True):
            if isinstance(result, Exception):
                log.warning("sending a notice failed", error=type(result).__name__)

    async def _send_mail(self, notice: NoticeMail) -> NoticeOutcome:
        setup = self.store.setup.current
        mail = to_mail(notice.notices, setup, self.base_url, notice.role)
        attempts = await self.failover.send_system_mail(build_content(mail, setup.platform, notice.email), notice.mail)
        if not attempts:
            return NoticeOutcome("waiting", "no email carrier is reachable")
        outcome = attempts[-1].outcome
        if isinstance(outcome, Accepted):
            return NoticeOutcome("sent")
        may_retry = isinstance(outcome, Deferred) and not outcome.uncertain
        return NoticeOutcome("waiting" if may_retry else "failed", str(outcome.detail.get("text", "no answer")))

    async def _post_to_chat(self, notice: NoticeMail, team: str) -> NoticeOutcome:
        hook = await self.store.notices.get_chat_webhook(team)
        if hook is None:
            return NoticeOutcome("dropped", "the chat was removed")
        try:
            url = self.decrypt_hook(hook.encrypted_url, team)
        except ValueError:
            return NoticeOutcome("failed", "the chat webhook URL cannot be decrypted: save it again")
        body = to_chat(notice.notices, self.store.setup.current, self.base_url, url)
        return _chat_outcome(await self.poster.post(url, JSON_HEADERS, body))


def _chat_outcome(response: PostResult) -> NoticeOutcome:
    if response.status is None:
        return NoticeOutcome("failed" if response.reason in MAYBE_ARRIVED else "waiting", response.error or "")
    if 200 <= response.status < 300:
        return NoticeOutcome("sent")
    may_retry = response.status in (408, 429) or response.status >= 500
    return NoticeOutcome("waiting" if may_retry else "failed", f"the chat answered {response.status}")
