"""Mails of the platform's own: handed over inside the request and kept nowhere, for what they hold lets people in."""

import asyncio

import msgspec

from heliograph.accept.phone import carriers_for
from heliograph.channels.carrier import Parcel
from heliograph.dashboard.passwords import TRIES_MAX
from heliograph.dashboard.visit import Visit
from heliograph.handover import first_of
from heliograph.rules.content import EmailContent
from heliograph.rules.outcome import Accepted, Asked
from heliograph.rules.refusals import Refusal

MAIL_S = 10.0  # that the page waits for a mail server; the mail goes on without it

_mails: set[asyncio.Task[list[Asked]]] = set()


def is_simulated(visit: Visit, channel: str) -> bool:
    """No carrier of the channel is real, not even one that is disabled or out of reach now."""
    return all(carrier.kind == "simulator" for carrier in visit.setup.carriers if carrier.channel == channel)


async def send(visit: Visit, address: str, subject: str, text: str) -> None:
    """A refusal says why it cannot be sent. The words are ours: strangers would be mailed what a team writes."""
    whose = visit.team_found.record.id if visit.team_found else visit.person.person
    limits = {f"mails of {whose}": TRIES_MAX, f"mails to {address}": TRIES_MAX}
    if await visit.store.tries.begin(limits, visit.context.clock.now()):
        raise Refusal("Too many mails were asked for. Try again in 15 minutes.")
    carriers = carriers_for(visit.context, "email", address, None)
    if not carriers:
        raise Refusal("No email carrier can be reached now. Try again in a minute.")
    platform = visit.setup.platform
    content = EmailContent(
        from_name=platform.brand, from_address=platform.sender, to=[address], subject=subject, text=text
    )
    id_ = visit.context.clock.new_id("eml_")
    parcel = Parcel(message_id=id_, address=address, content=msgspec.json.encode(content), attempt=0)
    task = asyncio.create_task(visit.context.handover.in_turn(first_of(carriers), lambda _: parcel))
    _mails.add(task)
    task.add_done_callback(_mails.discard)
    # Waited for, not cancelled: a slow mail server would count against the carrier.
    done, _ = await asyncio.wait({task}, timeout=MAIL_S)
    if done and not isinstance(said := task.result()[-1].outcome, Accepted):
        raise Refusal(f"The mail was not taken: {said.detail.get('text', 'no answer')} Try again in a few minutes.")
