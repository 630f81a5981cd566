"""Permanently erases an email address or a phone number from all records of a team."""

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

SETTLE_S = 1.0  # time for every process to write its buffered data and refresh its setup


async def erase(store: Store, actor: Actor, team: Team, given: str, tell: Tell = lambda what, count: None) -> int:
    """Erase an address and return the number of messages that contained it.

    Raises StillMoving if the address cannot be erased yet, for example while messages to it are in progress, and
    InvalidRequest if the address is that of the team's last owner.

    Two audit entries record begin and end, with a part of the hash instead of the address.
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
    """Remove the person's role in this team, and the whole account unless another team or the instance needs it."""
    person = await store.people.find(wanted.address)
    if person is None:
        return
    subject = short_name(wanted.name)
    await people.end_role(store, actor, person.id, subject, wanted.team, "")
    if wanted.whole:
        await people.remove(store, actor, person, subject)


def named_in(setup: Setup, wanted: Wanted) -> list[tuple[tuple[str, str], Setting]]:
    """Return the team's setup records that contain the address in a text, as ((kind, id), record)."""
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
    """Return the erasure target: the address, and where it may occur."""
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
    """Return whether the account of this address has roles or invitations beyond this team."""
    person = await store.people.find(address)
    if person is None:
        return False
    teams = {*await store.people.roles(person.id), *await store.people.invitations(person.id)}  # "" for the instance
    return bool(person.instance_role or teams - {team})


def read_erasable(given: str) -> str:
    """Return the normal form of an email address or phone number; raise InvalidRequest if it cannot be erased."""
    try:
        address = read_recipient(given)
    except ValueError as error:
        raise InvalidRequest(str(error), param="address") from None
    if is_magic(address) or is_erased(address):
        raise InvalidRequest("This is no address of a person.", param="address")
    return address
