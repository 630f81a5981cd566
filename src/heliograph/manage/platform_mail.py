"""Sends the platform's own mails inside the request.

They are never stored, because they contain sign-in links or codes.
"""

import asyncio

from heliograph.carrier_failover import Handover
from heliograph.domain.delivery.outcome import Accepted, Asked
from heliograph.domain.mail.system_mail import OwnMail, to_content
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Channel
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.store import Store

MAILS_MAX = 10  # limit in 15 minutes, per requesting team or person and per address
MAIL_S = 10.0  # how long the page waits for the mail server; the mail is sent regardless

_mails: set[asyncio.Task[list[Asked]]] = set()


def is_simulated(setup: Setup, channel: Channel) -> bool:
    """Return whether a channel has only simulators; disabled and unreachable carriers count as real."""
    return all(carrier.kind == "simulator" for carrier in setup.carriers if carrier.channel == channel)


async def send(store: Store, handover: Handover, whose: str, address: str, mail: OwnMail) -> None:
    """Send a system mail; raise a Refusal with the reason if it cannot be sent.

    The text is fixed by the platform, so that teams cannot mail their own text to arbitrary addresses. `whose`: the
    team or person whose rate limit applies.
    """
    limits = {f"mails of {whose}": MAILS_MAX, f"mails to {address}": MAILS_MAX}
    if await store.tries.begin(limits, store.clock.now()):
        raise Refusal("Too many mails were asked for. Try again in 15 minutes.")
    if not handover.reachable("email", None):
        raise Refusal("No email carrier can be reached now. Try again in a minute.")
    task = asyncio.create_task(handover.mail(to_content(mail, store.setup.current.platform, address)))
    _mails.add(task)
    task.add_done_callback(_mails.discard)
    # Wait without cancelling: a cancelled send would count as a failure of the carrier.
    done, _ = await asyncio.wait({task}, timeout=MAIL_S)
    if done and not isinstance(said := task.result()[-1].outcome, Accepted):
        raise Refusal(f"The mail was not taken: {said.detail.get('text', 'no answer')} Try again in a few minutes.")
