"""The storage interface, independent of the database: one attribute of `Store` per subject."""

from functools import partial

import msgspec

from heliograph.domain.operations.erasure import EntryName, erased_entry
from heliograph.inbound.store.aggregate_reports import AggregateReportStore
from heliograph.inbound.store.inbound_mail import InboundMailStore
from heliograph.inbound.store.inbound_texts import InboundTextStore
from heliograph.inbound.store.opt_outs import OptOutStore
from heliograph.inbound.store.reports import ReportStore
from heliograph.runtime.clock import Clock
from heliograph.storage.approvals import Approvals
from heliograph.storage.attachments import Attachments
from heliograph.storage.attempt_limiter import AttemptLimiter
from heliograph.storage.audit import Audit
from heliograph.storage.batches import Batches
from heliograph.storage.body_files import Contents
from heliograph.storage.carrier_stats import CarrierStats
from heliograph.storage.circuits import Circuits
from heliograph.storage.complaint_rates import ComplaintRates
from heliograph.storage.dead_letters import DeadLetters
from heliograph.storage.decisions import Decisions
from heliograph.storage.delays import Delays
from heliograph.storage.domain_checks import DomainChecks
from heliograph.storage.engine.database import Database, StoreUnavailable, TooManyChanges
from heliograph.storage.engine.local_files import LocalFiles
from heliograph.storage.engine.s3 import ObjectStore
from heliograph.storage.engine.wakeups import Wakeups
from heliograph.storage.erase import Erasures
from heliograph.storage.events import Events
from heliograph.storage.expiry import Expiry
from heliograph.storage.export import Exports
from heliograph.storage.imports import Imports
from heliograph.storage.inbox import Inbox
from heliograph.storage.leases import Leases
from heliograph.storage.ledger import Ledger
from heliograph.storage.maintenance import Maintenance
from heliograph.storage.master_secret import SecretStore
from heliograph.storage.messages import Messages
from heliograph.storage.notices import Notices
from heliograph.storage.outbox import Outbox
from heliograph.storage.page_versions import PageVersions
from heliograph.storage.passkeys import Passkeys
from heliograph.storage.people import People
from heliograph.storage.portals import Portals
from heliograph.storage.provider_states import ProviderStates
from heliograph.storage.reputation import Reputations
from heliograph.storage.requests import Requests
from heliograph.storage.search.index import SearchIndex
from heliograph.storage.sessions import Sessions
from heliograph.storage.setup import SetupStore
from heliograph.storage.stats import Stats
from heliograph.storage.suppressions import Suppressions
from heliograph.storage.team_clocks import TeamClocks
from heliograph.storage.team_deletion import TeamDeletion
from heliograph.storage.unsubscribes import UnsubscribeStore
from heliograph.storage.verifications import Verifications
from heliograph.templates.store import VersionReader
from heliograph.webhooks.store import DeliveryStore

__all__ = ["Store", "StoreUnavailable", "TooManyChanges", "make_store"]

erased_name_without_key = partial(erased_entry, b"")


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """Access to all stored data, by subject."""

    cell: str  # name of the cell; empty outside cells
    owner: str  # name of this process, stable over restarts and unique among live processes
    clock: Clock
    database: Database
    wakeups: Wakeups
    local_files: LocalFiles
    attachments: Attachments
    contents: Contents
    setup: SetupStore
    versions: VersionReader
    messages: Messages
    batches: Batches
    verifications: Verifications
    outbox: Outbox
    dead_letters: DeadLetters
    carrier_stats: CarrierStats
    reports: ReportStore
    delays: Delays
    expiry: Expiry
    approvals: Approvals
    inbound_mail: InboundMailStore
    aggregate_reports: AggregateReportStore
    circuits: Circuits
    provider_states: ProviderStates
    domain_checks: DomainChecks
    decisions: Decisions
    reputations: Reputations
    events: Events
    deliveries: DeliveryStore
    suppressions: Suppressions
    opt_outs: OptOutStore
    unsubscribes: UnsubscribeStore
    complaint_rates: ComplaintRates
    team_clocks: TeamClocks
    team_deletion: TeamDeletion
    inbound_texts: InboundTextStore
    imports: Imports
    erasures: Erasures
    exports: Exports
    ledger: Ledger
    requests: Requests
    inbox: Inbox
    stats: Stats
    search_index: SearchIndex
    page_versions: PageVersions
    people: People
    sessions: Sessions
    passkeys: Passkeys
    portals: Portals
    attempt_limiter: AttemptLimiter
    notices: Notices
    audit: Audit
    secret_store: SecretStore
    maintenance: Maintenance

    async def refresh(self) -> None:
        """Reload setup, circuits and reputations, which other processes may have changed."""
        for cached in (self.setup, self.circuits, self.reputations):
            await cached.refresh()

    async def listen(self) -> None:
        """Receive wakeups from other processes, until cancelled."""
        await self.database.listen()

    async def close(self) -> None:
        await self.database.close()


def make_store(
    database: Database,
    local_files: LocalFiles,
    clock: Clock,
    owner: str,
    erased_name_of: EntryName = erased_name_without_key,
    *,
    files_in_database: bool = False,
    objects: ObjectStore | None = None,
    body_files_above: int = 0,
    cell: str = "",
) -> Store:
    """Return a store on this database. `owner`: name of this process, under which it claims work."""
    setup, leases = SetupStore(database, clock), Leases(clock)
    attachments = Attachments(
        database,
        clock,
        local_files,
        lambda: setup.current.platform.paused,
        in_database=files_in_database,
        objects=objects,
    )
    contents = Contents(database, attachments, body_files_above)
    return Store(
        cell=cell,
        owner=owner,
        clock=clock,
        database=database,
        wakeups=database.wakeups,
        local_files=local_files,
        attachments=attachments,
        contents=contents,
        setup=setup,
        versions=VersionReader(database),
        messages=Messages(database, clock, setup.publisher, erased_name_of, leases, contents),
        batches=Batches(database),
        verifications=Verifications(database, clock, setup.publisher, leases),
        outbox=Outbox(database, clock, owner, leases, setup),
        dead_letters=DeadLetters(database, setup),
        carrier_stats=CarrierStats(database),
        reports=ReportStore(database, clock, setup.publisher),
        delays=Delays(database, clock, setup.publisher),
        expiry=Expiry(database, clock, setup.publisher),
        approvals=Approvals(database, clock, setup.publisher),
        inbound_mail=InboundMailStore(database, clock, attachments, setup.publisher),
        aggregate_reports=AggregateReportStore(database, clock),
        circuits=Circuits(database),
        provider_states=ProviderStates(database, clock, owner),
        domain_checks=DomainChecks(database),
        decisions=Decisions(database, clock),
        reputations=Reputations(database, clock, setup),
        events=Events(database),
        deliveries=DeliveryStore(database, clock, owner, leases, setup),
        suppressions=Suppressions(database, clock, setup.publisher, erased_name_of),
        opt_outs=OptOutStore(database, clock, setup.publisher, erased_name_of),
        unsubscribes=UnsubscribeStore(database, clock, setup.publisher, erased_name_of),
        complaint_rates=ComplaintRates(database, clock),
        team_clocks=TeamClocks(database, clock, setup),
        team_deletion=TeamDeletion(database, clock, setup),
        inbound_texts=InboundTextStore(database, clock, setup, erased_name_of),
        imports=Imports(database, clock, setup.publisher),
        erasures=Erasures(database, setup.publisher, contents),
        exports=Exports(database, contents),
        ledger=Ledger(database),
        requests=Requests(database, clock, owner),
        inbox=Inbox(database, clock, attachments, contents),
        stats=Stats(database, clock),
        search_index=SearchIndex(database, clock),
        page_versions=PageVersions(database, clock),
        people=People(database, clock),
        sessions=Sessions(database, clock),
        passkeys=Passkeys(database, clock),
        portals=Portals(database, clock),
        attempt_limiter=AttemptLimiter(database),
        notices=Notices(database, clock),
        audit=Audit(database),
        secret_store=SecretStore(database, setup),
        maintenance=Maintenance(database, clock, leases, setup),
    )
