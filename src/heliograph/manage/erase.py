"""Erasing an email address or a phone number from all records of a team, for good."""

import asyncio

import msgspec

from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.operations.erasure import Forms, forms_of, is_erased, short_name
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Key, Setting, Team
from heliograph.domain.setup.snapshot import Row, Setup, to_row
from heliograph.domain.setup.values import read_recipient
from heliograph.manage import people
from heliograph.storage.erase import Tell, Wanted
from heliograph.storage.store import Store

SETTLE_S = 1.0  # in which every process writes down what it remembers and follows the setup


async def erase(store: Store, actor: Actor, team: Team, given: str, tell: Tell = lambda what, count: None) -> int:
    """Erase an address and return how many messages named it. Raises StillMoving when it must wait, and InvalidRequest
    when the address is that of the team's last owner.

    One entry says that it has begun and another one that it is done, with a part of the hash instead of the address.
    """
    wanted, record = await wanted_of(store, team, given), team.record
    address, subject = wanted.address, short_name(wanted.name)
    begun = actor.did(store.clock.now(), "address.erase", subject, "begun", team=record.id)
    await store.erasures.begin(wanted, begun)
    await _end_account(store, actor, wanted)

    def rows(setup: Setup) -> list[Row]:
        is_recipient = address in setup.teams[record.id].recipients
        return [to_row("recipient", f"{record.id}/{address}", None, record.id)] if is_recipient else []

    def scrubbed(setup: Setup) -> list[Row]:
        return [to_row(*place, _scrub(wanted.forms, found), record.id) for place, found in named_in(setup, wanted)]

    await change_rows(store, actor, record.id, "recipient.remove", subject, rows)
    await change_rows(store, actor, record.id, "address.erase", subject, scrubbed, "templates and names")
    await asyncio.sleep(SETTLE_S)
    count = await store.erasures.sweep(wanted, begun.at, tell)
    done = f"done, messages: {count}"
    await store.audit.add(actor.did(store.clock.now(), "address.erase", subject, done, team=record.id))
    return count


async def _end_account(store: Store, actor: Actor, wanted: Wanted) -> None:
    """End what lets the person into this team; all of it, unless another team or the instance needs it."""
    person = await store.people.find(wanted.address)
    if person is None:
        return
    subject = short_name(wanted.name)
    await people.end_role(store, actor, person.id, subject, wanted.team, "")
    if wanted.whole:
        await people.remove(store, actor, person, subject)


def named_in(setup: Setup, wanted: Wanted) -> list[tuple[tuple[str, str], Setting]]:
    """List the records of the team's setup that name the address in a text: kind and id, and the record."""
    return [
        (place, found)
        for place, found in setup.records.items()
        if wanted.team in (getattr(found, "team", None), place[1] if place[0] == "team" else None)
        and place[0] != "recipient"
        and wanted.forms.are_in(msgspec.json.encode(found).decode())
    ]


def _scrub(forms: Forms, found: Setting) -> Setting:
    return msgspec.convert(forms.without(msgspec.to_builtins(found)), type(found))


async def wanted_of(store: Store, team: Team, given: str) -> Wanted:
    """Return the address, and where it may stand."""
    address, record = read_erasable(given), team.record
    keys = [r.id for r in store.setup.current.records.values() if isinstance(r, Key) and r.team == record.id]
    return Wanted(
        ref=record.ref,
        team=record.id,
        forms=forms_of(address, given),
        name=store.suppressions.name_of(record.ref, address),
        webhooks=tuple(hook.id for hook in team.webhooks),
        keys=tuple(keys),
        templates=(*team.templates, *team.layouts),
        whole=not await _is_elsewhere(store, record.id, address),
    )


async def _is_elsewhere(store: Store, team: str, address: str) -> bool:
    """Tell whether an account of this address is for more than this team."""
    person = await store.people.find(address)
    if person is None:
        return False
    teams = {*await store.people.roles(person.id), *await store.people.invitations(person.id)}  # "": to run it all
    return bool(person.instance_role or teams - {team})


def read_erasable(given: str) -> str:
    """Return the normal form of an address or phone number that can be erased."""
    try:
        address = read_recipient(given)
    except ValueError as error:
        raise InvalidRequest(str(error), param="address") from None
    if is_magic(address) or is_erased(address):
        raise InvalidRequest("This is no address of a person.", param="address")
    return address
