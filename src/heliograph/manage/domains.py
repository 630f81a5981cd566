"""Sending domains: their DKIM keys, the DNS records they need, and whether those are there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from heliograph.clock import Clock
from heliograph.rules.address import parse_address
from heliograph.rules.limits import DAY_MS, HOUR_MS
from heliograph.rules.setup.domain_records import (
    Alignment,
    Record,
    Verdict,
    alignment,
    expected,
    next_state,
    ownership_token,
    together,
)
from heliograph.rules.setup.records import DkimKey, Domain
from heliograph.rules.setup.snapshot import PLATFORM_TEAM, Row, Setup, to_row
from heliograph.rules.verp import return_path
from heliograph.storage.setup import DomainEvent, SetupChange
from heliograph.storage.store import Store

ALGORITHMS = ("rsa-sha256", "ed25519-sha256")
RECHECK_MS = 6 * HOUR_MS
RETIRED_MS = 7 * DAY_MS  # old records stay for the mail that is still on its way

MakeKey = Callable[[str], tuple[bytes, str]]  # algorithm → private PEM, TXT value
Ask = Callable[[Sequence[Record]], Awaitable[list[tuple[Record, Verdict]]]]


class NoSuchDomain(Exception):
    """No team has this domain."""


class CannotAdd(Exception):
    """The team cannot have this domain; the message says why and what to do."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    domain: Domain
    records: list[tuple[Record, Verdict]]
    alignment: Alignment


class Domains:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        seal: Callable[[bytes, str], str],
        make_key: MakeKey,
        ask: Ask,
        ownership_key: bytes,
        mail_host: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._seal = seal
        self._make_key = make_key
        self._ask = ask
        self._ownership_key = ownership_key
        self._mail_host = mail_host

    def find(self, name_or_id: str) -> Domain:
        """By id, or by name the one that has it. The platform's own is made when it is first asked for."""
        setup = self._store.setup.current
        found = setup.records.get(("domain", name_or_id)) or setup.domain_named(name_or_id)
        if not isinstance(found, Domain):
            raise NoSuchDomain(f"no team has the domain {name_or_id}")
        return found

    async def add(self, team: str, name: str, brand: str) -> Domain:
        """The team's domain of this name, made when it is new. CannotAdd: another team has it, or the team has many."""
        new = Domain(id=self._clock.new_id("dom_"), team=team, name=name, brand=brand, by_dns=True)

        def decide(setup: Setup, _: int) -> SetupChange:
            own, holder = setup.teams[team], setup.domain_named(name)
            if name in own.domains:
                return SetupChange()
            if holder and holder.verified:
                raise CannotAdd(f"{name} is a verified domain of another team here. Ask the operator if it is yours.")
            if len(own.domains) >= own.record.domains_max:
                raise CannotAdd(
                    f"The team has {len(own.domains)} domains, as many as it may. "
                    "Remove one that you do not use, or ask the operator for more."
                )
            return SetupChange(rows=[to_row("domain", new.id, new, team)])

        await self._store.setup.change(decide)
        return self._store.setup.current.teams[team].domains[name]

    async def records(self, name_or_id: str) -> list[Record]:
        """What to set in DNS; makes the keys when there are none yet."""
        await self.ensure_keys(name_or_id)
        domain = self.find(name_or_id)
        return self._records(domain, [key for key in self._keys(domain) if key.state != "retired"])

    async def ensure_keys(self, name_or_id: str) -> None:
        """Keys for a domain that has none yet; also the domain, when the platform's own sender is on it."""
        if name_or_id == self.platform_name:
            await self._ensure_platform_domain(name_or_id)
        try:
            domain = self.find(name_or_id)
        except NoSuchDomain:
            return
        if not self._keys(domain):
            made = await asyncio.to_thread(self._new_keys, domain, "active")
            await self._store.setup.change(
                lambda now, _: SetupChange(rows=_rows(made) if _keyless(now, domain) else ())
            )

    @property
    def platform_name(self) -> str:
        """The domain of the platform's own sender."""
        sender = parse_address(self._store.setup.current.platform.sender)
        return sender.domain if sender else ""

    async def _ensure_platform_domain(self, name: str) -> None:
        """A domain like any other, unless a team has proved that it is theirs: then that one signs."""

        def decide(setup: Setup, _: int) -> SetupChange:
            holder = setup.domain_named(name)
            if holder and (holder.verified or holder.team == PLATFORM_TEAM):
                return SetupChange()
            new = Domain(
                id=self._clock.new_id("dom_"),
                team=PLATFORM_TEAM,
                name=name,
                brand=setup.platform.brand,
                approved=True,
                by_dns=True,
            )
            return SetupChange(rows=[to_row("domain", new.id, new, None)])

        if decide(self._store.setup.current, 0).rows:  # seldom: the transaction only then
            await self._store.setup.change(decide)

    async def rotate(self, name_or_id: str) -> list[Record]:
        """A second pair of keys, which signs once its records are found; answers the records to set for it."""
        await self.ensure_keys(name_or_id)
        domain = self.find(name_or_id)
        pending = [key for key in self._keys(domain) if key.state == "pending"]
        if not pending:
            pending = await asyncio.to_thread(self._new_keys, domain, "pending")
            await self._store.setup.change(lambda _, __: SetupChange(rows=_rows(pending)))
        return [record for record in self._records(domain, pending) if record.purpose == "dkim"]

    async def check(self, name_or_id: str) -> Checked:
        """Ask DNS about every record; with all right the domain is verified, and waiting keys begin to sign."""
        await self.ensure_keys(name_or_id)
        domain = self.find(name_or_id)
        keys = self._keys(domain)
        active = self._records(domain, [key for key in keys if key.state == "active"])
        pending = [key for key in keys if key.state == "pending"]
        waiting = [record for record in self._records(domain, pending) if record.purpose == "dkim"]
        answers = await self._ask([*active, *waiting])
        verdicts = dict(answers)
        found = together(verdicts[record] for record in active)
        pending_found = bool(waiting) and together(verdicts[record] for record in waiting) is True
        now, taken = self._clock.now(), False

        def decide(setup: Setup, _: int) -> SetupChange:
            current = setup.records.get(("domain", domain.id))
            if not isinstance(current, Domain):
                return SetupChange()
            nonlocal taken
            holder = setup.domain_named(domain.name)
            taken = holder is not None and holder.verified and holder.id != domain.id
            verified, failures = next_state(current.verified, current.failures, found and not taken)
            changed = replace(current, checked_at=now, failures=failures)
            if current.by_dns:
                changed = replace(changed, verified=verified)
            rows = [to_row("domain", domain.id, changed, domain.team or None)]
            if pending_found:
                rows += _rows(self._swapped(keys, now))
            rows += [to_row("dkim_key", key.id, None, key.team or None) for key in keys if _is_over(key, now)]
            return SetupChange(rows=rows, events=_events(current, changed))

        await self._store.setup.change(decide)
        policy = next((v.found[0] for r, v in answers if r.purpose == "dmarc" and v.ok and v.found), None)
        aligned = alignment(domain.name, domain.name, return_path(domain.name), policy)
        return Checked(domain=self.find(domain.id), records=_taken(answers) if taken else answers, alignment=aligned)

    async def check_due(self) -> None:
        """Every domain that DNS decides about and that was not asked for lately."""
        now, setup = self._clock.now(), self._store.setup.current
        for domain in [
            *(d for team in setup.teams.values() for d in team.domains.values()),
            *setup.platform_domains.values(),
        ]:
            waits = any(key.state == "pending" for key in setup.keys_of(domain))
            if (domain.by_dns or waits) and (domain.checked_at or 0) <= now - RECHECK_MS:
                await self.check(domain.id)

    def _keys(self, domain: Domain) -> list[DkimKey]:
        return self._store.setup.current.keys_of(domain)

    def _records(self, domain: Domain, keys: Iterable[DkimKey]) -> list[Record]:
        return expected(
            domain.name,
            domain_id=domain.id,
            ownership=ownership_token(self._ownership_key, domain.id),
            dkim=[(key.selector, key.public) for key in keys],
            return_path_host=return_path(domain.name),
            bounce_host=self._store.setup.current.platform.mail_host or self._mail_host,
        )

    def _new_keys(self, domain: Domain, state: str) -> list[DkimKey]:
        stamp = self._clock.entropy(3).hex()
        made = []
        for algorithm in ALGORITHMS:
            private, public = self._make_key(algorithm)
            selector = f"h{stamp}{algorithm[0]}"
            id_ = f"{domain.id}/{selector}"
            key = {
                "id": id_,
                "team": domain.team,
                "domain": domain.id,
                "selector": selector,
                "algorithm": algorithm,
                "sealed": self._seal(private, f"dkim/{id_}"),
                "public": public,
                "state": state,
                "made_at": self._clock.now(),
            }
            made.append(msgspec.convert(key, DkimKey))
        return made

    def _swapped(self, keys: list[DkimKey], now: int) -> list[DkimKey]:
        """The waiting pair signs from now on, the one before it retires."""
        after = {"pending": "active", "active": "retired"}
        return [replace(key, state=after[key.state], made_at=now) for key in keys if key.state in after]


def _taken(answers: list[tuple[Record, Verdict]]) -> list[tuple[Record, Verdict]]:
    mend = "Another team here has proved that this domain is theirs. Ask the operator if it is yours."
    return [
        (record, replace(verdict, ok=False, mend=mend) if record.purpose == "ownership" else verdict)
        for record, verdict in answers
    ]


def _rows(keys: Iterable[DkimKey]) -> list[Row]:
    return [to_row("dkim_key", key.id, key, key.team or None) for key in keys]


def _keyless(setup: Setup, domain: Domain) -> bool:
    return not any(isinstance(record, DkimKey) and record.domain == domain.id for record in setup.records.values())


def _is_over(key: DkimKey, now: int) -> bool:
    return key.state == "retired" and key.made_at <= now - RETIRED_MS


def _events(before: Domain, after: Domain) -> list[DomainEvent]:
    if before.verified == after.verified or after.team == PLATFORM_TEAM:
        return []
    type_ = "domain.verified" if after.verified else "domain.failed"
    return [DomainEvent(team=after.team, domain=after.id, name=after.name, type=type_)]
