"""The platform's own mails: handed over inside the request and kept nowhere, because what they hold lets people in."""

import asyncio

from heliograph.carrier_failover import Handover
from heliograph.domain.delivery.outcome import Accepted, Asked
from heliograph.domain.mail.system_mail import OwnMail, to_content
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Channel
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.store import Store

MAILS_MAX = 10  # for a team or a person, and to an address, in 15 minutes
MAIL_S = 10.0  # how long the page waits for a mail server; the mail is sent regardless

_mails: set[asyncio.Task[list[Asked]]] = set()


def is_simulated(setup: Setup, channel: Channel) -> bool:
    """Tell whether no carrier of the channel is real, not even one that is disabled or out of reach now."""
    return all(carrier.kind == "simulator" for carrier in setup.carriers if carrier.channel == channel)


async def send(store: Store, handover: Handover, whose: str, address: str, mail: OwnMail) -> None:
    """Send a mail of ours; a refusal says why it cannot be sent.

    The words are ours: strangers would be mailed what a team writes. `whose` is the team or the person that may ask for
    so many.
    """
    limits = {f"mails of {whose}": MAILS_MAX, f"mails to {address}": MAILS_MAX}
    if await store.tries.begin(limits, store.clock.now()):
        raise Refusal("Too many mails were asked for. Try again in 15 minutes.")
    if not handover.reachable("email", None):
        raise Refusal("No email carrier can be reached now. Try again in a minute.")
    task = asyncio.create_task(handover.mail(to_content(mail, store.setup.current.platform, address)))
    _mails.add(task)
    task.add_done_callback(_mails.discard)
    # The task is waited for, not cancelled: a slow mail server would count against the carrier.
    done, _ = await asyncio.wait({task}, timeout=MAIL_S)
    if done and not isinstance(said := task.result()[-1].outcome, Accepted):
        raise Refusal(f"The mail was not taken: {said.detail.get('text', 'no answer')} Try again in a few minutes.")
