"""The seam: everything that accept, deliver and the edges may ask of the database, whichever it is.

Writes that many requests make at once go through a `Batch` (group commit); the rest are single stories.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.clock import Clock
from heliograph.rules.acceptance import Acceptance, Accepted, Answer
from heliograph.rules.erasure import erased_name
from heliograph.rules.event import Told
from heliograph.rules.idempotency import Remembered
from heliograph.rules.limits import DEATHS_MAX
from heliograph.rules.outcome import Report
from heliograph.rules.pricing import Account
from heliograph.rules.reputation import WINDOW_MS, WINDOW_SENDS, Counts, changed, is_paused
from heliograph.rules.setup.records import Reputation, Webhook
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.rules.verification import CheckResult
from heliograph.storage import (
    accepts,
    deliveries,
    events,
    housekeeping,
    imports,
    outbox,
    outcomes,
    queues,
    reads,
    restored,
    setup,
    verifications,
)
from heliograph.storage.audit import AuditEntry
from heliograph.storage.deliveries import Due, Lease, NoSuchEvents, NotOurs, Replay, StoredAttempt, StoredDelivery, Try
from heliograph.storage.engine.batch import Batch
from heliograph.storage.engine.blobs import Blobs
from heliograph.storage.engine.database import Database, StoreUnavailable, Tx
from heliograph.storage.engine.probe import Probe
from heliograph.storage.events import Event, Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import Change, Later
from heliograph.storage.queues import Place, Retried
from heliograph.storage.reads import Filter, StoredMessage
from heliograph.storage.requests import RefusedRequest, RequestLog
from heliograph.storage.setup import DomainEvent, NewSuppression, NewTeam, SetupChange
from heliograph.storage.verifications import Check, Finish, Recent, Start

__all__ = [
    "Change",
    "Check",
    "Claim",
    "DomainEvent",
    "Due",
    "Filter",
    "Finish",
    "Later",
    "Lease",
    "NewSuppression",
    "NewTeam",
    "NoSuchEvents",
    "NotOurs",
    "Recent",
    "RefusedRequest",
    "RequestLog",
    "SetupChange",
    "Start",
    "Store",
    "StoreUnavailable",
    "StoredAttempt",
    "StoredDelivery",
    "StoredMessage",
    "Try",
]

SPENT_FRESH_MS = 30_000  # a process that told nothing for so long is gone


class Store:
    """`owner` is this process's name: stable over its restarts, different from every other live process's."""

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        clock: Clock,
        owner: str,
        erasure_key: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self.database = database
        self.blobs = blobs
        self.owner = owner
        self._erasure_key = erasure_key  # asked for when the first hash is made
        self._clock = clock
        self._leases = leases = Leases(clock)
        self._setup = Setup()
        self.told = asyncio.Event()  # a hint: deliveries may have been written in this process
        self.importing = asyncio.Event()  # a hint: an import was begun in this process
        self._publisher = publisher = Publisher(clock.new_id, self._subscribers)
        self.can_commit = Probe(self.commit_something)
        self.queue = Probe(self.depth)
        self._accepts: Batch[Acceptance, Answer] = Batch(
            database, lambda tx, items: accepts.accept(tx, items, publisher, self.name_of, leases)
        )
        self._changes: Batch[Change, bool] = Batch(
            database, lambda tx, items: outcomes.record(tx, items, owner=owner, publisher=publisher)
        )
        self._starts: Batch[Start, Answer | None] = Batch(
            database, lambda tx, items: verifications.start(tx, items, publisher, leases)
        )
        self._finishes: Batch[Finish, None] = Batch(
            database, lambda tx, items: verifications.finish(tx, items, publisher)
        )
        self._checks: Batch[Check, CheckResult] = Batch(
            database, lambda tx, items: verifications.check(tx, items, publisher)
        )
        self._tries: Batch[Try, int | None] = Batch(database, lambda tx, items: deliveries.record(tx, items, owner))

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
        done = await self.database.write(lambda tx: setup.change(tx, decide, now, self._publisher))
        await self.refresh_setup()
        self.told.set()
        return done

    def _subscribers(self, team: int, type_: str) -> list[str]:
        return [hook.id for hook in self._setup.webhooks.get(team, ()) if hook.hears(type_)]

    # -- accepting ------------------------------------------------------------------------------------------

    async def accept(self, item: Acceptance) -> Answer:
        return await self._accepts.submit(item)

    async def rehearse(self, item: Acceptance) -> Accepted:
        return await self.database.read(lambda tx: accepts.rehearse(tx, item, self.name_of))

    async def find_remembered(self, key_id: str, hash_: str) -> Remembered | None:
        found = await self.database.read(lambda tx: accepts.find_remembered(tx, [(key_id, hash_)], self._leases))
        return found.get((key_id, hash_))

    async def exchange_spent(self, spent: dict[str, int]) -> list[tuple[str, str, int]]:
        """Tell what this process has let through since its start, by key; answers process, key and the same of those
        that live.
        """
        now = self._clock.now()
        rows = [(self.owner, key, count, now) for key, count in [("", 0), *spent.items()]]

        async def story(tx: Tx) -> list[tuple[str, str, int]]:
            await tx.run("tell_spent", spent=rows)
            return [tuple(row) for row in await tx.run("hear_spent", process=self.owner, since=now - SPENT_FRESH_MS)]

        return await self.database.write(story)

    # -- delivering -----------------------------------------------------------------------------------------

    async def claim(self, lane: str, most: int) -> list[Claim]:
        now = self._clock.now()
        return await self.database.write(lambda tx: outbox.claim(tx, self.owner, lane, most, now, self._leases))

    async def release(self, claims: Sequence[Claim]) -> None:
        await self.database.write(lambda tx: outbox.release(tx, self.owner, claims))

    async def suspects(self) -> int:
        """How many messages wait to be tried alone."""
        now = self._clock.now()
        ((count,),) = await self.database.read(lambda tx: tx.run("suspects", deaths=DEATHS_MAX, now=now))
        return int(count)

    async def claim_suspect(self) -> list[Claim]:
        now = self._clock.now()
        return await self.database.write(lambda tx: outbox.claim_suspect(tx, self.owner, now, self._leases))

    async def join_others(self, claims: Sequence[Claim]) -> None:
        """What was claimed to be tried alone is not alone any more."""
        await self.database.write(lambda tx: outbox.join(tx, self.owner, claims))

    async def heartbeat(self, claims: Sequence[Claim]) -> None:
        await self.database.write(lambda tx: outbox.heartbeat(tx, self.owner, claims, self._leases))

    async def record(self, change: Change) -> bool:
        """False when the claim is no longer ours and nothing was written."""
        recorded = await self._changes.submit(change)
        if self._setup.webhooks:
            self.told.set()
        return recorded

    async def report(
        self, carrier: str, reports: Sequence[tuple[str, Report]], early: bool = False, once: bool = False
    ) -> Sequence[bool | Exception]:
        """Reports by the carrier's own ids; False for an id that this carrier was never given.

        With `early`, reports may be faster than the record of their hand-over: they wait a minute for it. With `once`,
        a report that was told before word for word is not written again.
        """
        at, publisher = self._clock.now(), self._publisher
        return await self.database.write(
            lambda tx: outcomes.report_by_carrier(
                tx, carrier, reports, at=at, publisher=publisher, early=early, once=once
            )
        )

    async def report_returned(self, message_id: str, position: int, report: Report) -> None:
        """A mail came back; it may be faster than the record of its hand-over, and then waits for it."""
        at, publisher = self._clock.now(), self._publisher
        await self.database.write(
            lambda tx: outcomes.report_returned(tx, message_id, position, report, at=at, publisher=publisher)
        )

    async def retry_dead_letters(self, places: Sequence[Place], audit: AuditEntry) -> Retried:
        """Into the queue again, with their prices held anew where credit covers them."""
        low = {ref: team.record.credit_low for ref, team in self._setup.teams_by_ref.items()}
        publisher = self._publisher
        return await self.database.write(lambda tx: queues.retry(tx, places, audit, low=low, publisher=publisher))

    async def apply_early_reports(self) -> None:
        at, publisher = self._clock.now(), self._publisher
        if await self.database.read(lambda tx: outcomes.any_early(tx, at)):
            await self.database.write(lambda tx: outcomes.apply_early(tx, at=at, publisher=publisher))

    # -- verifying ------------------------------------------------------------------------------------------

    async def start_verification(self, item: Start) -> Answer | None:
        return await self._starts.submit(item)

    async def rehearse_verification(self, item: Start) -> None:
        await self.database.read(lambda tx: verifications.rehearse(tx, item))

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

    async def feed(self, team: int, after: str, limit: int) -> list[Told]:
        """Published events after this id, oldest first; one more than the limit, when there are more."""
        before = self._clock.now() - events.SETTLING_MS
        rows = await self.database.read(
            lambda tx: tx.run("feed", team=team, after=after, before=before, limit=limit + 1)
        )
        return [Told(*row) for row in rows]

    # -- webhooks -------------------------------------------------------------------------------------------

    async def due_webhooks(self) -> dict[str, bool]:
        """Those with something to be told now, also disabled ones, and whether another process serves them."""
        now = self._clock.now()
        return await self.database.read(lambda tx: deliveries.due_webhooks(tx, self.owner, now, self._leases))

    async def claim_endpoints(self, webhooks: Sequence[str]) -> list[Lease]:
        return await self.database.write(lambda tx: deliveries.claim(tx, self.owner, webhooks, self._leases))

    async def keep_endpoints(self, leases: Sequence[Lease]) -> set[str]:
        """A heartbeat; answers the webhooks that are still ours."""
        return await self.database.write(lambda tx: deliveries.keep(tx, self.owner, leases, self._leases))

    async def release_endpoint(self, lease: Lease) -> None:
        given = {"webhook": lease.webhook, "epoch": lease.epoch, "owner": self.owner}
        await self.database.write(lambda tx: tx.run("release_endpoint", **given))

    async def due_deliveries(self, webhook: str, limit: int) -> tuple[list[Due], list[Due]]:
        """At most `limit` new ones in order, and as many retries and replays in theirs."""
        now = self._clock.now()
        return await self.database.read(lambda tx: deliveries.due(tx, webhook, limit, now))

    async def told_events(self, dues: Sequence[Due]) -> dict[str, Told]:
        """By their ids."""
        return await self.database.read(lambda tx: deliveries.told(tx, dues))

    async def record_try(self, made: Try) -> int | None:
        """Since when the endpoint has been failing. Raises NotOurs when another process serves it now."""
        return await self._tries.submit(made)

    async def disable_webhook(self, hook: Webhook, reason: str) -> bool:
        """False when it was changed or disabled meanwhile."""
        now, disabled = self._clock.now(), replace(hook, enabled=False, disabled_reason=reason)

        def decide(current: Setup, _: int) -> SetupChange:
            same = current.records.get(("webhook", hook.id)) == hook
            return SetupChange(rows=[to_row("webhook", hook.id, disabled, hook.team)] if same else ())

        async def story(tx: Tx) -> bool:
            done = bool((await setup.change(tx, decide, now, self._publisher)).rows)
            if done:
                await tx.run("forget_failures", webhook=hook.id)  # whoever enables it again begins anew
            return done

        done = await self.database.write(story)
        await self.refresh_setup()
        return done

    async def deliveries(
        self, webhook: str, before: str | None, limit: int, *, failed_only: bool = False
    ) -> list[StoredDelivery]:
        """Newest first, before this event; one more than the limit, when there are more."""
        return await self.database.read(
            lambda tx: deliveries.stored(tx, webhook, before, limit, failed_only=failed_only)
        )

    async def replay(
        self,
        team: int,
        webhook: str,
        *,
        event_ids: Sequence[str] | None = None,
        created_after: int | None = None,
        created_before: int | None = None,
        failed_only: bool = False,
        heard: Callable[[str], bool],
    ) -> int:
        """Tell events anew, with the same ids and bodies: these, or those made between the times, both left out.

        Answers how many, at most REPLAY_MAX. Raises NoSuchEvents, and then tells none.
        """
        now = self._clock.now()
        wanted = Replay(team=team, webhook=webhook, failed_only=failed_only, heard=heard, now=now)
        if event_ids is not None:
            done = await self.database.write(lambda tx: deliveries.replay_ids(tx, wanted, event_ids))
        else:
            span = (
                -1 if created_after is None else created_after,
                now + 1 if created_before is None else created_before,
            )
            after: str | None = ""
            done = 0
            while after is not None and done < deliveries.REPLAY_MAX:
                portion = partial(deliveries.replay_span, wanted=wanted, span=span, after=after, done=done)
                after, done = await self.database.write(portion)
        self.told.set()
        return done

    async def tell_webhook(self, team: int, webhook: str, type_: str, subject: str, told: dict[str, Any]) -> str:
        """Publish an event and tell it to this webhook alone; answers its id."""
        publisher = Publisher(self._clock.new_id, lambda _, __: [webhook])
        event = Event(
            id=self._clock.new_id("evt_"),
            team=team,
            subject=subject,
            type=type_,
            detail=msgspec.json.encode(told).decode(),
            created_at=self._clock.now(),
        )
        await self.database.write(lambda tx: publisher.publish(tx, [event]))
        self.told.set()
        return event.id

    async def drop_webhook(self, webhook: str) -> None:
        """Forget its deliveries."""
        while await self.database.write(lambda tx: deliveries.drop(tx, webhook)):
            continue

    # -- suppressions ---------------------------------------------------------------------------------------

    async def suppression(self, team: int, address: str) -> tuple[str, str, str | None, str | None, int] | None:
        """email, reason, source_message_id, detail, created_at"""
        return await self.database.read(lambda tx: reads.suppression(tx, team, address, self.name_of))

    async def suppressions(
        self, team: int, after: str | None, limit: int
    ) -> list[tuple[str, str, str | None, str | None, int]]:
        return await self.database.read(lambda tx: reads.suppressions(tx, team, after, limit))

    def name_of(self, team: int, address: str) -> str:
        """What an erased address is called on the suppression list."""
        return erased_name(self._erasure_key(), team, address)

    async def suppress(self, given: NewSuppression) -> bool:
        return bool(await self.suppress_all([given]))

    async def suppress_all(self, given: Sequence[NewSuppression]) -> set[tuple[int, str]]:
        """Answers the teams and addresses that were not there before."""
        now, publisher = self._clock.now(), self._publisher
        return await self.database.write(lambda tx: setup.suppress(tx, given, now, publisher))

    async def import_portion(self, id_: str) -> bool:
        """Put an import's next portion on the list; False: there is none, or another process has it in hand."""
        now, publisher = self._clock.now(), self._publisher
        return await self.database.write(lambda tx: imports.do_portion(tx, id_, now, publisher))

    async def stop_import(self, id_: str) -> None:
        now = self._clock.now()
        await self.database.write(lambda tx: tx.run("stop_import", id=id_, now=now))

    async def unsuppress(self, team: int, address: str) -> bool:
        now, publisher = self._clock.now(), self._publisher
        return await self.database.write(lambda tx: reads.unsuppress(tx, team, address, now, publisher, self.name_of))

    # -- reputation -----------------------------------------------------------------------------------------

    async def reputations(self) -> dict[int, Counts]:
        """What the guard judges by, for each team that has sent in the last days."""
        after = self._clock.now() - WINDOW_MS
        rows = await self.database.read(lambda tx: tx.run("newest_reputation", after=after, enough=WINDOW_SENDS))
        return {row[0]: Counts(*row[1:]) for row in rows}

    async def judge_reputations(self) -> list[Reputation]:
        """Warn teams, pause their direct sends, or find them well again; answers what changed."""
        seen = self._setup
        records = changed(seen.teams.values(), await self.reputations(), self._clock.now())
        if not records:
            return []

        def decide(current: Setup, _: int) -> SetupChange:
            rows = []
            for record in records:
                place = ("reputation", record.team)
                # Whoever was judged or resumed meanwhile waits for the next round: these counts are older.
                if current.records.get(place) == seen.records.get(place):
                    rows.append(to_row(*place, record, record.team))
            return SetupChange(rows=rows)

        written = {row.id for row in (await self.change_setup(decide)).rows}
        return [record for record in records if record.team in written]

    async def resume_direct(self, team: str) -> bool:
        """End the pause of a team's direct sends: counting begins anew. False when they are not paused."""
        found = self._setup.teams[team]
        if not is_paused(found):
            return False
        now = self._clock.now()
        resumed = Reputation(team=team, state="ok", since=now, resumed_at=now)
        # First forget: the other way round, old counts could pause it again.
        await self.database.write(lambda tx: tx.run("forget_reputation", team=found.record.ref))
        await self.change_setup(lambda _, __: SetupChange(rows=[to_row("reputation", team, resumed, team)]))
        return True

    # -- housekeeping ---------------------------------------------------------------------------------------

    async def attest(self, seen: Mapping[int, int]) -> tuple[int, int, bool]:
        """The database's name, its new number, and whether it is older than what was seen: then it is paused now."""
        now, publisher = self._clock.now(), self._publisher
        fresh = int.from_bytes(self._clock.entropy(8)) >> 1
        attested = await self.database.write(lambda tx: restored.attest(tx, seen, fresh, now, publisher))
        if attested[2]:
            await self.refresh_setup()
        return attested

    async def check_clock(self) -> None:
        """Hold this process's clock against the one that all share."""
        await self._leases.check(self.database.read, self.database.write)

    async def take_back(self) -> None:
        """At start: what a former run of this process had claimed is free again."""
        now, publisher = self._clock.now(), self._publisher

        async def story(tx: Tx) -> None:
            await tx.run("take_back", owner=self.owner)
            await tx.run("take_back_idempotency", owner=self.owner)
            await tx.run("take_back_endpoints", owner=self.owner)
            await verifications.give_up(tx, self.owner, 0, now, publisher)

        await self.database.write(story)

    async def reclaim(self) -> int:
        """Free the claims of the dead, put poison aside; answers how many messages were put aside."""
        now, publisher = self._clock.now(), self._publisher

        async def story(tx: Tx) -> int:
            over = await self._leases.over(tx)
            await tx.run("reclaim", over=over)
            await verifications.give_up(tx, "", over, now, publisher)
            await tx.run("expire_verifications", now=now)
            return await outcomes.quarantine(tx, now=now, publisher=publisher)

        return await self.database.write(story)

    async def purge(self) -> None:
        """Put away what retention no longer keeps."""
        now = self._clock.now()
        teams = [team.record for team in self._setup.teams.values()]
        await housekeeping.purge(self.database, now, teams)

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

    async def commit_something(self) -> None:
        await self.database.write(lambda tx: tx.run("probe"))

    async def close(self) -> None:
        await self.database.close()
