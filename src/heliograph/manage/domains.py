"""Sending domains: adds, removes and checks them, and owns their DKIM keys and required DNS records.

Keys generated on first use, and changes found by rechecks, are logged with the service as actor.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from heliograph.changes.decisions import requester_id
from heliograph.changes.fields import ONE_LINE_ERROR, check_fields, is_single_line
from heliograph.domain.audit.actor import COMMAND_LINE, SERVICE, Actor, AuditEntry
from heliograph.domain.event_data import DomainEventData
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.mail.address import normalize_domain, parse_address
from heliograph.domain.mail.verp import bounce_domain
from heliograph.domain.refusals import BrandDomainNotFound, InvalidRequest, ServiceUnavailable
from heliograph.domain.setup.dkim_names import cname_records, idle_selectors, is_cname_key, zone_records
from heliograph.domain.setup.domain_records import (
    Alignment,
    Record,
    Verdict,
    alignment,
    all_correct,
    expected_records,
    next_verification_state,
    ownership_token,
)
from heliograph.domain.setup.own_dkim_key import read_own_key
from heliograph.domain.setup.records import DkimKey, DkimMethod, Domain
from heliograph.domain.setup.sender_approvals import request_change
from heliograph.domain.setup.snapshot import PLATFORM_TEAM, Row, Setup, to_row
from heliograph.domain.setup.zone_file import PLACEHOLDER_HOST, is_address, is_public, likely_zone, next_check
from heliograph.domain.text import quoted
from heliograph.manage.teams import get_team
from heliograph.runtime.clock import Clock
from heliograph.runtime.fair_limiter import FairLimiter, QueueFull
from heliograph.storage.domain_checks import DomainCheck, StoredVerdict
from heliograph.storage.setup import SetupChange, SetupEvent
from heliograph.storage.store import Store

ALGORITHMS = ("rsa-sha256", "ed25519-sha256")
RECHECK_MS = 6 * HOUR_MS
RETIRED_KEY_MS = 7 * DAY_MS  # a retired key's DNS record must stay published this long, for mail in transit
RETIRED_CNAME_KEY_MS = 14 * DAY_MS  # how long we publish a retired key in our zone
CHECK_LEASE_MS = MINUTE_MS  # how long a process has claimed the next check of a recently changed domain
CONCURRENT_CHECKS_MAX = 20
KEY_QUEUE_TIMEOUT_S = 60.0
TOO_MANY_KEYS_MESSAGE = "Too many domains are being added at once. Try again after the seconds in Retry-After."

MakeKey = Callable[[str], tuple[bytes, str]]  # algorithm → (private key as PEM, value of the TXT record)
CheckRecords = Callable[[Sequence[Record]], Awaitable[list[tuple[Record, Verdict]]]]
FindZone = Callable[[str], Awaitable[str]]  # domain → its DNS zone; empty if unknown
# Records of our zone → their TTL in seconds if every authoritative server answers all of them correctly, else None
FindPublishedTtl = Callable[[Sequence[Record]], Awaitable[int | None]]


async def _unknown_zone(_: str) -> str:
    return ""


async def _never_published(_: Sequence[Record]) -> int | None:
    return None


class DomainCheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a domain's DNS check."""

    domain: Domain
    records: list[tuple[Record, Verdict]]
    alignment: Alignment
    checked_at: int


class DomainStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A domain's required DNS records with the result of their last check, and the time of the next check."""

    records: list[tuple[Record, StoredVerdict | None]]
    checked_at: int | None
    next_check_at: int | None  # None if verification does not depend on DNS
    is_checked_often: bool  # checked often because of a recent change
    zone: str
    alignment: Alignment | None  # None before the first check

    @property
    def required_count(self) -> int:
        return sum(record.is_required for record, _ in self.records)

    @property
    def correct_count(self) -> int:
        """Return how many of the required records are correct."""
        return sum(record.is_required and check is not None and check.verdict.ok for record, check in self.records)


class Domains:
    """Adds, checks, changes and removes the domains that teams and the platform sender send from."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        encrypt: Callable[[bytes, str], str],
        make_key: MakeKey,
        check_records: CheckRecords,
        ownership_key: bytes,
        mail_host: str,
        find_zone: FindZone = _unknown_zone,
        find_published_ttl: FindPublishedTtl = _never_published,
    ) -> None:
        self._store = store
        self._clock = clock
        self._encrypt = encrypt
        self._make_key = make_key
        self._check_records = check_records
        self._ownership_key = ownership_key
        self._mail_host = mail_host
        self._find_zone = find_zone
        self._find_published_ttl = find_published_ttl
        self._key_lock = asyncio.Lock()  # so that concurrent first mails of a domain do not each generate its keys
        # Generating an RSA key uses a core for a tenth of a second, longer on a busy machine.
        self._key_limiter = FairLimiter(1, wait_s=KEY_QUEUE_TIMEOUT_S)

    def get(self, name_or_id: str) -> Domain:
        """Return the domain with this id or name (see `Setup.find_domain`); raise BrandDomainNotFound if none has it.

        `ensure_keys` creates the platform's own domain on first use.
        """
        setup = self._store.setup.current
        name = normalize_domain(name_or_id) or name_or_id
        domain = setup.records.get(("domain", name_or_id)) or setup.find_domain(name)
        if not isinstance(domain, Domain):
            raise BrandDomainNotFound(f"No team has the domain {quoted(name_or_id)}.")
        return domain

    def get_of_team(self, team: str, id_: str) -> Domain:
        """Return the team's domain with this id."""
        return _get_of_team(self._store.setup.current, team, id_)

    async def add(
        self,
        actor: Actor,
        team: str,
        raw_name: str,
        brand: str = "",
        *,
        method: DkimMethod | None = None,
        private_key: str | None = None,
        selector: str | None = None,
    ) -> Domain:
        """Return the team's domain with this name; if it is new, it is created together with its keys.

        The default brand is the team's name. The command line may exceed the team's limit of domains. `method` also
        changes the DKIM method of an existing domain; `private_key` (PEM) and `selector` import the team's own key.
        """
        name, brand, errors = normalize_domain(raw_name), brand.strip(), dict[str, str]()
        if name is None:
            errors["name"] = f"{quoted(raw_name)} is not a domain such as mail.example.com, without https:// or @."
        if brand and not is_single_line(brand):
            errors["brand"] = ONE_LINE_ERROR
        check_fields(errors)
        assert name
        team_setup = get_team(self._store.setup.current, team)
        existing = team_setup.domains.get(name)
        used_method = method or (existing.dkim if existing else "cname" if self.dkim_zone else "txt")
        own_key = self._read_own_key(used_method, private_key, selector)
        if existing:
            return await self._change_dkim_method(actor, existing, used_method, own_key, selector or "")
        brand = brand or team_setup.record.name
        new = Domain(
            id=self._clock.new_id("dom_"),
            team=team,
            name=name,
            brand=brand,
            dkim=used_method,
            by_dns=True,
            asked_by=requester_id(actor),
        )
        keys: list[DkimKey] = []

        def build_change(setup: Setup, _: int) -> SetupChange:
            current_team, holder = get_team(setup, team), setup.find_domain(name)
            if name in current_team.domains:
                return SetupChange()
            if holder and holder.verified:
                message = f"{name} is already verified by another team. If it is yours, contact the operator."
                raise InvalidRequest(message, param="name")
            if actor != COMMAND_LINE and len(current_team.domains) >= current_team.record.domains_max:
                message = (
                    f"The team has {len(current_team.domains)} domains, the maximum. "
                    "Remove one you don't use, or ask the operator for more."
                )
                raise InvalidRequest(message, param="name")
            rows = [to_row("domain", new.id, new, team), *_key_rows(keys)]
            return SetupChange(rows=rows, audit=self._audit_entry(actor, "domain.add", new))

        build_change(self._store.setup.current, 0)  # check first: a refused domain needs no keys
        if own_key:
            keys.append(self._encrypt_key(new, *own_key, selector=selector or "", state="active"))
        else:
            keys += await self._generate_keys(new, "active")
        await self._store.setup.change(build_change, team)
        domain = self._store.setup.current.teams[team].domains[name]
        await self._store.domain_checks.schedule(domain.id, self._clock.now())
        return domain

    def _read_own_key(
        self, method: DkimMethod, private_key: str | None, selector: str | None
    ) -> tuple[bytes, str, str] | None:
        """Return the key to import as (private key, algorithm, TXT value); None if `private_key` is None."""
        if method == "cname" and not self.dkim_zone:
            raise InvalidRequest("DKIM by CNAME needs dkim_zone, which an operator sets. Use txt.", param="dkim")
        for param, value in (("private_key", private_key), ("selector", selector)):
            if method == "cname" and value is not None:
                raise InvalidRequest(f'{param} needs dkim "txt": keys of cname are ours.', param=param)
        return None if private_key is None and selector is None else read_own_key(private_key, selector)

    async def _change_dkim_method(
        self, actor: Actor, domain: Domain, method: DkimMethod, own_key: tuple[bytes, str, str] | None, selector: str
    ) -> Domain:
        """Change how a domain's keys are published. The active keys keep signing until the new ones are in DNS."""
        current_keys = self._keys_of(domain)
        if own_key and any((key.selector, key.public) == (selector, own_key[2]) for key in current_keys):
            own_key = None
        if method == domain.dkim and own_key is None:
            return domain
        if method == "cname" and not self._idle_selectors(domain):
            raise InvalidRequest("Earlier keys are still published. Move to cname 14 days after them.", param="dkim")
        if own_key and any(key.selector == selector for key in current_keys):
            raise InvalidRequest(f"The selector {selector} is used by another key of the domain.", param="selector")
        new_keys = [self._encrypt_key(domain, *own_key, selector=selector, state="pending")] if own_key else []

        def build_change(setup: Setup, _: int) -> SetupChange:
            after = replace(_get_of_team(setup, domain.team, domain.id), dkim=method)
            dropped = [key for key in setup.dkim_keys(domain) if key.state == "pending"]
            rows = [to_row("dkim_key", key.id, None, key.team or None) for key in dropped]
            rows += [to_row("domain", domain.id, after, domain.team or None), *_key_rows(new_keys)]
            return SetupChange(rows=rows, audit=self._audit_entry(actor, "domain.keys", after, f"DKIM by {method}"))

        await self._store.setup.change(build_change, domain.team)
        await self.ensure_keys(domain.id)
        await self._store.domain_checks.schedule(domain.id, self._clock.now())
        return self.get(domain.id)

    async def set_brand(self, actor: Actor, domain: Domain, brand: str, *, by_operator: bool) -> Domain:
        """Change the sender name of a domain's mail.

        A change by an operator applies at once; a team's change of an approved domain needs an operator's approval.
        """
        brand = brand.strip()
        if not is_single_line(brand):
            raise InvalidRequest(ONE_LINE_ERROR, param="brand")

        def build_change(setup: Setup, _: int) -> SetupChange:
            old = _get_of_team(setup, domain.team, domain.id)
            rows = request_change(setup, ("domain", old.id), brand, operator=by_operator, by=requester_id(actor))
            entry = self._audit_entry(actor, "domain.brand", old, f"{old.brand} → {brand}")
            return SetupChange(rows=rows, audit=entry)

        await self._store.setup.change(build_change, domain.team)
        return self.get(domain.id)

    async def remove(self, actor: Actor, domain: Domain) -> None:
        """Remove a domain. A domain that may send is not removed, because mail in transit is signed with its keys."""

        def build_change(setup: Setup, _: int) -> SetupChange:
            old = _get_of_team(setup, domain.team, domain.id)
            if old.usable:
                raise InvalidRequest("This domain can send. Ask the operator to withdraw its approval first.")
            names = setup.teams[old.team].display_names.values()
            ids = [("domain", old.id), *(("dkim_key", key.id) for key in setup.dkim_keys(old))]
            ids += [("display_name", name.id) for name in names if name.domain == old.id]
            rows = [to_row(kind, id_, None, old.team) for kind, id_ in ids]
            return SetupChange(rows=rows, audit=self._audit_entry(actor, "domain.remove", old))

        await self._store.setup.change(build_change, domain.team)
        await self._store.domain_checks.delete(domain.id)
        await self._store.aggregate_reports.delete(domain.id)

    async def required_records(self, name_or_id: str) -> list[Record]:
        """Return the DNS records that the domain's owner must publish; generates the domain's keys if it has none."""
        await self.ensure_keys(name_or_id)
        domain = self.get(name_or_id)
        return self._expected_records(domain, [key for key in self._keys_of(domain) if key.state != "retired"])

    @property
    def dkim_zone(self) -> str:
        return self._store.setup.current.platform.dkim_zone

    def zone(self) -> list[Record]:
        """Return the DNS records that the operator publishes.

        These are the DKIM keys of domains with CNAME records, and the consent to receive DMARC reports (RFC 9990).
        """
        setup, zone = self._store.setup.current, self.dkim_zone
        domains = sorted(self._all_domains(), key=lambda domain: domain.name) if zone else []
        records = [record for domain in domains for record in zone_records(setup.dkim_keys(domain), domain.id, zone)]
        consent = Record(
            type="TXT", name=f"*._report._dmarc.{self.mail_host}", value="v=DMARC1", purpose="report_consent"
        )
        return [*records, consent]

    async def rotate_due(self) -> None:
        """Replace keys in our zone that are `dkim_rotate_days` old, and create keys where the DKIM method changed."""
        setup, now = self._store.setup.current, self._clock.now()
        days = setup.platform.dkim_rotate_days
        for domain in self._all_domains():
            keys = self._keys_of(domain)
            if keys and self._lacks_keys(setup, domain):  # a setup file changed the DKIM method
                await self.ensure_keys(domain.id)
                await self._store.domain_checks.schedule(domain.id, now)
            is_due = keys and all(
                is_cname_key(key) and key.state == "active" and key.made_at <= now - days * DAY_MS for key in keys
            )
            if days and is_due and domain.dkim == "cname" and self.dkim_zone:
                await self.rotate(SERVICE, domain.id)

    @property
    def mail_host(self) -> str:
        """Return the host name that MX and SPF records refer to.

        If an IP address is configured, which an MX record cannot contain, return PLACEHOLDER_HOST, which does not
        resolve.
        """
        host = self._store.setup.current.platform.mail_host or self._mail_host
        return PLACEHOLDER_HOST if is_address(host) else host

    @property
    def has_public_mail_host(self) -> bool:
        """Return whether the mail host is a public name that DNS records can use."""
        return is_public(self.mail_host)

    async def status(self, name_or_id: str) -> DomainStatus:
        """Return the DNS records to publish, each with its last verdict; generate the domain's keys if it has none."""
        required = await self.required_records(name_or_id)
        domain = self.get(name_or_id)
        last_check = await self._store.domain_checks.get(domain.id)
        check_by_record = {record_check.record: record_check for record_check in last_check.records}
        checked_at = max(filter(None, (domain.checked_at, last_check.checked_at)), default=None)
        regular_check_at = (checked_at or self._clock.now()) + RECHECK_MS if self._depends_on_dns(domain) else None
        verdicts = [(record_check.record, record_check.verdict) for record_check in last_check.records]
        return DomainStatus(
            records=[(record, check_by_record.get(record)) for record in required],
            checked_at=checked_at,
            next_check_at=last_check.next_at or regular_check_at,
            is_checked_often=last_check.next_at is not None,
            zone=last_check.zone or likely_zone(domain.name),
            alignment=_alignment_of(domain.name, verdicts) if verdicts else None,
        )

    async def ensure_keys(self, name_or_id: str) -> None:
        """Generate the domain's keys if it has none. The platform sender's domain is created first if necessary."""
        if name_or_id == self.platform_domain_name:
            await self._ensure_platform_domain(name_or_id)
        try:
            domain = self.get(name_or_id)
        except BrandDomainNotFound:
            return
        async with self._key_lock:
            if self._lacks_keys(self._store.setup.current, domain):
                keys = await self._generate_keys(domain, "pending" if self._keys_of(domain) else "active")
                change = SetupChange(
                    rows=_key_rows(keys), audit=self._audit_entry(SERVICE, "domain.keys", domain, "created")
                )
                await self._store.setup.change(
                    lambda setup, _: change if self._lacks_keys(setup, domain) else SetupChange(), domain.team
                )

    def _lacks_keys(self, setup: Setup, domain: Domain) -> bool:
        """Return whether the domain still exists, has no keys for its DKIM method, and can get new keys now."""
        current = setup.records.get(("domain", domain.id))
        if not isinstance(current, Domain) or (current.dkim == "cname" and not self._idle_selectors(current)):
            return False
        usable = [key for key in setup.dkim_keys(current) if key.state != "retired"]
        return not any(is_cname_key(key) == (current.dkim == "cname") for key in usable)

    def _idle_selectors(self, domain: Domain) -> dict[str, str] | None:
        return idle_selectors(self._keys_of(domain))

    @property
    def platform_domain_name(self) -> str:
        """Return the domain of the platform sender's address; empty if the platform has no sender."""
        sender = parse_address(self._store.setup.current.platform.sender)
        return sender.domain if sender else ""

    async def _ensure_platform_domain(self, name: str) -> None:
        """Create the platform's domain, unless a team has verified the same domain: then the team's keys sign."""

        def build_change(setup: Setup, _: int) -> SetupChange:
            holder = setup.find_domain(name)
            if holder and (holder.verified or holder.team == PLATFORM_TEAM):
                return SetupChange()
            new = Domain(
                id=self._clock.new_id("dom_"),
                team=PLATFORM_TEAM,
                name=name,
                brand=setup.platform.brand,
                dkim="cname" if setup.platform.dkim_zone else "txt",
                approved=True,
                by_dns=True,
            )
            return SetupChange(
                rows=[to_row("domain", new.id, new, None)], audit=self._audit_entry(SERVICE, "domain.add", new)
            )

        if build_change(self._store.setup.current, 0).rows:  # rarely true; otherwise no transaction is needed
            await self._store.setup.change(build_change, PLATFORM_TEAM)

    async def rotate(self, actor: Actor, name_or_id: str) -> list[Record]:
        """Generate new keys, which sign once their DNS records are found; return the DNS records to publish."""
        await self.ensure_keys(name_or_id)
        domain = self.get(name_or_id)
        if not self._has_pending(self._store.setup.current, domain):
            if domain.dkim == "cname" and not self._idle_selectors(domain):
                raise InvalidRequest("The previous keys are published for 14 days. Rotate the keys after that.")
            keys = await self._generate_keys(domain, "pending")
            change = SetupChange(rows=_key_rows(keys), audit=self._audit_entry(actor, "domain.rotate", domain))

            def build_change(setup: Setup, _: int) -> SetupChange:
                is_gone = ("domain", domain.id) not in setup.records
                return SetupChange() if is_gone or self._has_pending(setup, domain) else change

            await self._store.setup.change(build_change, domain.team)
            await self._store.domain_checks.schedule(domain.id, self._clock.now())
        return self._pending_records(self._store.setup.current, domain)

    async def check(self, actor: Actor, name_or_id: str, watched_since: int | None = None) -> DomainCheckResult:
        """Check all DNS records of a domain. If all are correct, the domain is verified and pending keys become active.

        `watched_since`: start of the frequent checks after a change; None for a regular check. Failed frequent checks
        never unverify a domain; only failed regular checks, hours apart, do.
        """
        await self.ensure_keys(name_or_id)
        domain = self.get(name_or_id)
        keys = self._keys_of(domain)
        active_records = self._expected_records(domain, [key for key in keys if key.state == "active"])
        pending_records = self._pending_records(self._store.setup.current, domain)
        verdicts, zone, pending_keys = await self._query_dns(domain, keys, [*active_records, *pending_records])
        verdict_by_record = dict(verdicts)
        is_correct = all_correct(verdict_by_record[record] for record in active_records if record.is_required)
        if watched_since is not None and domain.verified and is_correct is False:
            is_correct = None
        now, is_taken = self._clock.now(), False
        are_pending_keys_ready = (
            bool(pending_records)
            and all_correct(verdict_by_record[record] for record in pending_records) is True
            and all(_may_sign(domain, key, now) for key in pending_keys)
        )
        postponed_keys = [] if are_pending_keys_ready else [key for key in pending_keys if key not in keys]

        def build_change(setup: Setup, _: int) -> SetupChange:
            nonlocal is_taken
            before, holder = setup.records.get(("domain", domain.id)), setup.find_domain(domain.name)
            if not isinstance(before, Domain):
                return SetupChange()
            is_taken = holder is not None and holder.verified and holder.id != domain.id
            verified, failures = next_verification_state(before.verified, before.failures, is_correct and not is_taken)
            verified = verified if before.by_dns else before.verified
            changed_keys = self._activate_pending(keys, now) if are_pending_keys_ready else []
            expired_rows = [
                to_row("dkim_key", key.id, None, key.team or None) for key in keys if _is_deletable(key, now)
            ]
            if verified == before.verified and not changed_keys and not expired_rows and not postponed_keys:
                return SetupChange()
            after = replace(before, verified=verified, checked_at=now, failures=failures)
            action = (
                "domain.keys" if verified == before.verified else "domain.verified" if verified else "domain.failed"
            )
            details = ["the new keys sign"] * bool(changed_keys) + ["retired keys removed"] * bool(expired_rows)
            return SetupChange(
                rows=[
                    to_row("domain", domain.id, after, domain.team or None),
                    *_key_rows([*changed_keys, *postponed_keys]),
                    *expired_rows,
                ],
                events=_verification_events(before, after),
                audit=self._audit_entry(actor, action, after, ", ".join(details)),
            )

        if build_change(self._store.setup.current, 0).rows:
            await self._store.setup.change(build_change, domain.team)
        elif watched_since is None:
            is_valid = is_correct and not is_taken
            await self._store.setup.record_domain_check(
                domain.id, now, lambda current: next_verification_state(current.verified, current.failures, is_valid)[1]
            )
        verdicts = _with_ownership_conflict(verdicts) if is_taken else verdicts
        after = self.get(domain.id)
        watch_start = watched_since if actor == SERVICE else now
        await self._store_check(after, verdicts, now, watch_start, zone)
        return DomainCheckResult(
            domain=after, records=verdicts, alignment=_alignment_of(domain.name, verdicts), checked_at=now
        )

    async def _query_dns(
        self, domain: Domain, keys: Sequence[DkimKey], records: Sequence[Record]
    ) -> tuple[list[tuple[Record, Verdict]], str, list[DkimKey]]:
        """Query DNS; return each record's verdict, the domain's zone, and the pending keys with a new `usable_at`."""
        active_keys, pending_keys = ([key for key in keys if key.state == state] for state in ("active", "pending"))
        zone_keys = {record.name: record for record in self._zone_records(domain, active_keys)}
        pending_zone = self._zone_records(domain, pending_keys)
        verdicts, zone, published_ttl = await asyncio.gather(
            self._check_records(list(dict.fromkeys([*records, *zone_keys.values()]))),
            self._find_zone(domain.name),
            self._published_ttl(pending_zone),
        )
        if pending_zone:
            now = self._clock.now()
            pending_keys = [_with_usable_at(key, published_ttl, now) for key in pending_keys]
        return _merge_zone_verdicts(verdicts, zone_keys), zone, pending_keys

    async def _store_check(
        self, domain: Domain, verdicts: list[tuple[Record, Verdict]], now: int, watch_start: int | None, zone: str
    ) -> None:
        if watch_start is None:  # a regular check does not end the frequent checks after a change
            watch_start = (await self._store.domain_checks.get(domain.id)).since
        if not self._awaits_records(domain):
            watch_start = None
        next_at = next_check(watch_start, now) if watch_start is not None else None
        await self._store.domain_checks.save(
            DomainCheck(
                domain=domain.id,
                checked_at=now,
                since=watch_start if next_at else None,
                next_at=next_at,
                zone=zone,
                records=tuple(StoredVerdict(record=record, verdict=verdict, at=now) for record, verdict in verdicts),
            )
        )

    async def check_watched(self) -> None:
        """Check the recently changed domains whose next check is due."""
        setup, now = self._store.setup.current, self._clock.now()
        keys = [*setup.platform_keys, *(key for team in setup.teams.values() for key in team.dkim_keys)]
        if all(domain.verified for domain in self._all_domains()) and all(key.state != "pending" for key in keys):
            return  # usually no domain is watched: no query is needed
        claimed = await self._store.domain_checks.claim(now, now + CHECK_LEASE_MS, CONCURRENT_CHECKS_MAX)
        await asyncio.gather(*(self._check_one_watched(domain, watch_start) for domain, watch_start in claimed.items()))

    async def _check_one_watched(self, id_: str, watch_start: int) -> None:
        if ("domain", id_) in self._store.setup.current.records:
            await self.check(SERVICE, id_, watched_since=watch_start)
        else:
            await self._store.domain_checks.delete(id_)

    async def check_due(self) -> None:
        """Check every domain that depends on DNS and was not checked for RECHECK_MS."""
        now = self._clock.now()
        for domain in self._all_domains():
            if self._depends_on_dns(domain) and (domain.checked_at or 0) <= now - RECHECK_MS:
                await self.check(SERVICE, domain.id)

    def _all_domains(self) -> list[Domain]:
        setup = self._store.setup.current
        return [
            *(domain for team in setup.teams.values() for domain in team.domains.values()),
            *setup.platform_domains.values(),
        ]

    def _depends_on_dns(self, domain: Domain) -> bool:
        return domain.by_dns or any(key.state == "pending" for key in self._keys_of(domain))

    def _awaits_records(self, domain: Domain) -> bool:
        """Return whether the domain waits for its owner to publish DNS records."""
        return not domain.verified or any(key.state == "pending" for key in self._keys_of(domain))

    def _keys_of(self, domain: Domain) -> list[DkimKey]:
        return self._store.setup.current.dkim_keys(domain)

    def _has_pending(self, setup: Setup, domain: Domain) -> bool:
        return any(key.state == "pending" for key in setup.dkim_keys(domain))

    def _zone_records(self, domain: Domain, keys: Iterable[DkimKey]) -> list[Record]:
        return zone_records(keys, domain.id, self.dkim_zone) if self.dkim_zone else []

    async def _published_ttl(self, records: Sequence[Record]) -> int | None:
        return await self._find_published_ttl(records) if records else None

    def _pending_records(self, setup: Setup, domain: Domain) -> list[Record]:
        """Return the DNS records of DKIM keys that are not active yet."""
        keys = [key for key in setup.dkim_keys(domain) if key.state == "pending"]
        return [record for record in self._expected_records(domain, keys) if record.purpose == "dkim"]

    def _audit_entry(self, actor: Actor, action: str, domain: Domain, detail: str = "") -> AuditEntry:
        return actor.audit_entry(self._clock.now(), action, domain.name, detail, team=domain.team or None)

    def _expected_records(self, domain: Domain, keys: Sequence[DkimKey]) -> list[Record]:
        has_cnames = any(map(is_cname_key, keys)) and bool(self.dkim_zone)
        return expected_records(
            domain.name,
            domain_id=domain.id,
            ownership=ownership_token(self._ownership_key, domain.id),
            dkim=[(key.selector, key.public) for key in keys if not is_cname_key(key)],
            dkim_cnames=cname_records(domain.name, domain.id, self.dkim_zone) if has_cnames else (),
            return_path_host=bounce_domain(domain.name),
            bounce_host=self.mail_host,
        )

    async def _generate_keys(self, domain: Domain, state: str) -> list[DkimKey]:
        """Generate a key pair per algorithm, in a thread and before the transaction; teams take turns."""
        try:
            async with self._key_limiter.slot(domain.team):
                return await asyncio.to_thread(self._new_keys, domain, state)
        except QueueFull as error:
            raise ServiceUnavailable(TOO_MANY_KEYS_MESSAGE, retry_after=error.retry_after) from None

    def _new_keys(self, domain: Domain, state: str) -> list[DkimKey]:
        random_part = self._clock.random_bytes(3).hex()
        cname_selectors = self._idle_selectors(domain) if domain.dkim == "cname" else None
        keys = []
        for algorithm in ALGORITHMS:
            private, public = self._make_key(algorithm)
            selector = cname_selectors[algorithm] if cname_selectors else f"h{random_part}{algorithm[0]}"
            keys.append(self._encrypt_key(domain, private, algorithm, public, selector=selector, state=state))
        return keys

    def _encrypt_key(
        self, domain: Domain, private: bytes, algorithm: str, public: str, *, selector: str, state: str
    ) -> DkimKey:
        id_ = f"{domain.id}/{selector}"
        key = {
            "id": id_,
            "team": domain.team,
            "domain": domain.id,
            "selector": selector,
            "algorithm": algorithm,
            "sealed": self._encrypt(private, f"dkim/{id_}"),
            "public": public,
            "state": state,
            "made_at": self._clock.now(),
        }
        return msgspec.convert(key, DkimKey)

    def _activate_pending(self, keys: list[DkimKey], now: int) -> list[DkimKey]:
        """Return the keys whose state changes: pending keys become active, active keys retired."""
        next_state_of = {"pending": "active", "active": "retired"}
        return [replace(key, state=next_state_of[key.state], made_at=now) for key in keys if key.state in next_state_of]


def _get_of_team(setup: Setup, team: str, id_: str) -> Domain:
    if team == PLATFORM_TEAM:
        raise InvalidRequest("This is the domain of the platform sender and can't be removed separately.")
    for domain in get_team(setup, team).domains.values():
        if domain.id == id_:
            return domain
    raise BrandDomainNotFound(f"The team has no domain {quoted(id_)}. {BrandDomainNotFound.fix}", param="id")


def _alignment_of(name: str, verdicts: list[tuple[Record, Verdict]]) -> Alignment:
    policy = next(
        (
            verdict.found[0]
            for record, verdict in verdicts
            if record.purpose == "dmarc" and verdict.ok and verdict.found
        ),
        None,
    )
    correct_purposes = {record.purpose for record, verdict in verdicts if verdict.ok}
    expected_alignment = alignment(name, name, bounce_domain(name), policy)
    return replace(
        expected_alignment,
        passes=(expected_alignment.dkim and "dkim" in correct_purposes)
        or (expected_alignment.spf and "spf" in correct_purposes),
    )


def _with_ownership_conflict(verdicts: list[tuple[Record, Verdict]]) -> list[tuple[Record, Verdict]]:
    fix = "Another team has already verified this domain. If it is yours, contact the operator."
    return [
        (record, replace(verdict, ok=False, fix=fix) if record.purpose == "ownership" else verdict)
        for record, verdict in verdicts
    ]


def _key_rows(keys: Iterable[DkimKey]) -> list[Row]:
    return [to_row("dkim_key", key.id, key, key.team or None) for key in keys]


def _is_deletable(key: DkimKey, now: int) -> bool:
    kept_ms = RETIRED_CNAME_KEY_MS if is_cname_key(key) else RETIRED_KEY_MS
    return key.state == "retired" and key.made_at <= now - kept_ms


def _with_usable_at(key: DkimKey, published_ttl: int | None, now: int) -> DkimKey:
    """Set the pending key's `usable_at`: when old DNS caches will have expired; None while a server lacks the key."""
    if published_ttl is None:
        return replace(key, usable_at=None)
    return key if key.usable_at is not None else replace(key, usable_at=now + published_ttl * SECOND_MS)


def _may_sign(domain: Domain, key: DkimKey, now: int) -> bool:
    """Return whether a pending key whose DNS records are correct may be used for signing."""
    if not is_cname_key(key):
        return domain.dkim == "txt"
    return domain.dkim == "cname" and key.usable_at is not None and key.usable_at <= now


def _merge_zone_verdicts(
    verdicts: list[tuple[Record, Verdict]], zone_keys: Mapping[str, Record]
) -> list[tuple[Record, Verdict]]:
    """Return the DNS check results of the records that the domain's owner publishes, without those of our own zone.

    A correct CNAME record counts as wrong if the DKIM key that it points to is missing in our zone.
    """
    zone_verdicts = {record.name: verdict for record, verdict in verdicts if zone_keys.get(record.name) == record}
    merged = []
    for record, verdict in verdicts:
        if zone_keys.get(record.name) == record:
            continue
        zone_verdict = zone_verdicts.get(record.value) if record.type == "CNAME" else None
        if verdict.ok and zone_verdict and not zone_verdict.ok:
            fix = (
                "Your CNAME record is correct, but its target does not have the key. "
                f"The operator has to publish the zone that heliograph domain zone prints. {zone_verdict.fix}"
            )
            verdict = replace(verdict, ok=False, fix=fix, answered=zone_verdict.answered)
        merged.append((record, verdict))
    return merged


def _verification_events(before: Domain, after: Domain) -> list[SetupEvent]:
    if before.verified == after.verified or after.team == PLATFORM_TEAM:
        return []
    type_ = "domain.verified" if after.verified else "domain.failed"
    data = DomainEventData(id=after.id, name=after.name, verified=after.verified)
    return [SetupEvent(team=after.team, subject=after.id, type=type_, data=data)]
