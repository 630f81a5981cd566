"""Immutable snapshot of the whole setup, used by every request; updates rebuild only the changed teams."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from heliograph.domain.delivery.routing import Routes
from heliograph.domain.mail.address import Address
from heliograph.domain.setup.records import (
    PERMITS_NOTHING,
    Caller,
    CarrierRecord,
    DisplayName,
    DkimKey,
    Domain,
    Inbound,
    Key,
    Layout,
    LayoutDraft,
    Platform,
    Recipient,
    SenderId,
    SetupRecord,
    Team,
    TeamClock,
    TeamRecord,
    Template,
    TemplateDraft,
    UpstreamTemplate,
    Webhook,
)

# Record kinds, in the order of a setup file.
RECORD_TYPE_BY_KIND: dict[str, type[SetupRecord]] = {
    "platform": Platform,
    "carrier": CarrierRecord,
    "team": TeamRecord,
    "test_clock": TeamClock,
    "domain": Domain,
    "dkim_key": DkimKey,
    "display_name": DisplayName,
    "layout": Layout,
    "layout_draft": LayoutDraft,
    "template": Template,
    "template_draft": TemplateDraft,
    "upstream_template": UpstreamTemplate,
    "key": Key,
    "recipient": Recipient,
    "sender_id": SenderId,
    "inbound": Inbound,
    "webhook": Webhook,
}
DRAFT_KIND_BY_KIND = {"template": "template_draft", "layout": "layout_draft"}
SIZED_KINDS = frozenset((*DRAFT_KIND_BY_KIND, *DRAFT_KIND_BY_KIND.values()))
PLATFORM_ID = "platform"
PLATFORM_TEAM = ""  # owner of the platform sender's domain and of platform keys
_PLATFORM = Team(record=TeamRecord(ref=0, id=PLATFORM_TEAM, name="", mode="live"))

RecordId = tuple[str, str]  # kind, id


class Row(msgspec.Struct, frozen=True):
    """A setup record as stored; `body` is None if the record is deleted."""

    kind: str
    id: str
    team: str | None
    body: str | None


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 0
    records: Mapping[RecordId, SetupRecord] = {}
    lengths: Mapping[RecordId, int] = {}  # stored size in characters of templates, layouts and their drafts
    platform: Platform = Platform()
    carriers: tuple[CarrierRecord, ...] = ()
    routes: Routes = msgspec.field(default_factory=Routes)
    teams: Mapping[str, Team] = {}  # by id
    callers: Mapping[str, Caller] = {}  # by a key's public id
    teams_by_ref: Mapping[int, Team] = {}
    webhooks: Mapping[int, tuple[Webhook, ...]] = {}  # enabled webhooks, by team
    clock_offsets: Mapping[int, int] = {}  # team whose test clock is ahead → offset in ms
    advancing_teams: tuple[Team, ...] = ()  # teams whose test clock is still advancing to its target
    verified: Mapping[str, str] = {}  # domain verified by a team → team id
    platform_domains: Mapping[str, Domain] = {}  # by name
    platform_keys: tuple[DkimKey, ...] = ()

    def find_domain(self, name: str) -> Domain | None:
        """Return the domain with this name; None if not found.

        If several teams have added the domain, a verified one is preferred, then the platform's, then an approved one.
        """
        domains = [team.domains[name] for team in self.teams.values() if name in team.domains]
        domains += [self.platform_domains[name]] if name in self.platform_domains else []
        return max(
            domains, key=lambda domain: (domain.verified, domain.team == PLATFORM_TEAM, domain.approved), default=None
        )

    def has_domain(self, name: str) -> bool:
        """Return whether a team or the platform owns this domain or a parent domain (`bounce.acme.test`)."""
        return bool(verifying_team(self.verified, name)) or any(
            self.find_domain(candidate) for candidate in (name, name.partition(".")[2])
        )

    def inbound_team(self, address: Address) -> Team | None:
        """Return the team that receives mail for `address`; None if not found.

        That team has this address or `*@domain` as an inbound address, and has verified the domain or a parent domain.
        """
        team = self.teams.get(verifying_team(self.verified, address.domain))
        return team if team and not team.inbound.isdisjoint((address.normal, f"*@{address.domain}")) else None

    def clock_offset(self, team: str) -> int:
        """Return by how many ms the team's test clock is ahead of real time."""
        team_object = self.teams.get(team) if self.clock_offsets else None
        return self.clock_offsets.get(team_object.record.ref, 0) if team_object else 0

    def dkim_keys(self, domain: Domain) -> list[DkimKey]:
        keys = self.teams[domain.team].dkim_keys if domain.team != PLATFORM_TEAM else self.platform_keys
        return [key for key in keys if key.domain == domain.id]


def verified_domains(records: Iterable[SetupRecord]) -> dict[str, str]:
    """Map each verified domain name to its team."""
    return {r.name: r.team for r in records if isinstance(r, Domain) and r.verified and r.team != PLATFORM_TEAM}


def verifying_team(verified: Mapping[str, str], name: str) -> str:
    """Return the team that verified this domain or else its closest verified parent domain; empty if none has."""
    labels = name.split(".")
    return next((verified[parent] for i in range(len(labels)) if (parent := ".".join(labels[i:])) in verified), "")


def to_row(kind: str, id_: str, record: SetupRecord | None, team: str | None) -> Row:
    return Row(kind, id_, team, None if record is None else msgspec.json.encode(record).decode())


def pause_rows(current: Setup, paused: bool, reason: str = "") -> list[Row]:
    """Return the rows that pause or resume delivery; empty if nothing changes."""
    platform = msgspec.structs.replace(current.platform, paused=paused, paused_reason=reason)
    return [] if platform == current.platform else [to_row("platform", PLATFORM_ID, platform, None)]


def apply_rows(setup: Setup, rows: Iterable[Row], version: int) -> Setup:
    """Return the setup with these rows applied; teams without changed rows keep their `Team` objects.

    If a team was deleted, all its records are dropped, because their rows no longer exist.
    """
    records, lengths = dict(setup.records), dict(setup.lengths)
    changed_teams: set[str] = set()
    deleted_teams: set[str] = set()
    for row in rows:
        if row.team:
            changed_teams.add(row.team)
        if row.body is None:
            records.pop((row.kind, row.id), None)
            lengths.pop((row.kind, row.id), None)
            if row.kind == "team":
                deleted_teams.add(row.id)
        elif row.kind in RECORD_TYPE_BY_KIND:
            record = (
                _decode_key(row.body)
                if row.kind == "key"
                else msgspec.json.decode(row.body, type=RECORD_TYPE_BY_KIND[row.kind])
            )
            if record is None:
                records.pop((row.kind, row.id), None)
                continue
            records[row.kind, row.id] = record
            if row.kind in SIZED_KINDS:
                lengths[row.kind, row.id] = len(row.body)
    for key in [key for key, record in records.items() if getattr(record, "team", "") in deleted_teams]:
        del records[key]
        lengths.pop(key, None)
    teams = {id_: team for id_, team in setup.teams.items() if id_ not in changed_teams}
    callers = {id_: c for id_, c in setup.callers.items() if c.team.record.id not in (changed_teams | {PLATFORM_TEAM})}
    records_by_team: dict[str, list[SetupRecord]] = {id_: [] for id_ in changed_teams}
    for record in records.values():
        owner = getattr(record, "team", None)
        if owner in records_by_team:
            records_by_team[owner].append(record)
    for id_, team_records in records_by_team.items():
        fields = records.get(("team", id_))
        if isinstance(fields, TeamRecord):
            team = _build_team(fields, team_records)
            teams[id_] = team
            callers |= {r.id: Caller(team=team, key=r) for r in team_records if isinstance(r, Key)}
    platform = records.get(("platform", PLATFORM_ID))
    platform_records = [record for record in records.values() if getattr(record, "team", None) == PLATFORM_TEAM]
    callers |= {r.id: Caller(team=_PLATFORM, key=r) for r in platform_records if isinstance(r, Key)}
    carriers = tuple(r for r in records.values() if isinstance(r, CarrierRecord))
    return Setup(
        version=version,
        records=records,
        lengths=lengths,
        platform=platform if isinstance(platform, Platform) else Platform(),
        carriers=carriers,
        routes=Routes(carriers),
        teams=teams,
        callers=callers,
        teams_by_ref={team.record.ref: team for team in teams.values()},
        webhooks={
            team.record.ref: enabled
            for team in teams.values()
            if (enabled := tuple(hook for hook in team.webhooks if hook.enabled))
        },
        clock_offsets={
            t.record.ref: t.clock.ahead for t in teams.values() if t.simulated and t.clock and t.clock.ahead
        },
        advancing_teams=tuple(t for t in teams.values() if t.simulated and t.clock and t.clock.ahead < t.clock.target),
        verified=verified_domains(records.values()),
        platform_domains={r.name: r for r in platform_records if isinstance(r, Domain)},
        platform_keys=tuple(r for r in platform_records if isinstance(r, DkimKey)),
    )


def _decode_key(body: str) -> Key | None:
    """Decode a stored key; None if not even its identity can be read.

    A key that this version cannot read in full permits nothing.
    """
    try:
        return msgspec.json.decode(body, type=Key)
    except msgspec.DecodeError:
        with suppress(msgspec.DecodeError):
            identity = msgspec.structs.asdict(msgspec.json.decode(body, type=_KeyIdentity))
            return Key(**identity, scopes=(), restrictions=PERMITS_NOTHING)
    return None


class _KeyIdentity(msgspec.Struct, frozen=True):
    """The fields that identify and validate a key. All other fields of the stored key are ignored."""

    id: str
    team: str
    name: str
    hash: str
    revoked: bool = False
    expires_at: int | None = None


def _build_team(record: TeamRecord, records: list[SetupRecord]) -> Team:
    return Team(
        record=record,
        domains={r.name: r for r in records if isinstance(r, Domain)},
        dkim_keys=tuple(r for r in records if isinstance(r, DkimKey)),
        display_names={r.id: r for r in records if isinstance(r, DisplayName)},
        templates={r.id: r for r in records if isinstance(r, Template)},
        upstream={(r.name, r.language): r for r in records if isinstance(r, UpstreamTemplate)},
        layouts={r.id: r for r in records if isinstance(r, Layout)},
        sender_ids={r.country: r for r in records if isinstance(r, SenderId)},
        recipients=frozenset(r.address for r in records if isinstance(r, Recipient)),
        inbound=frozenset(r.address for r in records if isinstance(r, Inbound)),
        webhooks=tuple(r for r in records if isinstance(r, Webhook)),
        hook_keys=tuple(r for r in records if isinstance(r, Key) and r.secret),
        clock=next((r for r in records if isinstance(r, TeamClock)), None),
    )
