"""Applies a whole setup file as one change with one audit entry."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.keys import ENTROPY_BYTES, make_token
from heliograph.domain.setup.plan import Plan, plan
from heliograph.domain.setup.secrets import Vault
from heliograph.domain.setup.setup_file import SetupError, SetupFile
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.setup import NewSuppression, NewTeam, SetupChange
from heliograph.storage.store import Store
from heliograph.webhooks.policy.webhook import MakeKeyPair

AUDIT_DETAIL_MAX = 1000  # longest detail of the audit entry, in characters
ADDRESS_LINE_PREFIXES = ("recipient ", "suppression ")  # prefixes of plan lines that contain an address


async def preview(
    store: Store,
    file: SetupFile,
    *,
    vault: Vault,
    make_secret: Callable[[], str],
    make_pair: MakeKeyPair = lambda: (b"", ""),
) -> Plan:
    """Return the changes that applying the setup file would make now. Writes nothing and generates no webhook keys."""
    current, suppressed = store.setup.current, await _existing_suppressions(store, file)
    next_ref = 1 + max(current.teams_by_ref, default=0)
    planned = _make_plan(store, file, current, next_ref, suppressed, vault, make_secret, make_pair)
    with _at_key_path(file):
        await store.setup.check_currencies(planned.rows)
    return planned


async def apply(
    store: Store, actor: Actor, file: SetupFile, *, vault: Vault, make_secret: Callable[[], str], make_pair: MakeKeyPair
) -> Plan:
    """Apply a setup file: plan the changes against the current setup, write them, and return the plan.

    `make_secret` and `make_pair` create the secret and key pair of a new webhook.
    """
    clock, suppressed = store.clock, await _existing_suppressions(store, file)
    key_pairs = await _generate_pairs(store, file, vault, make_secret, make_pair)
    plans: list[Plan] = []

    def build_change(current: Setup, next_ref: int) -> SetupChange:
        remaining_pairs = iter(key_pairs)
        new_plan = _make_plan(
            store,
            file,
            current,
            next_ref,
            suppressed,
            vault,
            make_secret,
            lambda: next(remaining_pairs, None) or make_pair(),
        )
        plans.append(new_plan)
        entry = actor.audit_entry(
            clock.now(), "setup.apply", file.name, _audit_detail(new_plan.changed), team=_single_team(new_plan, current)
        )
        return SetupChange(
            rows=new_plan.rows,
            new_teams=[NewTeam(ref, credit) for ref, credit in new_plan.new_teams],
            suppressions=[
                NewSuppression(ref, address.normal, address.original, reason)
                for ref, address, reason in new_plan.suppressions
            ],
            audit=entry,
        )

    with _at_key_path(file):
        await store.setup.change(build_change)
    return plans[-1]  # the store calls `build_change` again after a conflict


@contextmanager
def _at_key_path(file: SetupFile) -> Iterator[None]:
    """Report a team's invalid field as a problem of the file."""
    try:
        yield
    except InvalidRequest as refusal:
        team = (refusal.details or {}).get("team")
        position = next((i for i, fields in enumerate(file.teams) if fields["id"] == team), None)
        if position is None:
            raise
        raise SetupError(f"{file.name}: teams[{position}].{refusal.param}: {refusal.message}") from None


async def _generate_pairs(
    store: Store, file: SetupFile, vault: Vault, make_secret: Callable[[], str], make_pair: MakeKeyPair
) -> list[tuple[bytes, str]]:
    """Generate the key pairs of new webhooks before the transaction, because a transaction blocks other writers."""
    needed = list[None]()

    def count_pair() -> tuple[bytes, str]:
        needed.append(None)
        return b"", ""

    await preview(store, file, vault=vault, make_secret=make_secret, make_pair=count_pair)
    return await asyncio.to_thread(lambda: [make_pair() for _ in needed]) if needed else []


def _make_plan(
    store: Store,
    file: SetupFile,
    current: Setup,
    next_ref: int,
    suppressed: set[tuple[int, str]],
    vault: Vault,
    make_secret: Callable[[], str],
    make_pair: MakeKeyPair,
) -> Plan:
    return plan(
        file,
        current,
        next_ref,
        make_token=lambda: make_token(store.clock.random_bytes(ENTROPY_BYTES), store.cell),
        new_id=store.clock.new_id,
        vault=vault,
        suppressed=suppressed,
        make_secret=make_secret,
        make_pair=make_pair,
        now=store.clock.now(),
    )


async def _existing_suppressions(store: Store, file: SetupFile) -> set[tuple[int, str]]:
    """Return the suppressions in the file that are already stored, as (team ref, address)."""
    existing = set()
    for team_fields in file.teams:
        if team := store.setup.current.teams.get(team_fields["id"]):
            for fields in team_fields.get("suppressions", []):
                team_address = (team.record.ref, fields["email"].normal)
                if await store.suppressions.get(*team_address):
                    existing.add(team_address)
    return existing


def _single_team(applied: Plan, current: Setup) -> str | None:
    """Return the id of the team to which the audit entry belongs: the only team that the file changes; else None."""
    teams_by_ref = current.teams_by_ref  # new teams are missing here, but have rows in `applied`
    teams = {row.team for row in applied.rows}
    teams |= {teams_by_ref[ref].record.id for ref, _, _ in applied.suppressions if ref in teams_by_ref}
    return teams.pop() if len(teams) == 1 else None


def _audit_detail(changed: Sequence[str]) -> str:
    """Return the changes as one line, without addresses.

    An audit entry of several teams is not searched when an address is erased, so it must not contain addresses.
    """
    shown_lines = [line for line in changed if not line.startswith(ADDRESS_LINE_PREFIXES)]
    if hidden := len(changed) - len(shown_lines):
        shown_lines.append(f"recipients and suppressions: {hidden}")
    text = "; ".join(shown_lines)
    return text if len(text) <= AUDIT_DETAIL_MAX else f"{len(changed)} changes: {text[:AUDIT_DETAIL_MAX]}…"
