"""The seam: everything that accept, deliver and the edges may ask of the database, whichever it is.

Writes that many requests make at once go through a `Batch` (group commit); the rest are single stories.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from heliograph.clock import Clock
from heliograph.rules.acceptance import Acceptance, Accepted, Answer
from heliograph.rules.idempotency import Remembered
from heliograph.rules.limits import LEASE_MS
from heliograph.rules.outcome import Report
from heliograph.rules.pricing import Account
from heliograph.rules.setup import Setup
from heliograph.rules.verification import CheckResult
from heliograph.storage import accepts, housekeeping, outbox, outcomes, reads, setup, verifications
from heliograph.storage.batch import Batch
from heliograph.storage.blobs import Blobs
from heliograph.storage.database import Database, StoreUnavailable, Tx
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import Change, Later
from heliograph.storage.reads import Filter, StoredMessage
from heliograph.storage.setup import DomainEvent, NewSuppression, NewTeam, SetupChange
from heliograph.storage.verifications import Check, Finish, Recent, Start

__all__ = [
    "Change",
    "Check",
    "Claim",
    "DomainEvent",
    "Filter",
    "Finish",
    "Later",
    "NewSuppression",
    "NewTeam",
    "Recent",
    "SetupChange",
    "Start",
    "Store",
    "StoreUnavailable",
    "StoredMessage",
]


class Store:
    """`owner` is this process's name: stable over its restarts, different from every other live process's."""

    def __init__(self, database: Database, blobs: Blobs, clock: Clock, owner: str) -> None:
        self.database = database
        self.blobs = blobs
        self.owner = owner
        self._clock = clock
        self._setup = Setup()
        new_id = clock.new_id
        self._accepts: Batch[Acceptance, Answer] = Batch(database, accepts.accept)
        self._changes: Batch[Change, bool] = Batch(
            database, lambda tx, items: outcomes.record(tx, items, owner=owner, new_id=new_id)
        )
        self._starts: Batch[Start, Answer | None] = Batch(database, verifications.start)
        self._finishes: Batch[Finish, None] = Batch(database, lambda tx, items: verifications.finish(tx, items, new_id))
        self._checks: Batch[Check, CheckResult] = Batch(
            database, lambda tx, items: verifications.check(tx, items, new_id)
        )

    # -- the setup ------------------------------------------------------------------------------------------

    @property
    def setup(self) -> Setup:
        """The newest setup that this process has seen."""
        return self._setup

    async def refresh_setup(self) -> Setup:
        seen = self._setup
        self._setup = await self.database.read(lambda tx: setup.load(tx, seen))
        return self._setup

    async def follow_setup(self, every_s: float = 0.25) -> None:
        """Keep `setup` fresh until cancelled; while the database is away, what was seen last holds."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.refresh_setup()
            except StoreUnavailable:
                continue

    async def change_setup(self, decide: Callable[[Setup, int], SetupChange]) -> SetupChange:
        """`decide` gets the newest setup and the next free team number; what it answers is written at once."""
        now = self._clock.now()
        done = await self.database.write(lambda tx: setup.change(tx, decide, now, self._clock.new_id))
        await self.refresh_setup()
        return done

    # -- accepting ------------------------------------------------------------------------------------------

    async def accept(self, item: Acceptance) -> Answer:
        return await self._accepts.submit(item)

    async def rehearse(self, item: Acceptance) -> Accepted:
        return await self.database.read(lambda tx: accepts.rehearse(tx, item))

    async def find_remembered(self, key_id: str, hash_: str) -> Remembered | None:
        found = await self.database.read(lambda tx: accepts.find_remembered(tx, [(key_id, hash_)]))
        return found.get((key_id, hash_))

    # -- delivering -----------------------------------------------------------------------------------------

    async def claim(self, lane: str, most: int) -> list[Claim]:
        now = self._clock.now()
        return await self.database.write(lambda tx: outbox.claim(tx, self.owner, lane, most, now))

    async def release(self, claims: Sequence[Claim]) -> None:
        await self.database.write(lambda tx: outbox.release(tx, self.owner, claims))

    async def suspects(self) -> int:
        """How many messages wait for a last try on their own."""
        now = self._clock.now()
        ((count,),) = await self.database.read(lambda tx: tx.run("suspects", claims=outbox.LAST_CLAIM, now=now))
        return int(count)

    async def claim_suspect(self) -> list[Claim]:
        now = self._clock.now()
        return await self.database.write(lambda tx: outbox.claim_suspect(tx, self.owner, now))

    async def heartbeat(self, claims: Sequence[Claim]) -> None:
        lease_until = self._clock.now() + LEASE_MS
        await self.database.write(lambda tx: outbox.heartbeat(tx, self.owner, claims, lease_until))

    async def record(self, change: Change) -> bool:
        """False when the claim is no longer ours and nothing was written."""
        return await self._changes.submit(change)

    async def report(
        self, carrier: str, reports: Sequence[tuple[str, Report]], early: bool = False
    ) -> Sequence[bool | Exception]:
        """Reports by the carrier's own ids; False for an id that this carrier was never given.

        With `early`, reports may be faster than the record of their hand-over: they wait a minute for it.
        """
        at, new_id = self._clock.now(), self._clock.new_id
        return await self.database.write(
            lambda tx: outcomes.report_by_carrier(tx, carrier, reports, at=at, new_id=new_id, early=early)
        )

    async def apply_early_reports(self) -> None:
        at, new_id = self._clock.now(), self._clock.new_id
        since = at - outcomes.EARLY_MS
        if await self.database.read(lambda tx: tx.run("any_early_report", since=since)):
            await self.database.write(lambda tx: outcomes.apply_early(tx, since=since, at=at, new_id=new_id))

    # -- verifying ------------------------------------------------------------------------------------------

    async def start_verification(self, item: Start) -> Answer | None:
        return await self._starts.submit(item)

    async def finish_verification(self, item: Finish) -> None:
        await self._finishes.submit(item)

    async def check_verification(self, item: Check) -> CheckResult:
        return await self._checks.submit(item)

    # -- reading --------------------------------------------------------------------------------------------

    async def message(self, team: int, id_: str) -> StoredMessage | None:
        return await self.database.read(lambda tx: reads.message(tx, team, id_))

    async def messages(self, team: int, wanted: Filter) -> list[tuple[str, str]]:
        """Pairs of status and record."""
        return await self.database.read(lambda tx: reads.messages(tx, team, wanted))

    async def verification(self, team: int, id_: str) -> tuple[str, str, str, int, int, str | None, int] | None:
        """id, phone, status, sandbox, expires_at, error_message, wrong"""
        return await self.database.read(lambda tx: reads.verification(tx, team, id_))

    async def verifications(self, team: int, wanted: Filter) -> list[tuple[str, str, str, int, int, str | None, int]]:
        now = self._clock.now()
        return await self.database.read(lambda tx: reads.verifications(tx, team, wanted, now))

    async def account(self, team: int) -> Account:
        return await self.database.read(lambda tx: reads.account(tx, team))

    # -- suppressions ---------------------------------------------------------------------------------------

    async def suppression(self, team: int, address: str) -> tuple[str, str, str | None, str | None, int] | None:
        """email, reason, source_message_id, detail, created_at"""
        return await self.database.read(lambda tx: reads.suppression(tx, team, address))

    async def suppressions(
        self, team: int, after: str | None, limit: int
    ) -> list[tuple[str, str, str | None, str | None, int]]:
        return await self.database.read(lambda tx: reads.suppressions(tx, team, after, limit))

    async def suppress(self, given: NewSuppression) -> bool:
        now, new_id = self._clock.now(), self._clock.new_id
        return bool(await self.database.write(lambda tx: setup.suppress(tx, [given], now, new_id)))

    async def unsuppress(self, team: int, address: str) -> bool:
        now, new_id = self._clock.now(), self._clock.new_id
        return await self.database.write(lambda tx: reads.unsuppress(tx, team, address, now, new_id))

    # -- housekeeping ---------------------------------------------------------------------------------------

    async def take_back(self) -> None:
        """At start: what a former run of this process had claimed is free again."""
        now, new_id = self._clock.now(), self._clock.new_id

        async def story(tx: Tx) -> None:
            await tx.run("take_back", owner=self.owner)
            await tx.run("take_back_idempotency", owner=self.owner)
            await verifications.give_up(tx, self.owner, now, new_id)

        await self.database.write(story)

    async def reclaim(self) -> int:
        """Free the claims of the dead, put poison aside; answers how many messages were put aside."""
        now, new_id = self._clock.now(), self._clock.new_id

        async def story(tx: Tx) -> int:
            await tx.run("reclaim", now=now)
            await verifications.give_up(tx, "", now, new_id)
            await tx.run("expire_verifications", now=now)
            return await outcomes.quarantine(tx, now=now, new_id=new_id)

        return await self.database.write(story)

    async def purge(self) -> None:
        """Put away what retention no longer keeps."""
        now = self._clock.now()
        while await self.database.write(lambda tx: housekeeping.purge(tx, now)):
            continue

    async def sweep_blobs(self) -> None:
        """Remove the attachment files that no message needs, also those whose transaction never came."""
        now = self._clock.now()
        files = await asyncio.to_thread(self.blobs.old, now)
        for start in range(0, len(files), housekeeping.PORTION):
            some = files[start : start + housekeeping.PORTION]
            for hash_ in await self.database.read(partial(housekeeping.unused, hashes=some)):
                await asyncio.to_thread(self.blobs.drop, hash_, now)

    async def depth(self) -> list[tuple[str, int, int]]:
        """Lane, rows waiting, when the oldest was due."""
        return await self.database.read(lambda tx: tx.run("outbox_depth"))

    async def ping(self) -> None:
        """Raises StoreUnavailable when the database cannot be read."""
        await self.database.read(lambda tx: tx.run("setup_version"))

    async def close(self) -> None:
        await self.database.close()
