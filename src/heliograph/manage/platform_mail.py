"""Sends system mails, such as sign-in links, while the request waits.

The mails contain secrets and are never stored.
"""

import asyncio

from heliograph.carrier_failover import CarrierFailover
from heliograph.domain.delivery.outcome import Accepted, CarrierAttempt
from heliograph.domain.mail.system_mail import SystemMail, build_content
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Channel
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.store import Store

MAILS_PER_WINDOW = 10  # maximum mails in 15 minutes, per requesting team or person and per address
SEND_TIMEOUT_S = 10.0  # how long the page waits for the mail server; the mail is sent regardless

_pending_sends: set[asyncio.Task[list[CarrierAttempt]]] = set()


def has_only_simulators(setup: Setup, channel: Channel) -> bool:
    """Return whether a channel has only simulators; disabled and unreachable carriers count as real."""
    return all(carrier.kind == "simulator" for carrier in setup.carriers if carrier.channel == channel)


async def send_system_mail(
    store: Store, failover: CarrierFailover, limit_key: str, address: str, mail: SystemMail
) -> None:
    """Send a system mail; raise a Refusal with the reason if it cannot be sent.

    The text is fixed by the platform, so that teams cannot mail their own text to arbitrary addresses. `limit_key`: the
    team or person whose rate limit applies.
    """
    limits = {f"mails of {limit_key}": MAILS_PER_WINDOW, f"mails to {address}": MAILS_PER_WINDOW}
    if await store.attempt_limiter.record_attempt(limits, store.clock.now()):
        raise Refusal("Too many emails were requested. Try again in 15 minutes.")
    if not failover.eligible_carriers("email", None):
        raise Refusal("No email carrier is reachable. Try again in a minute.")
    task = asyncio.create_task(failover.send_system_mail(build_content(mail, store.setup.current.platform, address)))
    _pending_sends.add(task)
    task.add_done_callback(_pending_sends.discard)
    # After the timeout the send continues: a cancelled send would count as a failure of the carrier.
    done, _ = await asyncio.wait({task}, timeout=SEND_TIMEOUT_S)
    if done and not isinstance(outcome := task.result()[-1].outcome, Accepted):
        raise Refusal(
            f"The email was not accepted: {outcome.detail.get('text', 'no response')} Try again in a few minutes."
        )
