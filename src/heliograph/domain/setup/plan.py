"""Plans the changes that a setup file makes to the current setup.

Only objects named in the file change. Planning the same file again yields no changes.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

from heliograph.domain.mail.address import Address
from heliograph.domain.phones.opt_out import keyword_error
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.carrier_kinds import SECRET_OPTIONS, encrypt_secrets
from heliograph.domain.setup.keys import HOOK_SECRET_PREFIX, is_hook_secret, public_id, token_hash
from heliograph.domain.setup.own_dkim_key import read_own_key
from heliograph.domain.setup.records import (
    DEFAULT_FORMAT,
    CarrierRecord,
    DisplayName,
    DkimKey,
    Domain,
    Key,
    Layout,
    Platform,
    SetupRecord,
    TeamRecord,
    Template,
    Webhook,
)
from heliograph.domain.setup.secrets import Vault, decrypt_options, is_encrypted
from heliograph.domain.setup.setup_file import SetupError, SetupFile
from heliograph.domain.setup.snapshot import (
    PLATFORM_ID,
    RECORD_TYPE_BY_KIND,
    RecordId,
    Row,
    Setup,
    to_row,
    verified_domains,
    verifying_team,
)
from heliograph.domain.setup.source_options import check_pools, pool_error
from heliograph.domain.validation import InvalidValue
from heliograph.templates.policy.check import TemplateProblem, category_in_use, category_problems, layout_problems
from heliograph.templates.policy.lint import find_layout_problems, find_problems
from heliograph.templates.policy.values import passthrough_error
from heliograph.templates.policy.variable_types import to_record_fields
from heliograph.webhooks.policy.webhook import MakeKeyPair, encrypt_login, encrypt_secret, new_key_pair, rotate_secret
from heliograph.webhooks.policy.webhook_url import split_login

# A change of any of these fields creates a new version of the template.
VERSIONED_TEMPLATE_FIELDS = (
    *("channel", "subject", "html", "text", "body"),
    *("category", "language", "upstream_name", "variables", "optional"),
    *("shapes", "locale", "locales", "timezone", "layout"),
)
VERSIONED_LAYOUT_FIELDS = ("html", "text")

S = TypeVar("S", bound=SetupRecord)


class PlannedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new API key; its token is shown only once."""

    team: str
    name: str
    token: str | None  # None if the caller knows the token, because it came from the environment


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook; its secret is shown only once."""

    team: str
    id: str
    url: str
    secret: str | None  # None if the caller knows the secret


class FileProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem in a template or layout of the file."""

    template_id: str  # for a layout, the lay_ id
    level: str
    code: str
    part: str  # part of the template or layout, such as subject
    locale: str | None
    line: int | None
    text: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    rows: list[Row]
    new_teams: list[tuple[int, int]]  # new teams: (ref, opening balance)
    suppressions: list[tuple[int, Address, str]]  # team ref, address, reason
    changed: list[str]  # one line per change, shown to the operator
    keys: list[PlannedKey]
    webhooks: list[NewWebhook]
    problems: list[FileProblem]


def plan(
    file: SetupFile,
    current: Setup,
    next_ref: int,
    make_token: Callable[[], str],
    new_id: Callable[[str], str],
    vault: Vault,
    suppressed: Collection[tuple[int, str]] = (),
    *,
    make_secret: Callable[[], str],
    make_pair: MakeKeyPair,
    now: int,
) -> Plan:
    """Return the rows to write so that the setup matches the file.

    `make_token` generates an API key, `make_secret` and `make_pair` a webhook's secrets; `vault` encrypts secrets.
    `suppressed`: (team ref, address) pairs that are already on the suppression lists.
    """
    planner = _Planner(file, current, make_token, new_id, vault, make_secret, make_pair, now)
    new_teams: list[tuple[int, int]] = []
    planner.plan_platform(file.platform)
    for i, carrier in enumerate(file.carriers):
        planner.plan_carrier(carrier, f"carriers[{i}]")
    for i, carrier in enumerate(file.carriers):
        planner.check_pools(carrier["id"], f"carriers[{i}]")
    for i, team_entry in enumerate(file.teams):
        path = f"teams[{i}]"
        team, is_new = planner.plan_team(team_entry, path, next_ref)
        if is_new:
            new_teams.append((team.ref, team_entry.get("credit", 0)))
            next_ref += 1
        _plan_team(planner, team, team_entry, path)
        for _, suppression in _entries(team_entry, "suppressions", path):
            planner.plan_suppression(team, suppression, suppressed)
    return Plan(
        rows=list(planner.rows.values()),
        new_teams=new_teams,
        suppressions=planner.suppressions,
        changed=planner.changed,
        keys=planner.keys,
        webhooks=planner.webhooks,
        problems=planner.problems,
    )


def _plan_team(planner: "_Planner", team: TeamRecord, team_entry: dict[str, Any], path: str) -> None:
    for entry_path, domain in _entries(team_entry, "domains", path):
        planner.plan_domain(team, domain, entry_path)
    for entry_path, layout in _entries(team_entry, "layouts", path):
        planner.plan_layout(team, layout, entry_path)
    for entry_path, template in _entries(team_entry, "templates", path):
        planner.plan_template(team, template, entry_path)
    if "categories" in team_entry:
        planner.check_categories(team, path)
    planner.check_passthrough(team, team_entry, path)
    for entry_path, key in _entries(team_entry, "keys", path):
        planner.check_passthrough(team, key, entry_path)
        planner.plan_key(team, key, entry_path)
    for entry_path, recipient in _entries(team_entry, "recipients", path):
        address = recipient["address"]
        planner.put_owned("recipient", f"{team.id}/{address}", recipient, entry_path, team, address)
    for entry_path, sender in _entries(team_entry, "sender_ids", path):
        country = sender["country"]
        planner.put_owned("sender_id", f"{team.id}/{country}", sender, entry_path, team, country)
    for entry_path, inbound in _entries(team_entry, "inbound", path):
        planner.plan_inbound(team, inbound, entry_path)
    for entry_path, webhook in _entries(team_entry, "webhooks", path):
        planner.plan_webhook(team, webhook, entry_path)


def next_version(old: Template | Layout, new: Template | Layout) -> int:
    content = VERSIONED_TEMPLATE_FIELDS if isinstance(new, Template) else VERSIONED_LAYOUT_FIELDS
    return old.version + any(getattr(new, part) != getattr(old, part) for part in content)


def _entries(table: dict[str, Any], name: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for i, entry in enumerate(table.get(name, [])):
        yield f"{path}.{name}[{i}]", entry


class _Planner:
    """Builds the plan step by step; `_records` contains the setup with the changes made so far."""

    def __init__(
        self,
        file: SetupFile,
        current: Setup,
        make_token: Callable[[], str],
        new_id: Callable[[str], str],
        vault: Vault,
        make_secret: Callable[[], str],
        make_pair: MakeKeyPair,
        now: int,
    ) -> None:
        self._vault = vault
        self._make_secret = make_secret
        self._make_pair = make_pair
        self._now = now
        self.rows: dict[RecordId, Row] = {}
        self.suppressions: list[tuple[int, Address, str]] = []
        self.changed: list[str] = []
        self.keys: list[PlannedKey] = []
        self.webhooks: list[NewWebhook] = []
        self.problems: list[FileProblem] = []
        self._file = file.name
        self._tokens = {
            public_id(key.get("token", "")) for team_entry in file.teams for key in team_entry.get("keys", [])
        }
        self._records = dict(current.records)
        self._path_by_record: dict[RecordId, str] = {}  # position in the file of each written record
        self._make_token = make_token
        self._new_id = new_id

    def plan_platform(self, fields: dict[str, Any]) -> None:
        if fields:
            self._put("platform", PLATFORM_ID, fields, "platform", None, "platform")

    def plan_carrier(self, fields: dict[str, Any], path: str) -> None:
        id_, options = fields["id"], fields["options"]
        old = self._records.get(("carrier", id_))
        if isinstance(old, CarrierRecord) and (old.channel, old.kind) == (fields["channel"], fields["kind"]):
            try:
                old_options = decrypt_options(
                    old.options, lambda text, field: self._vault.decrypt(text, f"carrier/{id_}/{field}")
                )
            except ValueError:  # the master secret was replaced: encrypt the values again
                old_options = {}
            # Encryption output differs each time, so an unchanged value keeps its ciphertext.
            unchanged = {name for name, value in options.items() if old_options.get(name) == value}
            options = old.options | {name: value for name, value in options.items() if name not in unchanged}
        new_secrets = {
            name: value for name, value in options.items() if name in SECRET_OPTIONS and not is_encrypted(value)
        }
        fields = fields | {
            "by_hand": False,
            "options": options
            | encrypt_secrets(new_secrets, lambda plain, field: self._vault.encrypt(plain, f"carrier/{id_}/{field}")),
        }
        self._put("carrier", fields["id"], fields, path, None, f"carrier {fields['id']}")

    def check_pools(self, id_: str, path: str) -> None:
        """Raise SetupError if a pool of the carrier names an address or an overflow carrier that does not exist."""
        record = self._records["carrier", id_]
        assert isinstance(record, CarrierRecord)
        try:
            check_pools(record, self._list_records(CarrierRecord))
        except InvalidValue as error:
            self._fail(f"{path}.{error.path}", error.reason)

    def plan_team(self, entry: dict[str, Any], path: str, next_ref: int) -> tuple[TeamRecord, bool]:
        id_ = entry["id"]
        fields = {name: value for name, value in entry.items() if name in TeamRecord.__struct_fields__}
        old = self._records.get(("team", id_))
        if isinstance(old, TeamRecord):
            fields["ref"] = old.ref
            for part in ("verify", "opt_out"):
                fields[part] = msgspec.to_builtins(getattr(old, part)) | entry.get(part, {})
        else:
            fields = {"name": id_} | fields | {"ref": next_ref}
        record = self._put("team", id_, fields, path, id_, f"team {id_}")
        assert isinstance(record, TeamRecord)
        errors = {
            "catch": record.catch_error,
            "test_clock": record.test_clock_error,
            "suspended": record.suspended_error,
            "keep_messages_days": record.retention_error,
            "opt_out.start_words": keyword_error(record.opt_out) if "opt_out" in entry else "",
            "pool": pool_error(record.pool, self._list_records(CarrierRecord)) if "pool" in entry else "",
        }
        for field, error in errors.items():
            if error:
                self._fail(f"{path}.{field}", error)
        return record, old is None

    def plan_domain(self, team: TeamRecord, entry: dict[str, Any], path: str) -> None:
        name, id_ = entry["name"], entry.get("id")
        domains_with_name = [domain for domain in self._list_records(Domain) if domain.name == name]
        if any(domain.verified and domain.team != team.id for domain in domains_with_name):
            self._fail(f"{path}.name", f"{name} is a verified domain of another team")
        existing = next((domain for domain in domains_with_name if domain.team == team.id), None)
        if existing and id_ not in (None, existing.id):
            self._fail(f"{path}.id", f"{name} already has the id {existing.id}")
        id_ = id_ or (existing.id if existing else self._new_id("dom_"))
        old = self._records.get(("domain", id_))
        if isinstance(old, Domain) and old.team == team.id and old.name != name:
            # An operator's decision about one name must not apply to another.
            self._fail(f"{path}.name", f"{id_} is the id of the domain {old.name}; use another id for {name}")
        fields = {
            field: value for field, value in entry.items() if field not in ("display_names", "private_key", "selector")
        }
        zone = self._platform_dkim_zone()
        defaults = {} if old else {"brand": team.name, "by_dns": True, "dkim": "cname" if zone else "txt"}
        method = fields.get("dkim") or (old.dkim if isinstance(old, Domain) else defaults["dkim"])
        if fields.get("dkim") == "cname" and not zone:
            self._fail(f"{path}.dkim", "needs dkim_zone in [platform]")
        for field in ("private_key", "selector"):
            if method == "cname" and field in entry:
                self._fail(f"{path}.{field}", 'needs dkim = "txt"')
        if "verified" in fields:
            fields["by_dns"] = False  # the operator decides in the file, not DNS
        self.put_owned("domain", id_, defaults | fields | {"id": id_}, path, team)
        if "private_key" in entry or "selector" in entry:
            self._plan_own_dkim_key(team, id_, entry, path)
        for entry_path, display_name in _entries(entry, "display_names", path):
            self._plan_display_name(team, id_, display_name, entry_path)

    def _platform_dkim_zone(self) -> str:
        platform = self._records.get(("platform", PLATFORM_ID))
        return platform.dkim_zone if isinstance(platform, Platform) else ""

    def _plan_own_dkim_key(self, team: TeamRecord, domain: str, entry: dict[str, Any], path: str) -> None:
        """Add the key that the team imports.

        The key signs at once for a domain without keys, otherwise as soon as its DNS record is found.
        """
        try:
            private, algorithm, public = read_own_key(entry.get("private_key"), entry.get("selector"))
        except InvalidRequest as refusal:
            self._fail(f"{path}.{refusal.param}", refusal.message)
        id_ = f"{domain}/{entry['selector']}"
        keys = [key for key in self._list_records(DkimKey) if key.domain == domain]
        if any(key.id == id_ and key.public == public for key in keys):
            return
        if any(key.selector == entry["selector"] for key in keys):
            self._fail(f"{path}.selector", "is used by another key of the domain; use a different selector")
        key_fields = {
            "id": id_,
            "domain": domain,
            "selector": entry["selector"],
            "algorithm": algorithm,
            "sealed": self._vault.encrypt(private, f"dkim/{id_}"),
            "public": public,
            "state": "pending" if keys else "active",
            "made_at": self._now,
        }
        self.put_owned("dkim_key", id_, key_fields, path, team)

    def _plan_display_name(self, team: TeamRecord, domain: str, fields: dict[str, Any], path: str) -> None:
        existing_ids = (d.id for d in self._list_records(DisplayName) if (d.domain, d.name) == (domain, fields["name"]))
        id_ = fields.get("id") or next(existing_ids, None) or self._new_id("dn_")
        old = self._records.get(("display_name", id_))
        if isinstance(old, DisplayName) and old.team == team.id and old.domain != domain:
            self._fail(f"{path}.id", f"{id_} belongs to the domain {old.domain}")
        self.put_owned("display_name", id_, fields | {"id": id_, "domain": domain}, path, team)

    def plan_layout(self, team: TeamRecord, fields: dict[str, Any], path: str) -> None:
        existing_ids = (
            layout.id
            for layout in self._list_records(Layout)
            if (layout.team, layout.name) == (team.id, fields.get("name"))
        )
        id_ = fields.get("id") or next(existing_ids, None) or self._new_id("lay_")
        old = self._records.get(("layout", id_))
        defaults = {} if old else {"name": id_}
        fields = defaults | fields | {"id": id_, "team": team.id}
        new = self._merge(old, "layout", fields, path)
        assert isinstance(new, Layout)
        if isinstance(old, Layout):
            fields["version"] = next_version(old, new)
        self.put_owned("layout", id_, fields, path, team)
        self._check_problems(id_, path, find_layout_problems(new))

    def plan_template(self, team: TeamRecord, fields: dict[str, Any], path: str) -> None:
        identity = (team.id, fields.get("channel"), fields.get("name"))
        existing_ids = (t.id for t in self._list_records(Template) if (t.team, t.channel, t.name) == identity)
        id_ = fields.get("id") or next(existing_ids, None) or self._new_id("tpl_")
        old = self._records.get(("template", id_))
        if isinstance(old, Template) and fields.get("channel", old.channel) != old.channel:
            self._fail(f"{path}.channel", f"{id_} is a template for {old.channel}; use another id for a new template")
        defaults = {} if old else {"name": id_}
        fields = to_record_fields(defaults | fields | {"id": id_, "team": team.id})
        new = self._merge(old, "template", fields, path)
        assert isinstance(new, Template)
        if isinstance(old, Template):
            fields["version"] = next_version(old, new)
        self.put_owned("template", id_, fields, path, team)
        layouts = {layout.id: layout for layout in self._list_records(Layout) if layout.team == team.id}
        previous_layouts = {old.layout} if isinstance(old, Template) else set()
        problems = [
            *find_problems(new, layouts.get(new.layout or "")),
            *layout_problems(new, layouts, previous_layouts),
            *category_problems(new, team.categories),
        ]
        self._check_problems(id_, path, problems)

    def _check_problems(self, id_: str, path: str, problems: list[TemplateProblem]) -> None:
        """Raise SetupError if a problem of the template or layout `id_` is an error; otherwise collect the warnings."""
        file_problems = [FileProblem(template_id=id_, **msgspec.structs.asdict(item)) for item in problems]
        for problem in problems:
            if problem.level == "error":
                raise SetupError(f"{self._file}: {path}.{problem}", file_problems)
        self.problems += file_problems

    def check_categories(self, team: TeamRecord, path: str) -> None:
        """Raise SetupError if a template, in the file or not, has a category that the team no longer has."""
        templates = [template for template in self._list_records(Template) if template.team == team.id]
        if error := category_in_use(team, templates):
            self._fail(f"{path}.categories", error)

    def check_passthrough(self, team: TeamRecord, entry: dict[str, Any], path: str) -> None:
        template = self._records.get(("template", entry.get("passthrough", "")))
        team_template = template if isinstance(template, Template) and template.team == team.id else None
        if entry.get("passthrough") and (reason := passthrough_error(team_template)):
            self._fail(f"{path}.passthrough", f"{entry['passthrough']} {reason}")

    def plan_key(self, team: TeamRecord, entry: dict[str, Any], path: str) -> None:
        name, token = entry["name"], entry.get("token")
        existing_keys = [k for k in self._list_records(Key) if (k.team, k.name) == (team.id, name)]
        existing_keys.sort(key=lambda k: k.revoked)  # prefer a valid key to a revoked one
        label = f"{name} of {team.id}"
        if (first_path := self._path_by_record.setdefault(("key name", label), path)) != path:
            self._fail(path, f"is a duplicate of {first_path}")
        fields = {field: value for field, value in entry.items() if field not in ("token", "hook")}
        if "restrictions" in fields:  # an empty table removes the restrictions
            fields["restrictions"] = fields["restrictions"] or None
        is_hook = entry.get(
            "hook", is_hook_secret(token or "") or (token is None and any(k.secret for k in existing_keys))
        )
        if is_hook and fields.get("scopes", ["send"]) != ["send"]:
            self._fail(f"{path}.scopes", 'the key of a hook can only have ["send"]')
        if token is not None and is_hook != is_hook_secret(token):
            self._fail(f"{path}.token", "must be v1,whsec_… for the key of a hook, and hk_… for any other key")
        if token is None and existing_keys:
            if is_hook != bool(existing_keys[0].secret):
                self._fail(f"{path}.hook", "cannot be changed; create a key with another name")
            self.put_owned("key", existing_keys[0].id, fields, path, team, name)
            return
        new_token = token or (HOOK_SECRET_PREFIX + self._make_secret() if is_hook else self._make_token())
        public = public_id(new_token)
        assert public is not None  # checked when the file was parsed
        fields |= {"id": public, "hash": token_hash(new_token)}
        old = self._records.get(("key", public))
        if is_hook and not (isinstance(old, Key) and self._decrypt(old.secret, f"hook/{old.id}")):
            fields["secret"] = self._vault.encrypt(new_token.encode(), f"hook/{public}")
        if isinstance(old, Key) and (old.team, old.hash) != (team.id, fields["hash"]):
            self._fail(f"{path}.token", "is used by another key; use a different token")
        if old is None:
            fields["created_at"] = self._now
            if existing_keys:  # a new token must not lift the restrictions of the old one
                fields = _inherited_restrictions(existing_keys[0]) | fields
        self.put_owned("key", public, fields, path, team, name)
        if old is None:
            self.keys.append(PlannedKey(team=team.id, name=name, token=new_token))
        for replaced in existing_keys:
            if not replaced.revoked and replaced.id not in self._tokens:
                self._save("key", replaced.id, msgspec.structs.replace(replaced, revoked=True), team.id)
                self.changed.append(f"key {label}: previous token revoked")

    def _decrypt(self, ciphertext: str | None, context: str) -> bytes | None:
        """Decrypt a stored secret; None if there is none, or if the master secret has changed."""
        try:
            return self._vault.decrypt(ciphertext, context) if ciphertext else None
        except ValueError:
            return None

    def plan_inbound(self, team: TeamRecord, fields: dict[str, Any], path: str) -> None:
        address = fields["address"]
        name = address.rpartition("@")[2]
        if verifying_team(verified_domains(self._records.values()), name) != team.id:
            self._fail(f"{path}.address", f"{name} is neither a domain verified by {team.id} nor a subdomain of one")
        self.put_owned("inbound", f"{team.id}/{address}", fields, path, team, address)

    def plan_webhook(self, team: TeamRecord, entry: dict[str, Any], path: str) -> None:
        """Plan a webhook; its URL identifies it within the team."""
        url, login = split_login(entry["url"])
        fields = {field: value for field, value in entry.items() if field != "secret"} | {"url": url}
        old = next((hook for hook in self._list_records(Webhook) if (hook.team, hook.url) == (team.id, url)), None)
        if old is None:
            id_, secret = self._new_id("whk_"), entry.get("secret") or self._make_secret()
            fields |= {"id": id_, "secret": encrypt_secret(self._vault, id_, secret), "created_at": self._now}
            self.webhooks.append(NewWebhook(team=team.id, id=id_, url=url, secret=secret))
        else:
            id_ = old.id
            if "secret" in entry:
                fields = msgspec.to_builtins(rotate_secret(old, entry["secret"], self._now, self._vault)) | fields
        if login is not None:
            # Encryption output differs each time, so an unchanged login keeps its ciphertext.
            is_unchanged = old and self._decrypt(old.login, f"webhook/{id_}/login") == login.encode()
            fields["login"] = old.login if old and is_unchanged else encrypt_login(self._vault, id_, login)
        format_name = fields.get("format") or (old.format if old else DEFAULT_FORMAT)
        fields |= new_key_pair(id_, format_name, old, self._make_pair, self._vault)
        self.put_owned("webhook", id_, fields, path, team, url)

    def plan_suppression(
        self, team: TeamRecord, entry: dict[str, Any], suppressed: Collection[tuple[int, str]]
    ) -> None:
        address: Address = entry["email"]
        record_id = ("suppression", f"{team.id}/{address.normal}")
        if record_id not in self._path_by_record and (team.ref, address.normal) not in suppressed:
            self._path_by_record[record_id] = address.original
            self.suppressions.append((team.ref, address, entry.get("reason", "manual")))
            self.changed.append(f"suppression {address.original} of {team.id}: created")

    def put_owned(
        self,
        kind: str,
        id_: str,
        fields: dict[str, Any],
        path: str,
        team: TeamRecord,
        display_name: str | None = None,
    ) -> None:
        """Write a record owned by the team; `display_name` replaces the id in the output."""
        owner = getattr(self._records.get((kind, id_)), "team", team.id)
        if owner != team.id:
            self._fail(f"{path}.id", f"{id_} belongs to another team; ids must be unique in the instance")
        label = f"{kind.replace('_', ' ')} " + (f"{display_name} of {team.id}" if display_name else id_)
        self._put(kind, id_, fields | {"team": team.id}, path, team.id, label)

    def _put(self, kind: str, id_: str, fields: dict[str, Any], path: str, team: str | None, label: str) -> SetupRecord:
        first_path = self._path_by_record.setdefault((kind, id_), path)
        if first_path != path:
            self._fail(path, f"is a duplicate of {first_path}")
        old = self._records.get((kind, id_))
        new = self._merge(old, kind, fields, path)
        if new != old:
            self._save(kind, id_, new, team)
            self.changed.append(f"{label}: {_describe_change(old, new)}")
        return new

    def _merge(self, old: SetupRecord | None, kind: str, new_fields: dict[str, Any], path: str) -> SetupRecord:
        fields = ({} if old is None else msgspec.to_builtins(old)) | new_fields
        for field in msgspec.structs.fields(RECORD_TYPE_BY_KIND[kind]):
            if field.required and field.name not in fields:
                self._fail(f"{path}.{field.name}", f"is missing; it is required for a new {kind.replace('_', ' ')}")
        return msgspec.convert(fields, RECORD_TYPE_BY_KIND[kind])

    def _save(self, kind: str, id_: str, record: SetupRecord, team: str | None) -> None:
        self._records[kind, id_] = record
        self.rows[kind, id_] = to_row(kind, id_, record, team)

    def _list_records(self, kind: type[S]) -> list[S]:
        return [record for record in self._records.values() if isinstance(record, kind)]

    def _fail(self, path: str, reason: str) -> NoReturn:
        raise SetupError(f"{self._file}: {path}: {reason}")


def _inherited_restrictions(old: Key) -> dict[str, Any]:
    """Return the restrictions, in setup-file format, that a key with a new token inherits from the key `old`."""
    if old.restrictions is None:
        return {}
    return {"restrictions": msgspec.to_builtins(old.restrictions), "counts_as": old.counts_as or old.id}


def _describe_change(old: SetupRecord | None, new: SetupRecord) -> str:
    if old is None:
        return "created"
    fields = [name for name in new.__struct_fields__ if getattr(old, name) != getattr(new, name)]
    version = f"version {getattr(new, 'version', '')}" if "version" in fields else None
    return f"changed ({version or ', '.join(fields)})"
