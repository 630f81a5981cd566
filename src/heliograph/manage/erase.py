"""Erasing an email address or a phone number from all records of a team, for good."""

import asyncio

from heliograph.manage.setup import change_rows
from heliograph.rules.audit import Actor
from heliograph.rules.erasure import forms_of, is_erased, short_name
from heliograph.rules.magic import is_magic
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.file import read_recipient
from heliograph.rules.setup.records import Key, Team
from heliograph.rules.setup.snapshot import Row, Setup, to_row
from heliograph.storage.erase import Tell, Wanted
from heliograph.storage.store import Store

SETTLE_S = 1.0  # in which every process writes down what it remembers and follows the setup


async def erase(store: Store, actor: Actor, team: Team, given: str, tell: Tell = lambda what, count: None) -> int:
    """How many messages named the address. Raises StillMoving when it must wait. One entry says that it has begun and
    another one that it is done, with a part of the hash instead of the address.
    """
    wanted, record = wanted_of(store, team, given), team.record
    address, subject = wanted.address, short_name(wanted.name)
    begun = actor.did(store.clock.now(), "address.erase", subject, "begun", team=record.id)
    await store.erasures.begin(wanted, begun)

    def rows(setup: Setup) -> list[Row]:
        is_recipient = address in setup.teams[record.id].recipients
        return [to_row("recipient", f"{record.id}/{address}", None, record.id)] if is_recipient else []

    await change_rows(store, actor, record.id, "recipient.remove", subject, rows)
    await asyncio.sleep(SETTLE_S)
    count = await store.erasures.sweep(wanted, begun.at, tell)
    done = f"done, messages: {count}"
    await store.audit.add(actor.did(store.clock.now(), "address.erase", subject, done, team=record.id))
    return count


def wanted_of(store: Store, team: Team, given: str) -> Wanted:
    """The address, and where it may stand."""
    address, record = read_erasable(given), team.record
    keys = [r.id for r in store.setup.current.records.values() if isinstance(r, Key) and r.team == record.id]
    return Wanted(
        ref=record.ref,
        team=record.id,
        forms=forms_of(address, given),
        name=store.suppressions.name_of(record.ref, address),
        webhooks=tuple(hook.id for hook in team.webhooks),
        keys=tuple(keys),
    )


def read_erasable(given: str) -> str:
    """The normal form of an address or phone number that can be erased."""
    try:
        address = read_recipient(given)
    except ValueError as error:
        raise InvalidRequest(str(error), param="address") from None
    if is_magic(address) or is_erased(address):
        raise InvalidRequest("This is no address of a person.", param="address")
    return address
