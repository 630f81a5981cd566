"""The storage interface, independent of the database: one attribute of `Store` per subject."""

from functools import partial

import msgspec

from heliograph.domain.operations.erasure import NameOf, erased_name
from heliograph.inbound.store.inbound_mail import Received
from heliograph.inbound.store.inbound_texts import ReceivedTexts
from heliograph.inbound.store.opt_outs import OptOuts
from heliograph.inbound.store.reports import Reports
from heliograph.runtime.clock import Clock
from heliograph.storage.attachments import Attachments
from heliograph.storage.attempt_limiter import Tries
from heliograph.storage.audit import Audit
from heliograph.storage.batches import Batches
from heliograph.storage.carrier_stats import CarrierUse
from heliograph.storage.circuits import Circuits
from heliograph.storage.dead_letters import DeadLetters
from heliograph.storage.decisions import Decisions
from heliograph.storage.delays import Delays
from heliograph.storage.domain_checks import DomainChecks
from heliograph.storage.engine.database import Database, StoreUnavailable, TooManyChanges
from heliograph.storage.engine.local_files import Blobs
from heliograph.storage.engine.s3 import Objects
from heliograph.storage.engine.wakeups import Hints
from heliograph.storage.erase import Erasures
from heliograph.storage.events import Events
from heliograph.storage.expiry import Expiry
from heliograph.storage.export import Exports
from heliograph.storage.imports import Imports
from heliograph.storage.inbox import Inbox
from heliograph.storage.leases import Leases
from heliograph.storage.ledger import Ledger
from heliograph.storage.maintenance import Upkeep
from heliograph.storage.master_secret import SecretStore
from heliograph.storage.messages import Messages
from heliograph.storage.notices import Notices
from heliograph.storage.outbox import Outbox
from heliograph.storage.page_versions import Pulses
from heliograph.storage.passkeys import Passkeys
from heliograph.storage.people import People
from heliograph.storage.reputation import Reputations
from heliograph.storage.requests import Requests
from heliograph.storage.search.index import Grams
from heliograph.storage.sessions import Sessions
from heliograph.storage.setup import SetupStore
from heliograph.storage.stats import Figures
from heliograph.storage.suppressions import Suppressions
from heliograph.storage.team_clocks import TeamClocks
from heliograph.storage.verifications import Verifications
from heliograph.templates.store import Versions
from heliograph.webhooks.store import Deliveries

__all__ = ["Store", "StoreUnavailable", "TooManyChanges", "make_store"]

UNKEYED = partial(erased_name, b"")


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """Access to all stored data, by subject."""

    owner: str  # name of this process, stable over restarts and unique among live processes
    clock: Clock
    database: Database
    hints: Hints
    blobs: Blobs
    attachments: Attachments
    setup: SetupStore
    versions: Versions
    messages: Messages
    batches: Batches
    verifications: Verifications
    outbox: Outbox
    dead_letters: DeadLetters
    carrier_use: CarrierUse
    reports: Reports
    delays: Delays
    expiry: Expiry
    received: Received
    circuits: Circuits
    domain_checks: DomainChecks
    decisions: Decisions
    reputation: Reputations
    events: Events
    deliveries: Deliveries
    suppressions: Suppressions
    opt_outs: OptOuts
    team_clocks: TeamClocks
    texts: ReceivedTexts
    imports: Imports
    erasures: Erasures
    exports: Exports
    ledger: Ledger
    requests: Requests
    inbox: Inbox
    figures: Figures
    grams: Grams
    pulses: Pulses
    people: People
    sessions: Sessions
    passkeys: Passkeys
    tries: Tries
    notices: Notices
    audit: Audit
    secret: SecretStore
    upkeep: Upkeep

    async def refresh(self) -> None:
        """Load changes made by other processes."""
        for part in (self.setup, self.circuits, self.reputation):
            await part.refresh()

    async def listen(self) -> None:
        """Receive wakeups from other processes, until cancelled."""
        await self.database.listen()

    async def close(self) -> None:
        await self.database.close()


def make_store(
    database: Database,
    blobs: Blobs,
    clock: Clock,
    owner: str,
    name_of: NameOf = UNKEYED,
    *,
    blobs_in_database: bool = False,
    objects: Objects | None = None,
) -> Store:
    """Return a store on this database. `owner`: name of this process."""
    setup, leases = SetupStore(database, clock), Leases(clock)
    attachments = Attachments(
        database,
        clock,
        blobs,
        lambda: setup.current.platform.paused,
        in_database=blobs_in_database,
        objects=objects,
    )
    return Store(
        owner=owner,
        clock=clock,
        database=database,
        hints=database.hints,
        blobs=blobs,
        attachments=attachments,
        setup=setup,
        versions=Versions(database),
        messages=Messages(database, clock, setup.publisher, name_of, leases),
        batches=Batches(database),
        verifications=Verifications(database, clock, setup.publisher, leases),
        outbox=Outbox(database, clock, owner, leases, setup),
        dead_letters=DeadLetters(database, setup),
        carrier_use=CarrierUse(database),
        reports=Reports(database, clock, setup.publisher),
        delays=Delays(database, clock, setup.publisher),
        expiry=Expiry(database, clock, setup.publisher),
        received=Received(database, clock, attachments, setup.publisher),
        circuits=Circuits(database),
        domain_checks=DomainChecks(database),
        decisions=Decisions(database, clock),
        reputation=Reputations(database, clock, setup),
        events=Events(database),
        deliveries=Deliveries(database, clock, owner, leases, setup),
        suppressions=Suppressions(database, clock, setup.publisher, name_of),
        opt_outs=OptOuts(database, clock, setup.publisher, name_of),
        team_clocks=TeamClocks(database, clock, setup),
        texts=ReceivedTexts(database, clock, setup, name_of),
        imports=Imports(database, clock, setup.publisher),
        erasures=Erasures(database, setup.publisher),
        exports=Exports(database),
        ledger=Ledger(database),
        requests=Requests(database, clock, owner),
        inbox=Inbox(database, clock, attachments),
        figures=Figures(database, clock),
        grams=Grams(database, clock),
        pulses=Pulses(database, clock),
        people=People(database, clock),
        sessions=Sessions(database, clock),
        passkeys=Passkeys(database, clock),
        tries=Tries(database),
        notices=Notices(database, clock),
        audit=Audit(database),
        secret=SecretStore(database, setup),
        upkeep=Upkeep(database, clock, leases, setup),
    )
