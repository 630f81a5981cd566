"""Applies a whole setup file as one change with one audit entry."""

import asyncio
from collections.abc import Callable, Sequence

from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.keys import ENTROPY_BYTES, make_token
from heliograph.domain.setup.plan import Plan, plan
from heliograph.domain.setup.secrets import Vault
from heliograph.domain.setup.setup_file import SetupFile
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.setup import NewSuppression, NewTeam, SetupChange
from heliograph.storage.store import Store
from heliograph.webhooks.policy.webhook import MakePair

DETAIL_MAX = 1000  # longest detail of the audit entry, in characters
ADDRESSES = ("recipient ", "suppression ")  # prefixes of plan lines that contain an address


async def preview(
    store: Store,
    file: SetupFile,
    *,
    vault: Vault,
    make_secret: Callable[[], str],
    make_pair: MakePair = lambda: (b"", ""),
) -> Plan:
    """Return the changes that applying the file would make now; writes nothing and generates no webhook keys."""
    current, suppressed = store.setup.current, await _suppressed(store, file)
    next_ref = 1 + max(current.teams_by_ref, default=0)
    return _plan(store, file, current, next_ref, suppressed, vault, make_secret, make_pair)


async def apply(
    store: Store, actor: Actor, file: SetupFile, *, vault: Vault, make_secret: Callable[[], str], make_pair: MakePair
) -> Plan:
    """Plan the change on the newest setup and write it.

    `make_secret` and `make_pair` create the secret and key pair of a new webhook.
    """
    clock, suppressed = store.clock, await _suppressed(store, file)
    pairs = await _pairs(store, file, vault, make_secret, make_pair)
    made: list[Plan] = []

    def decide(current: Setup, next_ref: int) -> SetupChange:
        ready = iter(pairs)
        done = _plan(
            store, file, current, next_ref, suppressed, vault, make_secret, lambda: next(ready, None) or make_pair()
        )
        made.append(done)
        entry = actor.did(clock.now(), "setup.apply", file.name, _detail(done.changed), team=_only_team(done, current))
        return SetupChange(
            rows=done.rows,
            new_teams=[NewTeam(ref, credit) for ref, credit in done.opened],
            suppressions=[NewSuppression(ref, a.normal, a.given, why) for ref, a, why in done.suppressions],
            audit=entry,
        )

    await store.setup.change(decide)
    return made[-1]  # the store calls `decide` again after a conflict


async def _pairs(
    store: Store, file: SetupFile, vault: Vault, make_secret: Callable[[], str], make_pair: MakePair
) -> list[tuple[bytes, str]]:
    """Generate the key pairs that the plan needs before the transaction, which blocks other writers."""
    needed = list[None]()

    def count() -> tuple[bytes, str]:
        needed.append(None)
        return b"", ""

    await preview(store, file, vault=vault, make_secret=make_secret, make_pair=count)
    return await asyncio.to_thread(lambda: [make_pair() for _ in needed]) if needed else []


def _plan(
    store: Store,
    file: SetupFile,
    current: Setup,
    next_ref: int,
    suppressed: set[tuple[int, str]],
    vault: Vault,
    make_secret: Callable[[], str],
    make_pair: MakePair,
) -> Plan:
    return plan(
        file,
        current,
        next_ref,
        mint=lambda: make_token(store.clock.entropy(ENTROPY_BYTES)),
        new_id=store.clock.new_id,
        vault=vault,
        suppressed=suppressed,
        make_secret=make_secret,
        make_pair=make_pair,
        now=store.clock.now(),
    )


async def _suppressed(store: Store, file: SetupFile) -> set[tuple[int, str]]:
    """Return the file's suppressions that already exist, as (team ref, address)."""
    found = set()
    for own in file.teams:
        if team := store.setup.current.teams.get(own["id"]):
            for given in own.get("suppressions", []):
                at = (team.record.ref, given["email"].normal)
                if await store.suppressions.get(*at):
                    found.add(at)
    return found


def _only_team(done: Plan, current: Setup) -> str | None:
    """Return the team if the file changes exactly one: its own audit log then shows the entry. Else None."""
    known = current.teams_by_ref  # a new team has a row of its own in `done.rows`
    teams = {row.team for row in done.rows}
    teams |= {known[ref].record.id for ref, _, _ in done.suppressions if ref in known}
    return teams.pop() if len(teams) == 1 else None


def _detail(changed: Sequence[str]) -> str:
    """Return the changes in one line without addresses, because erasing an address skips entries of several teams."""
    shown = [line for line in changed if not line.startswith(ADDRESSES)]
    if hidden := len(changed) - len(shown):
        shown.append(f"recipients and suppressions: {hidden}")
    text = "; ".join(shown)
    return text if len(text) <= DETAIL_MAX else f"{len(changed)} changes: {text[:DETAIL_MAX]}…"
