"""Permanently erases an email address or a phone number from all records of a team."""

import asyncio

import msgspec

from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.operations.erasure import AddressVariants, address_variants, is_erased, short_hash
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Key, SetupRecord, Team
from heliograph.domain.setup.snapshot import Row, Setup, to_row
from heliograph.domain.setup.values import read_recipient
from heliograph.manage import people
from heliograph.storage.erase import ErasureTarget, ProgressCallback
from heliograph.storage.store import Store

SETTLE_S = 1.0  # time for every process to write its buffered data and refresh its setup


async def erase(
    store: Store, actor: Actor, team: Team, raw_address: str, on_progress: ProgressCallback = lambda step, count: None
) -> int:
    """Erase an address from a team's records; return the number of messages that contained it.

    Raises ErasureBlocked if the address cannot be erased yet, for example while messages to it are in progress, and
    InvalidRequest if the address is that of the team's last owner.

    Two audit entries record the begin and the end of the erasure, with a part of the address's hash.
    """
    target, record = await build_target(store, team, raw_address), team.record
    address, subject = target.address, short_hash(target.address_hash)
    begin_entry = actor.audit_entry(store.clock.now(), "address.erase", subject, "begun", team=record.id)
    await store.erasures.begin(target, begin_entry)
    await _end_account(store, actor, target)

    def make_rows(setup: Setup) -> list[Row]:
        is_recipient = address in setup.teams[record.id].recipients
        return [to_row("recipient", f"{record.id}/{address}", None, record.id)] if is_recipient else []

    def make_scrubbed_rows(setup: Setup) -> list[Row]:
        return [
            to_row(*record_id, _scrub(target.variants, setting), record.id)
            for record_id, setting in records_with_address(setup, target)
        ]

    await change_rows(store, actor, record.id, "recipient.remove", subject, make_rows)
    await change_rows(store, actor, record.id, "address.erase", subject, make_scrubbed_rows, "templates and names")
    await asyncio.sleep(SETTLE_S)
    count = await store.erasures.erase(target, begin_entry.at, on_progress)
    detail = f"done, messages: {count}"
    await store.audit.add(actor.audit_entry(store.clock.now(), "address.erase", subject, detail, team=record.id))
    return count


async def _end_account(store: Store, actor: Actor, target: ErasureTarget) -> None:
    """Remove the person's role in this team, and the whole account unless another team or the instance needs it."""
    person = await store.people.find(target.address)
    if person is None:
        return
    subject = short_hash(target.address_hash)
    await people.remove_role(store, actor, person.id, subject, target.team, "")
    if target.instance_audit:
        await people.remove(store, actor, person, subject)


def records_with_address(setup: Setup, target: ErasureTarget) -> list[tuple[tuple[str, str], SetupRecord]]:
    """Return the team's setup records that contain the address in one of their texts, as ((kind, id), record)."""
    return [
        (record_id, record)
        for record_id, record in setup.records.items()
        if target.team in (getattr(record, "team", None), record_id[1] if record_id[0] == "team" else None)
        and record_id[0] != "recipient"
        and target.variants.occurs_in(msgspec.json.encode(record).decode())
    ]


def _scrub(variants: AddressVariants, record: SetupRecord) -> SetupRecord:
    return msgspec.convert(variants.redact_json(msgspec.to_builtins(record)), type(record))


async def build_target(store: Store, team: Team, raw_address: str) -> ErasureTarget:
    """Return what to erase: the address, its spellings, and the records that may contain it."""
    address, record = read_erasable(raw_address), team.record
    keys = (key.id for key in store.setup.current.records.values() if isinstance(key, Key) and key.team == record.id)
    return ErasureTarget(
        ref=record.ref,
        team=record.id,
        variants=address_variants(address, raw_address),
        address_hash=store.suppressions.erased_name_of(record.ref, address),
        webhooks=tuple(hook.id for hook in team.webhooks),
        keys=tuple(keys),
        templates=(*team.templates, *team.layouts),
        instance_audit=not await _has_other_roles(store, record.id, address),
    )


async def _has_other_roles(store: Store, team: str, address: str) -> bool:
    """Return whether the account of this address has roles or invitations beyond this team."""
    person = await store.people.find(address)
    if person is None:
        return False
    # An invitation to the instance has the team "".
    teams = {*await store.people.get_roles(person.id), *await store.people.list_invitations(person.id)}
    return bool(person.instance_role or teams - {team})


def read_erasable(raw_address: str) -> str:
    """Return the normal form of an email address or phone number; raise InvalidRequest if it cannot be erased."""
    try:
        address = read_recipient(raw_address)
    except ValueError as error:
        raise InvalidRequest(str(error), param="address") from None
    if is_magic(address) or is_erased(address):
        raise InvalidRequest("This is not a person's address.", param="address")
    return address
