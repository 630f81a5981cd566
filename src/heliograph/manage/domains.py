"""Sending domains: adds, removes and checks them, and owns their DKIM keys and required DNS records.

Keys generated on first use, and changes found by rechecks, are logged with the service as actor.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from heliograph.changes.decisions import asker
from heliograph.changes.fields import ONE_LINE, check_fields, is_line
from heliograph.domain.audit.actor import COMMAND_LINE, SERVICE, Actor, AuditEntry
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.domain.mail.address import normal_domain, parse_address
from heliograph.domain.mail.verp import return_path
from heliograph.domain.refusals import BrandDomainNotFound, InvalidRequest, ServiceUnavailable
from heliograph.domain.setup.domain_records import (
    Alignment,
    Record,
    Verdict,
    alignment,
    expected,
    next_state,
    ownership_token,
    together,
)
from heliograph.domain.setup.records import DkimKey, Domain
from heliograph.domain.setup.sender_approvals import wish
from heliograph.domain.setup.snapshot import PLATFORM_TEAM, Row, Setup, to_row
from heliograph.domain.setup.zone_file import NO_HOST, is_address, is_public, likely_zone, next_look
from heliograph.domain.text import quoted
from heliograph.manage.teams import find_team
from heliograph.runtime.clock import Clock
from heliograph.runtime.fair_limiter import FairLimiter, QueueFull
from heliograph.storage.domain_checks import DomainCheck, KeptVerdict
from heliograph.storage.setup import SetupChange, SetupEvent
from heliograph.storage.store import Store

ALGORITHMS = ("rsa-sha256", "ed25519-sha256")
RECHECK_MS = 6 * HOUR_MS
RETIRED_MS = 7 * DAY_MS  # DNS records of retired keys are still needed this long, for mail in transit
CLAIM_MS = MINUTE_MS  # lease of a check of a watched domain
CLAIM_MOST = 20  # concurrent checks
KEYS_WAIT_S = 60.0
TOO_MANY_KEYS = "Too many domains are being added at once. Try again after the seconds in Retry-After."

MakeKey = Callable[[str], tuple[bytes, str]]  # algorithm → (private key as PEM, value of the TXT record)
Ask = Callable[[Sequence[Record]], Awaitable[list[tuple[Record, Verdict]]]]
ZoneOf = Callable[[str], Awaitable[str]]  # domain → its DNS zone; empty if unknown


async def _unknown(_: str) -> str:
    return ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a DNS check."""

    domain: Domain
    records: list[tuple[Record, Verdict]]
    alignment: Alignment
    checked_at: int


class LookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """Last DNS check of a domain's records, and the time of the next check."""

    records: list[tuple[Record, KeptVerdict | None]]
    checked_at: int | None
    next_at: int | None  # None if verification does not depend on DNS
    is_watched: bool  # checked often because of a recent change
    zone: str
    alignment: Alignment | None  # None before the first check

    @property
    def right(self) -> int:
        return sum(kept is not None and kept.verdict.ok for _, kept in self.records)


class Domains:
    """Use cases of sending domains for teams and for the platform sender."""

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
        zone_of: ZoneOf = _unknown,
    ) -> None:
        self._store = store
        self._clock = clock
        self._seal = seal
        self._make_key = make_key
        self._ask = ask
        self._ownership_key = ownership_key
        self._mail_host = mail_host
        self._zone_of = zone_of
        self._making = asyncio.Lock()  # the first mails of a domain request its keys concurrently
        # Generating an RSA key uses a core for a tenth of a second, longer on a busy machine.
        self._key_slots = FairLimiter(1, wait_s=KEYS_WAIT_S)

    def find(self, name_or_id: str) -> Domain:
        """Return a domain by id or, for its current holder, by name; raise BrandDomainNotFound.

        `ensure_keys` creates the platform's own domain on first use.
        """
        setup = self._store.setup.current
        found = setup.records.get(("domain", name_or_id)) or setup.domain_named(name_or_id)
        if not isinstance(found, Domain):
            raise BrandDomainNotFound(f"No team has the domain {quoted(name_or_id)}.")
        return found

    def own(self, team: str, id_: str) -> Domain:
        """Return the team's domain with this id."""
        return _own(self._store.setup.current, team, id_)

    async def add(self, actor: Actor, team: str, given: str, brand: str = "") -> Domain:
        """Return the team's domain with this name; a new one is created with its keys.

        The default brand is the team's name. The command line may exceed the team's limit.
        """
        name, brand, errors = normal_domain(given), brand.strip(), dict[str, str]()
        if name is None:
            errors["name"] = f"{quoted(given)} is not a domain such as mail.example.com, without https:// or @."
        if brand and not is_line(brand):
            errors["brand"] = ONE_LINE
        check_fields(errors)
        assert name
        current = find_team(self._store.setup.current, team)
        if name in current.domains:
            return current.domains[name]
        brand = brand or current.record.name
        new = Domain(
            id=self._clock.new_id("dom_"), team=team, name=name, brand=brand, by_dns=True, asked_by=asker(actor)
        )
        keys: list[DkimKey] = []

        def decide(setup: Setup, _: int) -> SetupChange:
            own, holder = find_team(setup, team), setup.domain_named(name)
            if name in own.domains:
                return SetupChange()
            if holder and holder.verified:
                why = f"{name} is a verified domain of another team here. Ask the operator if it is yours."
                raise InvalidRequest(why, param="name")
            if actor != COMMAND_LINE and len(own.domains) >= own.record.domains_max:
                why = (
                    f"The team has {len(own.domains)} domains, as many as it may. "
                    "Remove one that you do not use, or ask the operator for more."
                )
                raise InvalidRequest(why, param="name")
            rows = [to_row("domain", new.id, new, team), *_rows(keys)]
            return SetupChange(rows=rows, audit=self._entry(actor, "domain.add", new))

        decide(self._store.setup.current, 0)  # check first: a refused domain needs no keys
        keys += await self._generate_keys(new, "active")
        await self._store.setup.change(decide, team)
        made = self._store.setup.current.teams[team].domains[name]
        await self._store.domain_checks.watch(made.id, self._clock.now())
        return made

    async def set_brand(self, actor: Actor, domain: Domain, brand: str, *, by_operator: bool) -> Domain:
        """Change the sender name of a domain's mail.

        A change by an operator applies at once; a team's change of an approved domain needs an operator's approval.
        """
        brand = brand.strip()
        if not is_line(brand):
            raise InvalidRequest(ONE_LINE, param="brand")

        def decide(setup: Setup, _: int) -> SetupChange:
            old = _own(setup, domain.team, domain.id)
            rows = wish(setup, ("domain", old.id), brand, operator=by_operator, by=asker(actor))
            entry = self._entry(actor, "domain.brand", old, f"{old.brand} → {brand}")
            return SetupChange(rows=rows, audit=entry)

        await self._store.setup.change(decide, domain.team)
        return self.find(domain.id)

    async def remove(self, actor: Actor, domain: Domain) -> None:
        """Remove a domain. One that may send is rejected, because mail in transit is signed with its keys."""

        def decide(setup: Setup, _: int) -> SetupChange:
            old = _own(setup, domain.team, domain.id)
            if old.usable:
                raise InvalidRequest("This domain may send. Ask the operator to take its approval back first.")
            names = setup.teams[old.team].display_names.values()
            ids = [("domain", old.id), *(("dkim_key", key.id) for key in setup.keys_of(old))]
            ids += [("display_name", name.id) for name in names if name.domain == old.id]
            rows = [to_row(kind, id_, None, old.team) for kind, id_ in ids]
            return SetupChange(rows=rows, audit=self._entry(actor, "domain.remove", old))

        await self._store.setup.change(decide, domain.team)
        await self._store.domain_checks.forget(domain.id)

    async def records(self, name_or_id: str) -> list[Record]:
        """Return the DNS records to publish; generates the keys if there are none."""
        await self.ensure_keys(name_or_id)
        domain = self.find(name_or_id)
        return self._records(domain, [key for key in self._keys(domain) if key.state != "retired"])

    @property
    def mail_host(self) -> str:
        """Return the host that MX and SPF records refer to.

        Records cannot contain an IP address: without a host name, the result is a name that does not resolve.
        """
        host = self._store.setup.current.platform.mail_host or self._mail_host
        return NO_HOST if is_address(host) else host

    @property
    def is_public(self) -> bool:
        """Return whether the mail host is a public name that DNS records can use."""
        return is_public(self.mail_host)

    async def looked_up(self, name_or_id: str) -> LookedUp:
        """Return the DNS records to publish, each with its last check result; generates the keys if there are none."""
        wanted = await self.records(name_or_id)
        domain = self.find(name_or_id)
        kept = await self._store.domain_checks.get(domain.id)
        verdicts = {one.record: one for one in kept.records}
        checked_at = max(filter(None, (domain.checked_at, kept.checked_at)), default=None)
        round_at = (checked_at or self._clock.now()) + RECHECK_MS if self._is_looked_up(domain) else None
        answers = [(one.record, one.verdict) for one in kept.records]
        return LookedUp(
            records=[(record, verdicts.get(record)) for record in wanted],
            checked_at=checked_at,
            next_at=kept.next_at or round_at,
            is_watched=kept.next_at is not None,
            zone=kept.zone or likely_zone(domain.name),
            alignment=_alignment(domain.name, answers) if answers else None,
        )

    async def ensure_keys(self, name_or_id: str) -> None:
        """Generate the keys of a domain without any. Also creates the domain if it is the platform sender's."""
        if name_or_id == self.platform_name:
            await self._ensure_platform_domain(name_or_id)
        try:
            domain = self.find(name_or_id)
        except BrandDomainNotFound:
            return
        async with self._making:
            if not self._keys(domain):
                made = await self._generate_keys(domain, "active")
                change = SetupChange(rows=_rows(made), audit=self._entry(SERVICE, "domain.keys", domain, "made"))
                await self._store.setup.change(
                    lambda now, _: change if _is_keyless(now, domain) else SetupChange(), domain.team
                )

    @property
    def platform_name(self) -> str:
        """Return the domain of the platform's own sender."""
        sender = parse_address(self._store.setup.current.platform.sender)
        return sender.domain if sender else ""

    async def _ensure_platform_domain(self, name: str) -> None:
        """Create the platform's domain, unless a team has verified the domain: then the team's keys sign."""

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
            return SetupChange(
                rows=[to_row("domain", new.id, new, None)], audit=self._entry(SERVICE, "domain.add", new)
            )

        if decide(self._store.setup.current, 0).rows:  # rarely true: avoids a transaction
            await self._store.setup.change(decide, PLATFORM_TEAM)

    async def rotate(self, actor: Actor, name_or_id: str) -> list[Record]:
        """Generate new keys, which sign once their DNS records are found; return the records to publish."""
        await self.ensure_keys(name_or_id)
        domain = self.find(name_or_id)
        if not self._pending(self._store.setup.current, domain):
            made = await self._generate_keys(domain, "pending")
            change = SetupChange(rows=_rows(made), audit=self._entry(actor, "domain.rotate", domain))

            def decide(setup: Setup, _: int) -> SetupChange:
                is_gone = ("domain", domain.id) not in setup.records
                return SetupChange() if is_gone or self._pending(setup, domain) else change

            await self._store.setup.change(decide, domain.team)
            await self._store.domain_checks.watch(domain.id, self._clock.now())
        return self._pending(self._store.setup.current, domain)

    async def check(self, actor: Actor, name_or_id: str, watched_since: int | None = None) -> Checked:
        """Check every record in DNS. If all are correct, the domain is verified and pending keys become active.

        `watched_since`: set for the frequent checks after a change. Their failures never unverify a domain; only
        failures of regular checks, hours apart, do.
        """
        await self.ensure_keys(name_or_id)
        domain = self.find(name_or_id)
        keys = self._keys(domain)
        active = self._records(domain, [key for key in keys if key.state == "active"])
        waiting = self._pending(self._store.setup.current, domain)
        answers, zone = await asyncio.gather(self._ask([*active, *waiting]), self._zone_of(domain.name))
        verdicts = dict(answers)
        found = together(verdicts[record] for record in active)
        if watched_since is not None and domain.verified and found is False:
            found = None
        pending_found = bool(waiting) and together(verdicts[record] for record in waiting) is True
        now, taken = self._clock.now(), False

        def decide(setup: Setup, _: int) -> SetupChange:
            nonlocal taken
            before, holder = setup.records.get(("domain", domain.id)), setup.domain_named(domain.name)
            if not isinstance(before, Domain):
                return SetupChange()
            taken = holder is not None and holder.verified and holder.id != domain.id
            verified, failures = next_state(before.verified, before.failures, found and not taken)
            verified = verified if before.by_dns else before.verified
            swapped = self._swapped(keys, now) if pending_found else []
            over = [to_row("dkim_key", key.id, None, key.team or None) for key in keys if _is_over(key, now)]
            if verified == before.verified and not swapped and not over:
                return SetupChange()
            after = replace(before, verified=verified, checked_at=now, failures=failures)
            action = (
                "domain.keys" if verified == before.verified else "domain.verified" if verified else "domain.failed"
            )
            details = ["the new keys sign"] * bool(swapped) + ["retired keys removed"] * bool(over)
            return SetupChange(
                rows=[to_row("domain", domain.id, after, domain.team or None), *_rows(swapped), *over],
                events=_events(before, after),
                audit=self._entry(actor, action, after, ", ".join(details)),
            )

        if decide(self._store.setup.current, 0).rows:
            await self._store.setup.change(decide, domain.team)
        elif watched_since is None:
            right = found and not taken
            await self._store.setup.observe(domain.id, now, lambda d: next_state(d.verified, d.failures, right)[1])
        answers = _taken(answers) if taken else answers
        after = self.find(domain.id)
        since = watched_since if actor == SERVICE else now
        await self._keep(after, answers, now, since if self._waits(after) else None, zone)
        return Checked(domain=after, records=answers, alignment=_alignment(domain.name, answers), checked_at=now)

    async def _keep(
        self, domain: Domain, answers: list[tuple[Record, Verdict]], now: int, since: int | None, zone: str
    ) -> None:
        next_at = next_look(since, now) if since is not None else None
        await self._store.domain_checks.keep(
            DomainCheck(
                domain=domain.id,
                checked_at=now,
                since=since if next_at else None,
                next_at=next_at,
                zone=zone,
                records=tuple(KeptVerdict(record=record, verdict=verdict, at=now) for record, verdict in answers),
            )
        )

    async def check_watched(self) -> None:
        """Check the recently changed domains whose next check is due."""
        setup, now = self._store.setup.current, self._clock.now()
        keys = [*setup.platform_keys, *(key for team in setup.teams.values() for key in team.dkim_keys)]
        if all(domain.verified for domain in self._all()) and all(key.state != "pending" for key in keys):
            return  # avoids a query: usually no domain is watched
        claimed = await self._store.domain_checks.claim(now, now + CLAIM_MS, CLAIM_MOST)
        await asyncio.gather(*(self._look(domain, since) for domain, since in claimed.items()))

    async def _look(self, id_: str, since: int) -> None:
        if ("domain", id_) in self._store.setup.current.records:
            await self.check(SERVICE, id_, watched_since=since)
        else:
            await self._store.domain_checks.forget(id_)

    async def check_due(self) -> None:
        """Check every domain that depends on DNS and was not checked for RECHECK_MS."""
        now = self._clock.now()
        for domain in self._all():
            if self._is_looked_up(domain) and (domain.checked_at or 0) <= now - RECHECK_MS:
                await self.check(SERVICE, domain.id)

    def _all(self) -> list[Domain]:
        setup = self._store.setup.current
        return [
            *(d for team in setup.teams.values() for d in team.domains.values()),
            *setup.platform_domains.values(),
        ]

    def _is_looked_up(self, domain: Domain) -> bool:
        return domain.by_dns or any(key.state == "pending" for key in self._keys(domain))

    def _waits(self, domain: Domain) -> bool:
        """Return whether the domain waits for DNS records to be published."""
        return not domain.verified or any(key.state == "pending" for key in self._keys(domain))

    def _keys(self, domain: Domain) -> list[DkimKey]:
        return self._store.setup.current.keys_of(domain)

    def _pending(self, setup: Setup, domain: Domain) -> list[Record]:
        """Return the DKIM records of pending keys."""
        keys = [key for key in setup.keys_of(domain) if key.state == "pending"]
        return [record for record in self._records(domain, keys) if record.purpose == "dkim"]

    def _entry(self, actor: Actor, action: str, domain: Domain, detail: str = "") -> AuditEntry:
        return actor.did(self._clock.now(), action, domain.name, detail, team=domain.team or None)

    def _records(self, domain: Domain, keys: Iterable[DkimKey]) -> list[Record]:
        return expected(
            domain.name,
            domain_id=domain.id,
            ownership=ownership_token(self._ownership_key, domain.id),
            dkim=[(key.selector, key.public) for key in keys],
            return_path_host=return_path(domain.name),
            bounce_host=self.mail_host,
        )

    async def _generate_keys(self, domain: Domain, state: str) -> list[DkimKey]:
        """Generate a key pair per algorithm in a thread, before the transaction; teams take turns."""
        try:
            async with self._key_slots.slot(domain.team):
                return await asyncio.to_thread(self._new_keys, domain, state)
        except QueueFull as error:
            raise ServiceUnavailable(TOO_MANY_KEYS, retry_after=error.retry_after) from None

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
        """Return the changed keys: pending keys become active, active keys retired."""
        after = {"pending": "active", "active": "retired"}
        return [replace(key, state=after[key.state], made_at=now) for key in keys if key.state in after]


def _own(setup: Setup, team: str, id_: str) -> Domain:
    if team == PLATFORM_TEAM:
        raise InvalidRequest("This is the domain of the platform's own sender: it goes with the sender.")
    for domain in find_team(setup, team).domains.values():
        if domain.id == id_:
            return domain
    raise BrandDomainNotFound(f"The team has no domain {quoted(id_)}. {BrandDomainNotFound.fix}", param="id")


def _alignment(name: str, answers: list[tuple[Record, Verdict]]) -> Alignment:
    policy = next((v.found[0] for r, v in answers if r.purpose == "dmarc" and v.ok and v.found), None)
    proofs = {record.purpose for record, verdict in answers if verdict.ok}
    by_name = alignment(name, name, return_path(name), policy)
    return replace(by_name, passes=(by_name.dkim and "dkim" in proofs) or (by_name.spf and "spf" in proofs))


def _taken(answers: list[tuple[Record, Verdict]]) -> list[tuple[Record, Verdict]]:
    mend = "Another team here has proved that this domain is theirs. Ask the operator if it is yours."
    return [
        (record, replace(verdict, ok=False, fix=mend) if record.purpose == "ownership" else verdict)
        for record, verdict in answers
    ]


def _rows(keys: Iterable[DkimKey]) -> list[Row]:
    return [to_row("dkim_key", key.id, key, key.team or None) for key in keys]


def _is_keyless(setup: Setup, domain: Domain) -> bool:
    """Return whether the domain still exists and has no keys."""
    has_keys = any(isinstance(record, DkimKey) and record.domain == domain.id for record in setup.records.values())
    return ("domain", domain.id) in setup.records and not has_keys


def _is_over(key: DkimKey, now: int) -> bool:
    return key.state == "retired" and key.made_at <= now - RETIRED_MS


def _events(before: Domain, after: Domain) -> list[SetupEvent]:
    if before.verified == after.verified or after.team == PLATFORM_TEAM:
        return []
    type_ = "domain.verified" if after.verified else "domain.failed"
    data = {"id": after.id, "name": after.name, "verified": after.verified}
    return [SetupEvent(team=after.team, subject=after.id, type=type_, data=data)]
