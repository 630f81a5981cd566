"""Who takes turns: API processes with their clients, workers with their carriers, and a world that crashes them.

The world knows what was answered and handed over without asking the code under test; what it asks the database, it
asks in SQL of its own.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any

import apsw
import msgspec

from heliograph.carrier_failover import CarrierFailover
from heliograph.deliver.dispatch import Dispatch
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierReport,
    Deferred,
    DueReport,
    Outcome,
    Refused,
    Report,
)
from heliograph.domain.limits import IDEMPOTENCY_LEASE_MS, LEASE_MS
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending.acceptance import IdempotencyKey
from heliograph.domain.setup.records import CarrierRecord, Channel
from heliograph.domain.setup.snapshot import to_row
from heliograph.domain.verify.verification import CheckResult
from heliograph.storage.dead_letters import DeadLetterKey
from heliograph.storage.outbox import Claim
from heliograph.storage.setup import NewTeam, SetupChange
from heliograph.storage.store import Store
from heliograph.storage.verifications import Start
from tests.proof.turns import Memory, SimClock, Turn, empty_database, make_turning_store
from tests.setup_helpers import SET_UP
from tests.storage.samples import RIGHT, WRONG, check, finish, message, start

CREDIT = 150
CHANNELS: tuple[Channel, ...] = ("email", "sms", "whatsapp")
RECEIPTS = {
    "email": ("delivered", "bounced", "complained", "failed"),
    "sms": ("delivered", "failed", "sent"),
    "whatsapp": ("delivered", "read", "failed"),
}
JUMPS = (  # ms; a history has one of these habits
    (1, 20, 200, 2_000, 15_000),
    (1, 2_000, 30_000, 45_000, 61_000, 80_000),  # around the leases of keys and claims
    (1, 1, 2_000, 2_000, 45_000, 121_000, 601_000),
)
Place = tuple[str, int]  # a message's id, a recipient's position
Acting = Coroutine[Any, Any, None]


class Wish(msgspec.Struct):
    """What a client wants once, however often it has to ask."""

    number: int
    team: int
    channel: str  # "verify" too
    to: tuple[str, ...]
    retry_key: IdempotencyKey | None
    tried: list[str] = []  # ids of its attempts
    answers: list[bytes] = []
    fresh: int = 0  # answers that were not replayed


class Known(msgspec.Struct):
    """A verification whose id a client knows."""

    start: Start
    results: list[tuple[CheckResult, int, bool]] = []  # answer, asked at, whether the code was right


class HandedOver(msgspec.Struct, eq=False):
    accepted: bool = False
    taken: bool = False  # the carrier has it, or may have
    fate: str = "open"  # then recorded, crashed or fenced


class Process:
    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self.store = store
        self.ready = False  # it has taken back what its former run had claimed
        self.tasks: list[Acting] = []
        self.lease: dict[tuple[int, int], int] = {}  # claim → until when it believes to have it
        self.working: list[Claim] = []
        self.open: list[HandedOver] = []
        self.beating = False


class Carriers(CarrierFailover):
    """What one claim's hand-over meets, instead of carriers."""

    def __init__(self, world: "World", process: Process, claim: Claim) -> None:
        self._world, self._process, self._claim = world, process, claim
        self.made: list[HandedOver] = []

    def open_circuits(self) -> dict[str, int]:
        return {}

    async def send(self, carrier: CarrierRecord, message: Any) -> Outcome:
        world, process, claim = self._world, self._process, self._claim
        if claim.was_claimed_before:
            await Dispatch(process.store, self, world.clock).renew_lease(claim)
        world.may_hand_over(process, claim)
        made = HandedOver()
        self.made.append(made)
        process.open.append(made)
        world.handed.setdefault((claim.message_id, claim.position), []).append(made)
        if world.is_deadly(claim):
            world.doomed = process
        await Turn()
        outcome = world.outcome(carrier, claim.channel)
        made.accepted = isinstance(outcome, Accepted)
        made.taken = made.accepted or (isinstance(outcome, Deferred) and outcome.uncertain)
        await Turn()
        return outcome


class World:
    def __init__(self, seed: int, template: apsw.Connection, folder: Path, check: Callable[["World"], None]) -> None:
        self.rng = rng = Random(seed)
        self.clock = SimClock(rng)
        self.database = Memory(template, rng, lambda: check(self))
        self._folder = folder
        self.kind = False  # carriers take everything, at once
        self.doomed: Process | None = None  # it dies of what it hands over
        self.price = 10
        self.wishes: list[Wish] = []
        self.known: list[Known] = []
        self.handed: dict[Place, list[HandedOver]] = {}
        self.accepted: set[Place] = set()  # recorded
        self.retried: set[int] = set()  # messages that an operator put into the queue again
        self.receipts: list[tuple[str, str, str]] = []  # channel, carrier, id
        self.seen: Counter[str] = Counter()
        self._numbers = 0
        # Every seed has its own habits, so that rare things come in crowds.
        self.mix: dict[str, Any] = {
            "crash": rng.choice((0.0, 0.02, 0.08)),
            "turns": rng.choice((0.5, 0.8, 0.95)),
            "jumps": rng.choice(JUMPS),
            "wrong": rng.choice((0.7, 0.95)),
            **{kind: rng.choice((1, 2, 6)) for kind in ("ask", "receipt", "check_code", "work", "keep_house")},
            **{kind: rng.choice((0.2, 2)) for kind in ("top_up", "retry_dead")},
        }
        self.steps = 200
        if rng.random() < 0.1:  # one message in so many kills its worker, until it is put aside
            self.mix |= {"deadly": 3, "turns": 0.8, "jumps": (2_000, 15_000, 30_000), "work": 20, "keep_house": 6}
            self.steps *= 4
        self.processes = [self.born(f"api/{n}") for n in range(2)] + [self.born(f"worker/{n}") for n in range(3)]

    # -- processes ------------------------------------------------------------------------------------------

    def born(self, name: str) -> Process:
        process = Process(name, make_turning_store(self.database, self.clock, name, self._folder))
        self.act(process, self._begin(process))
        return process

    async def _begin(self, process: Process) -> None:
        await process.store.setup.refresh()
        await process.store.outbox.release_own()
        process.ready = True

    def act(self, process: Process, acting: Acting) -> None:
        process.tasks.append(acting)

    def begin(self, process: Process, kinds: Sequence[str]) -> None:
        (kind,) = self.rng.choices(kinds, [self.mix[kind] for kind in kinds])
        self.act(process, getattr(self, kind)(process))

    def crash(self, process: Process | None = None) -> None:
        """Kill -9, and a new start: under the same name, or on another machine. It rather hits those at work."""
        process = process or self.rng.choice([one for one in self.processes if one.open] or self.processes)
        place = self.processes.index(process)
        for task in process.tasks:
            task.close()
        for made in process.open:
            made.fate = "crashed"
            self.seen["crashed between hand-over and record"] += made.taken
        self.seen["crash"] += 1
        name = process.name if self.rng.random() < 0.8 else f"{process.name}+"
        self.processes[place] = self.born(name)

    def take_turn(self, process: Process) -> None:
        place = self.rng.randrange(len(process.tasks))
        try:
            said = process.tasks[place].send(None)
            assert said is None, f"an actor waited for {said!r}"
        except StopIteration:
            del process.tasks[place]
        if self.doomed:
            self.crash(self.doomed)
            self.doomed = None

    # -- clients --------------------------------------------------------------------------------------------

    def wish(self) -> Wish:
        if self.wishes and self.rng.random() < 0.4:
            return self.rng.choice(self.wishes[-6:])
        self._numbers += 1
        number, channel = self._numbers, self.rng.choice((*CHANNELS, "verify"))
        many = self.rng.choice((1, 1, 3)) if channel == "email" else 1
        to = tuple(f"{n}.{number}@example.com" if channel == "email" else f"+1415555{number:04d}" for n in range(many))
        retry_key = IdempotencyKey(f"key {number}", "body") if self.rng.random() < 0.8 else None
        self.wishes.append(
            Wish(number=number, team=self.rng.choice((1, 2)), channel=channel, to=to, retry_key=retry_key)
        )
        return self.wishes[-1]

    async def ask(self, process: Process) -> None:
        wish = self.wish()
        try:
            await (self._verify(process, wish) if wish.channel == "verify" else self._send(process, wish))
        except Refusal as refusal:
            self.seen[refusal.code] += 1

    async def _send(self, process: Process, wish: Wish) -> None:
        item = message(
            self.clock,
            *wish.to,
            team=wish.team,
            channel=wish.channel,
            price=self.price,
            idempotency_key=wish.retry_key,
            country="US",
            says={"to_addresses": wish.to, "cc": [], "bcc": []},
        )
        wish.tried.append(item.id)
        self._answered(wish, await process.store.messages.accept(item))

    async def _verify(self, process: Process, wish: Wish) -> None:
        item = start(
            self.clock,
            owner=process.store.owner,
            team=wish.team,
            phone=wish.to[0],
            price=self.price,
            idempotency_key=wish.retry_key,
        )
        wish.tried.append(item.id)
        replay = await process.store.verifications.start(item)
        if replay is not None:
            self._answered(wish, replay)
            return
        await Turn()
        status = self.rng.choice(("pending", "pending", "pending", "failed"))
        response = f'{{"id":"{item.id}"}}'.encode()
        await process.store.verifications.finish(finish(item, self.clock, status, response))
        # One that was frozen for longer than its lease has lost its key: its client has hung up long ago.
        if self.clock.now() < item.created_at + IDEMPOTENCY_LEASE_MS:
            wish.answers.append(response)
            wish.fresh += 1
            if status == "pending":
                self.known.append(Known(item))

    def _answered(self, wish: Wish, answer: Any) -> None:
        wish.answers.append(answer.body)
        wish.fresh += not answer.replayed
        self.seen["replayed"] += answer.replayed

    async def check_code(self, process: Process) -> None:
        if not self.known:
            return
        known, at = self.rng.choice(self.known[-2:]), self.clock.now()
        right = self.rng.random() > self.mix["wrong"]
        result = await process.store.verifications.check(check(known.start, RIGHT if right else WRONG, at))
        known.results.append((result, at, right))
        self.seen[f"code {result.status}"] += 1

    # -- workers --------------------------------------------------------------------------------------------

    async def work(self, process: Process) -> None:
        await self.claim(process, self.rng.random() < 0.4, self.rng.randint(1, 4))

    async def claim(self, process: Process, suspects: bool, most: int) -> None:
        until = self.clock.now() + LEASE_MS
        lane = self.rng.choice(("email", "phone"))
        claims = await (
            process.store.outbox.claim_poison_candidate() if suspects else process.store.outbox.claim(lane, most)
        )
        if self.rng.random() < 0.1:
            await process.store.outbox.release(claims)
            return
        self.seen["suspect"] += suspects and len(claims)
        for claim in claims:
            process.lease[claim.key, claim.epoch] = until
            self.act(process, self._deliver(process, claim))

    async def _deliver(self, process: Process, claim: Claim) -> None:
        carriers = Carriers(self, process, claim)
        process.working.append(claim)
        done = await Dispatch(process.store, carriers, self.clock).deliver(claim)
        process.working.remove(claim)
        until = process.lease.pop((claim.key, claim.epoch))
        # An earlier worker may have recorded meanwhile that it had sent the message.
        may_lose = claim.was_claimed_before or until <= self.clock.now()
        assert done or may_lose, f"{process.name} could not record {claim.message_id} under its lease"
        self.seen["fenced"] += not done
        for made in carriers.made:
            process.open.remove(made)
            made.fate = "recorded" if done else "fenced"
            if done and made.accepted:
                self.accepted.add((claim.message_id, claim.position))

    def may_hand_over(self, process: Process, claim: Claim) -> None:
        place = (claim.message_id, claim.position)
        if process.lease[claim.key, claim.epoch] <= self.clock.now():
            self.seen["frozen beyond the lease"] += 1
            return
        ((owner, epoch),) = self.database.ask("SELECT owner, epoch FROM outbox WHERE key = ?", claim.key) or [(0, 0)]
        assert (owner, epoch) == (process.name, claim.epoch), f"{process.name} hands over {place}, which {owner} has"
        assert place not in self.accepted, f"{place} is handed over again"

    def is_deadly(self, claim: Claim) -> bool:
        return "deadly" in self.mix and claim.message % self.mix["deadly"] == 0 and not self.kind

    def outcome(self, carrier: CarrierRecord, channel: str) -> Outcome:
        """As carriers answer; what they took gets receipts later, or at once, or never."""
        lot = 0.0 if self.kind else self.rng.random()
        if lot > 0.45:
            if lot > 0.85:
                return Deferred(uncertain=True) if lot > 0.95 else Deferred(unreachable=True)
            if lot > 0.65:
                return Deferred(retry_after_ms=self.rng.choice((None, 0, 5_000)))
            return Refused(bounced=channel == "email" and lot > 0.55)
        self._numbers += 1
        ids = [f"c{self._numbers}.{n}" for n in range(3 if channel == "sms" and lot > 0.3 else 1)]
        self.receipts += [(channel, carrier.id, id_) for id_ in ids]
        if len(ids) > 1:
            return Accepted(parts=tuple(ids))
        reports = [DueReport(500, Report(status="delivered"))] if lot > 0.4 else []
        return Accepted(carrier_id=ids[0], delivered=channel == "email" and lot < 0.1, reports=reports)

    async def receipt(self, process: Process) -> None:
        """True or false, new or repeated, late or early."""
        if not self.receipts:
            return
        channel, carrier, id_ = self.rng.choice(self.receipts[-8:])
        status = self.rng.choice(RECEIPTS[channel])
        suppress = "complaint" if status == "complained" else None
        told = await process.store.reports.store_by_carrier(
            carrier, [CarrierReport(id_, Report(status=status, suppress=suppress))]
        )
        self.seen["receipt" if all(told) else "early receipt"] += 1

    # -- housekeeping and operators -------------------------------------------------------------------------

    async def keep_house(self, process: Process) -> None:
        lot = self.rng.random()
        if lot < 0.4:
            await self.reclaim(process)
        elif lot < 0.6:
            await process.store.reports.apply_early_reports()
        elif lot < 0.7:
            await process.store.maintenance.purge()
        elif not process.beating:
            process.beating = True
            await self._beat(process)
            process.beating = False

    async def reclaim(self, process: Process) -> None:
        self.seen["quarantined"] += await process.store.outbox.reclaim_abandoned()

    async def _beat(self, process: Process) -> None:
        until, claims = self.clock.now() + LEASE_MS, list(process.working)
        await process.store.outbox.renew(claims)
        for claim in claims:
            place = (claim.key, claim.epoch)
            if process.lease.get(place, 0) > self.clock.now():  # else it may have been lost before the beat
                process.lease[place] = until

    async def top_up(self, process: Process) -> None:
        team, amount = self.rng.choice((1, 2)), self.rng.choice((40, 100, -15))
        audit = COMMAND_LINE.audit_entry(at=self.clock.now(), action="credit", subject="credit")
        try:
            await process.store.ledger.adjust_credit(team, amount, None, audit)
        except ValueError:
            self.seen["adjustment refused"] += 1

    async def retry_dead(self, process: Process) -> None:
        """An operator puts what was quarantined into the queue again."""
        dead = self.database.ask(
            'SELECT message, position FROM recipient WHERE detail LIKE \'{"reason":"quarantined"%\''
        )
        if dead:
            audit = COMMAND_LINE.audit_entry(at=self.clock.now(), action="dead_letter.retry", subject="dead letters")
            place = self.rng.choice(dead)
            self.retried.add(place[0])  # also when the process dies with the commit
            await process.store.dead_letters.retry([DeadLetterKey(*place)], audit)
            self.seen["dead letter retried"] += 1


def make_template(folder: Path) -> apsw.Connection:
    """A database with two teams that have some credit, and two carriers a channel."""
    template = empty_database()
    database = Memory(template, Random(0), lambda: None)
    store = make_turning_store(database, SimClock(Random(0)), "setup", folder)
    carriers = [
        CarrierRecord(id=f"{channel}-{n}", channel=channel, kind="simulator", priority=n)
        for channel in CHANNELS
        for n in (1, 2)
    ]
    change = SetupChange(
        rows=[to_row("carrier", carrier.id, carrier, None) for carrier in carriers],
        new_teams=[NewTeam(1, CREDIT), NewTeam(2, CREDIT)],
        audit=SET_UP,
    )
    acting = store.setup.change(lambda _, __: change)
    while True:
        try:
            acting.send(None)
        except StopIteration:
            return database.connection
