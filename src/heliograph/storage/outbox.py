"""The outbox: due work, claimed in batches under a lease, fairly over teams."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.clock import Clock
from heliograph.rules.limits import ALONE_AGAIN_MS, CLAIMS_MAX, DEATHS_MAX
from heliograph.rules.outcome import DueReport
from heliograph.rules.setup.records import Channel
from heliograph.storage import outcomes, verifications
from heliograph.storage.engine.batch import Batch
from heliograph.storage.engine.database import Database, Tx, note
from heliograph.storage.engine.probe import Probe
from heliograph.storage.leases import Leases
from heliograph.storage.outcomes import Change, HeldClaim
from heliograph.storage.queues import DEPTH_MOST, queues
from heliograph.storage.setup import SetupStore


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One recipient of one message (or one report that became due), ours until the lease ends."""

    key: int
    epoch: int
    team: int
    message: int
    position: int
    message_id: str
    channel: Channel
    sandbox: bool
    country: str | None
    address: str
    given: str  # the address as the caller wrote it
    content: bytes
    reports: tuple[DueReport, ...]  # not empty: apply the first report, keep the rest for later
    first_at: int
    attempt: int
    deferrals: dict[str, int]
    uncertain: str | None  # the carrier that may have sent it
    absent_at: int | None = None  # when the recipient's domain was first said not to exist
    alone: bool = False  # nothing else is in its worker's hands

    @property
    def held(self) -> HeldClaim:
        return HeldClaim(self.key, self.epoch)


class LaneDepth(msgspec.Struct, frozen=True):
    lane: str
    waiting: int
    due_at: int  # when the oldest was due


_deferrals = msgspec.json.Decoder(dict[str, int])
_reports = msgspec.json.Decoder(tuple[DueReport, ...])


async def claim(tx: Tx, owner: str, lane: str, most: int, now: int, leases: Leases) -> list[Claim]:
    teams = await _due_teams(tx, lane, now)
    if not teams:
        return []
    lease_until = await leases.until(tx)
    if leases.off():
        return []
    # Every team with due work gets the same share of the batch: none starves another (P9).
    # What small teams leave over goes to those that filled their share, so a short batch means an empty lane.
    turn = now % len(teams)
    teams = teams[turn:] + teams[:turn]
    rows: list[Any] = []
    while teams and len(rows) < most:
        teams = teams[: most - len(rows)]
        share = (most - len(rows)) // len(teams)
        got = await tx.run(
            "claim",
            teams=[(team,) for team in teams],
            lane=lane,
            now=now,
            share=share,
            claims=CLAIMS_MAX,
            owner=owner,
            lease_until=lease_until,
        )
        rows += got
        taken = Counter(row[2] for row in got)
        teams = [team for team in teams if taken[team] == share]
    if len(rows) < most:
        await _due_teams(tx, lane, now)
    return await _read(tx, rows)


async def _due_teams(tx: Tx, lane: str, now: int) -> list[int]:
    """Those with due work; when the next of the others' is due is noted."""
    rows = await tx.run("waiting_teams", lane=lane)
    if later := [due_at - now for _, due_at in rows if due_at > now]:
        note(tx, lane, min(later))
    return [team for team, due_at in rows if due_at <= now]


async def claim_suspect(tx: Tx, owner: str, now: int, leases: Leases) -> list[Claim]:
    """One message whose workers died with it, if any is due: to be handed over while nothing else is (P14)."""
    lease_until = await leases.until(tx)
    if leases.off():
        return []
    given = {"deaths": DEATHS_MAX, "again": ALONE_AGAIN_MS, "now": now}
    rows = await tx.run("claim_suspect", owner=owner, lease_until=lease_until, **given)
    return await _read(tx, rows, alone=True)


async def _read(tx: Tx, rows: Sequence[Any], *, alone: bool = False) -> list[Claim]:
    if not rows:
        return []
    places = {
        (place[0], place[1]): place
        for place in await tx.run("claimed_recipients", places=list({(row[3], row[4]) for row in rows}))
    }
    messages = [(message,) for message in {row[3] for row in rows if row[5] is None}]
    contents: dict[int, bytes] = {}
    if messages:
        contents = {message: body.encode() for message, body in await tx.run("contents", messages=messages)}
    claims = []
    for key, epoch, team, message, position, reports, first_at, attempt, deferrals, uncertain, absent_at in rows:
        _, _, address, given, id_, channel, sandbox, country = places[message, position]
        claims.append(
            Claim(
                key=key,
                epoch=epoch,
                team=team,
                message=message,
                position=position,
                message_id=id_,
                channel=channel,
                sandbox=bool(sandbox),
                country=country,
                address=address,
                given=given,
                content=contents.get(message, b"{}"),
                reports=_reports.decode(reports) if reports else (),
                first_at=first_at,
                attempt=attempt,
                deferrals=_deferrals.decode(deferrals),
                uncertain=uncertain,
                absent_at=absent_at,
                alone=alone,
            )
        )
    return claims


async def heartbeat(tx: Tx, owner: str, claims: Sequence[Claim], leases: Leases) -> None:
    if claims:
        held = [(c.key, c.epoch) for c in claims]
        await tx.run("heartbeat", owner=owner, claims=held, lease_until=await leases.until(tx))


async def release(tx: Tx, owner: str, claims: Sequence[Claim]) -> None:
    if claims:
        held = [(c.key, c.epoch, int(not c.alone), int(c.alone)) for c in claims]
        await tx.run("release_claims", owner=owner, claims=held)


async def join(tx: Tx, owner: str, claims: Sequence[Claim]) -> None:
    """They are no longer alone: if their worker dies now, it says nothing about them."""
    if alone := [(c.key, c.epoch) for c in claims if c.alone]:
        await tx.run("join_others", owner=owner, claims=alone)


class Outbox:
    """`owner` is this process's name: stable over its restarts, different from every other live process's."""

    def __init__(self, database: Database, clock: Clock, owner: str, leases: Leases, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._leases = leases
        self._publisher = publisher = setup.publisher
        self._changes: Batch[Change, bool] = Batch(
            database, lambda tx, items: outcomes.record(tx, items, owner=owner, publisher=publisher)
        )
        self.queue = Probe(self.depth)

    async def claim(self, lane: str, most: int) -> list[Claim]:
        now = self._clock.now()
        return await self._database.write(lambda tx: claim(tx, self._owner, lane, most, now, self._leases))

    async def release(self, claims: Sequence[Claim]) -> None:
        await self._database.write(lambda tx: release(tx, self._owner, claims))

    async def suspects(self) -> int:
        """How many messages wait to be tried alone."""
        now = self._clock.now()
        ((count,),) = await self._database.read(lambda tx: tx.run("suspects", deaths=DEATHS_MAX, now=now))
        return int(count)

    async def claim_suspect(self) -> list[Claim]:
        now = self._clock.now()
        return await self._database.write(lambda tx: claim_suspect(tx, self._owner, now, self._leases))

    async def join(self, claims: Sequence[Claim]) -> None:
        """What was claimed to be tried alone is not alone any more."""
        await self._database.write(lambda tx: join(tx, self._owner, claims))

    async def heartbeat(self, claims: Sequence[Claim]) -> None:
        await self._database.write(lambda tx: heartbeat(tx, self._owner, claims, self._leases))

    async def record(self, change: Change) -> bool:
        """False when the claim is no longer ours and nothing was written."""
        return await self._changes.submit(change)

    async def take_back(self) -> None:
        """At start: what a former run of this process had claimed is free again."""
        now, publisher = self._clock.now(), self._publisher

        async def story(tx: Tx) -> None:
            await tx.run("take_back", owner=self._owner)
            await tx.run("take_back_idempotency", owner=self._owner)
            await tx.run("take_back_endpoints", owner=self._owner)
            await verifications.give_up(tx, self._owner, 0, now, publisher)

        await self._database.write(story)

    async def reclaim(self) -> int:
        """Free the claims of the dead, put poison aside; returns how many messages were put aside."""
        now, publisher = self._clock.now(), self._publisher

        async def story(tx: Tx) -> int:
            over = await self._leases.over(tx)
            await tx.run("reclaim", over=over)
            await verifications.give_up(tx, "", over, now, publisher)
            await tx.run("expire_verifications", now=now)
            return await outcomes.quarantine(tx, now=now, publisher=publisher)

        return await self._database.write(story)

    async def depth(self) -> list[LaneDepth]:
        """Of the lanes that are not empty; a team's waiting rows are counted up to DEPTH_MOST."""
        now = self._clock.now()
        found: dict[str, LaneDepth] = {}
        for queue in await self._database.read(lambda tx: queues(tx, now, DEPTH_MOST)):
            before = found.get(queue.lane, LaneDepth(queue.lane, 0, now))
            due_at = min(before.due_at, now if queue.first_due is None else queue.first_due)
            found[queue.lane] = LaneDepth(queue.lane, before.waiting + queue.due + queue.later + queue.working, due_at)
        return list(found.values())
