"""Plans the changes that a setup file makes to the current setup. Only what the file names changes; idempotent."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

from heliograph.domain.mail.address import Address
from heliograph.domain.setup.carrier_kinds import SECRETS, sealed
from heliograph.domain.setup.keys import HOOK, is_hook_secret, public_id, token_hash
from heliograph.domain.setup.records import (
    OWN_FORMAT,
    CarrierRecord,
    DisplayName,
    Domain,
    Key,
    Layout,
    Setting,
    TeamRecord,
    Template,
    Webhook,
)
from heliograph.domain.setup.secrets import Vault, is_sealed, opened
from heliograph.domain.setup.setup_file import SetupError, SetupFile
from heliograph.domain.setup.snapshot import (
    KINDS,
    PLATFORM_ID,
    RecordId,
    Row,
    Setup,
    to_row,
    verified_by,
    verified_domains,
)
from heliograph.templates.policy.check import TemplateProblem, layout_problems
from heliograph.templates.policy.lint import problems_of, problems_of_layout
from heliograph.templates.policy.values import wrong_passthrough
from heliograph.templates.policy.variable_types import with_shapes
from heliograph.webhooks.policy.webhook import MakePair, new_pair, rotated, sealed_login, sealed_secret
from heliograph.webhooks.policy.webhook_url import split_login

# A change of any of these fields creates a new version of the template.
CONTENT = (
    *("channel", "subject", "html", "text", "body"),
    *("category", "language", "upstream_name", "variables", "optional"),
    *("shapes", "locale", "locales", "timezone", "layout"),
)
LAYOUT_CONTENT = ("html", "text")

S = TypeVar("S", bound=Setting)


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key; the token is shown only once."""

    team: str
    name: str
    token: str | None  # None if the caller knows the token: the token came from the environment


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook; the secret is shown only once."""

    team: str
    id: str
    url: str
    secret: str | None  # None if the caller knows the secret


class FileProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem in a template or layout of the file."""

    template_id: str  # for a layout, the lay_ id
    level: str
    code: str
    part: str
    locale: str | None
    line: int | None
    text: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    rows: list[Row]
    opened: list[tuple[int, int]]  # new teams: (ref, opening balance)
    suppressions: list[tuple[int, Address, str]]  # team ref, address, reason
    changed: list[str]  # summary lines for the operator
    keys: list[NewKey]
    webhooks: list[NewWebhook]
    problems: list[FileProblem]


def plan(
    file: SetupFile,
    current: Setup,
    next_ref: int,
    mint: Callable[[], str],
    new_id: Callable[[str], str],
    vault: Vault,
    suppressed: Collection[tuple[int, str]] = (),
    *,
    make_secret: Callable[[], str],
    make_pair: MakePair,
    now: int,
) -> Plan:
    """Return the rows to write so that the setup matches the file.

    `mint` generates a token, `make_secret` and `make_pair` a webhook's secrets; `vault` encrypts secrets; `suppressed`
    contains (team ref, address) pairs that are already on the suppression lists.
    """
    planner = _Planner(file, current, mint, new_id, vault, make_secret, make_pair, now)
    opened: list[tuple[int, int]] = []
    planner.platform(file.platform)
    for i, carrier in enumerate(file.carriers):
        planner.carrier(carrier, f"carriers[{i}]")
    for i, own in enumerate(file.teams):
        where = f"teams[{i}]"
        team, is_new = planner.team(own, where, next_ref)
        if is_new:
            opened.append((team.ref, own.get("credit", 0)))
            next_ref += 1
        _plan_team(planner, team, own, where)
        for _, suppression in _entries(own, "suppressions", where):
            planner.suppression(team, suppression, suppressed)
    return Plan(
        rows=list(planner.rows.values()),
        opened=opened,
        suppressions=planner.suppressions,
        changed=planner.changed,
        keys=planner.keys,
        webhooks=planner.webhooks,
        problems=planner.problems,
    )


def _plan_team(planner: "_Planner", team: TeamRecord, own: dict[str, Any], where: str) -> None:
    for step, domain in _entries(own, "domains", where):
        planner.domain(team, domain, step)
    for step, layout in _entries(own, "layouts", where):
        planner.layout(team, layout, step)
    for step, template in _entries(own, "templates", where):
        planner.template(team, template, step)
    planner.passthrough(team, own, where)
    for step, key in _entries(own, "keys", where):
        planner.passthrough(team, key, step)
        planner.key(team, key, step)
    for step, recipient in _entries(own, "recipients", where):
        address = recipient["address"]
        planner.owned("recipient", f"{team.id}/{address}", recipient, step, team, address)
    for step, sender in _entries(own, "sender_ids", where):
        country = sender["country"]
        planner.owned("sender_id", f"{team.id}/{country}", sender, step, team, country)
    for step, inbound in _entries(own, "inbound", where):
        planner.inbound(team, inbound, step)
    for step, webhook in _entries(own, "webhooks", where):
        planner.webhook(team, webhook, step)


def next_version(old: Template | Layout, new: Template | Layout) -> int:
    content = CONTENT if isinstance(new, Template) else LAYOUT_CONTENT
    return old.version + any(getattr(new, part) != getattr(old, part) for part in content)


def _entries(own: dict[str, Any], name: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for i, entry in enumerate(own.get(name, [])):
        yield f"{where}.{name}[{i}]", entry


class _Planner:
    """Builds the plan step by step; `_records` is the resulting setup."""

    def __init__(
        self,
        file: SetupFile,
        current: Setup,
        mint: Callable[[], str],
        new_id: Callable[[str], str],
        vault: Vault,
        make_secret: Callable[[], str],
        make_pair: MakePair,
        now: int,
    ) -> None:
        self._vault = vault
        self._make_secret = make_secret
        self._make_pair = make_pair
        self._now = now
        self.rows: dict[RecordId, Row] = {}
        self.suppressions: list[tuple[int, Address, str]] = []
        self.changed: list[str] = []
        self.keys: list[NewKey] = []
        self.webhooks: list[NewWebhook] = []
        self.problems: list[FileProblem] = []
        self._file = file.name
        self._tokens = {public_id(key.get("token", "")) for own in file.teams for key in own.get("keys", [])}
        self._records = dict(current.records)
        self._written: dict[RecordId, str] = {}  # position in the file of each written record
        self._mint = mint
        self._new_id = new_id

    def platform(self, given: dict[str, Any]) -> None:
        if given:
            self._put("platform", PLATFORM_ID, given, "platform", None, "platform")

    def carrier(self, given: dict[str, Any], where: str) -> None:
        id_, options = given["id"], given["options"]
        old = self._records.get(("carrier", id_))
        if isinstance(old, CarrierRecord) and (old.channel, old.kind) == (given["channel"], given["kind"]):
            try:
                before = opened(old.options, lambda text, field: self._vault.open(text, f"carrier/{id_}/{field}"))
            except ValueError:  # the master secret was replaced: encrypt the values again
                before = {}
            # Encryption output differs each time, so an unchanged value keeps its ciphertext.
            same = {name for name, value in options.items() if before.get(name) == value}
            options = old.options | {name: value for name, value in options.items() if name not in same}
        fresh = {name: value for name, value in options.items() if name in SECRETS and not is_sealed(value)}
        given = given | {
            "by_hand": False,
            "options": options | sealed(fresh, lambda plain, field: self._vault.seal(plain, f"carrier/{id_}/{field}")),
        }
        self._put("carrier", given["id"], given, where, None, f"carrier {given['id']}")

    def team(self, own: dict[str, Any], where: str, next_ref: int) -> tuple[TeamRecord, bool]:
        id_ = own["id"]
        given = {name: value for name, value in own.items() if name in TeamRecord.__struct_fields__}
        old = self._records.get(("team", id_))
        if isinstance(old, TeamRecord):
            given["ref"] = old.ref
            for part in ("verify", "opt_out"):
                given[part] = msgspec.to_builtins(getattr(old, part)) | own.get(part, {})
        else:
            given = {"name": id_} | given | {"ref": next_ref}
        record = self._put("team", id_, given, where, id_, f"team {id_}")
        assert isinstance(record, TeamRecord)
        if wrong := record.wrong_catch:
            self._fail(f"{where}.catch", wrong)
        if wrong := record.wrong_test_clock:
            self._fail(f"{where}.test_clock", wrong)
        if wrong := record.wrong_days:
            self._fail(f"{where}.keep_messages_days", wrong)
        return record, old is None

    def domain(self, team: TeamRecord, given: dict[str, Any], where: str) -> None:
        name, id_ = given["name"], given.get("id")
        same = [domain for domain in self._all(Domain) if domain.name == name]
        if any(domain.verified and domain.team != team.id for domain in same):
            self._fail(f"{where}.name", f"{name} is a verified domain of another team")
        named = next((domain for domain in same if domain.team == team.id), None)
        if named and id_ not in (None, named.id):
            self._fail(f"{where}.id", f"{name} has the id {named.id} already")
        id_ = id_ or (named.id if named else self._new_id("dom_"))
        old = self._records.get(("domain", id_))
        if isinstance(old, Domain) and old.team == team.id and old.name != name:
            # An operator's decision about one name must not apply to another.
            self._fail(f"{where}.name", f"{id_} is the domain {old.name}; give {name} an id of its own")
        own = {field: value for field, value in given.items() if field != "display_names"}
        unsaid = {} if old else {"brand": team.name, "by_dns": True}
        if "verified" in own:
            own["by_dns"] = False  # an operator decided
        self.owned("domain", id_, unsaid | own | {"id": id_}, where, team)
        for step, display_name in _entries(given, "display_names", where):
            self._display_name(team, id_, display_name, step)

    def _display_name(self, team: TeamRecord, domain: str, given: dict[str, Any], where: str) -> None:
        named = (d.id for d in self._all(DisplayName) if (d.domain, d.name) == (domain, given["name"]))
        id_ = given.get("id") or next(named, None) or self._new_id("dn_")
        old = self._records.get(("display_name", id_))
        if isinstance(old, DisplayName) and old.team == team.id and old.domain != domain:
            self._fail(f"{where}.id", f"{id_} belongs to the domain {old.domain}")
        self.owned("display_name", id_, given | {"id": id_, "domain": domain}, where, team)

    def layout(self, team: TeamRecord, given: dict[str, Any], where: str) -> None:
        named = (one.id for one in self._all(Layout) if (one.team, one.name) == (team.id, given.get("name")))
        id_ = given.get("id") or next(named, None) or self._new_id("lay_")
        old = self._records.get(("layout", id_))
        unsaid = {} if old else {"name": id_}
        given = unsaid | given | {"id": id_, "team": team.id}
        new = self._merged(old, "layout", given, where)
        assert isinstance(new, Layout)
        if isinstance(old, Layout):
            given["version"] = next_version(old, new)
        self.owned("layout", id_, given, where, team)
        self._look_at(id_, where, problems_of_layout(new))

    def template(self, team: TeamRecord, given: dict[str, Any], where: str) -> None:
        same = (team.id, given.get("channel"), given.get("name"))
        named = (t.id for t in self._all(Template) if (t.team, t.channel, t.name) == same)
        id_ = given.get("id") or next(named, None) or self._new_id("tpl_")
        old = self._records.get(("template", id_))
        unsaid = {} if old else {"name": id_}
        given = with_shapes(unsaid | given | {"id": id_, "team": team.id})
        new = self._merged(old, "template", given, where)
        assert isinstance(new, Template)
        if isinstance(old, Template):
            given["version"] = next_version(old, new)
        self.owned("template", id_, given, where, team)
        layouts = {layout.id: layout for layout in self._all(Layout) if layout.team == team.id}
        had = {old.layout} if isinstance(old, Template) else set()
        found = [*problems_of(new, layouts.get(new.layout or "")), *layout_problems(new, layouts, had)]
        self._look_at(id_, where, found)

    def _look_at(self, id_: str, where: str, problems: list[TemplateProblem]) -> None:
        """Raise if a problem is an error; otherwise collect the warnings."""
        told = [FileProblem(template_id=id_, **msgspec.structs.asdict(one)) for one in problems]
        for problem in problems:
            if problem.level == "error":
                raise SetupError(f"{self._file}: {where}.{problem}", told)
        self.problems += told

    def passthrough(self, team: TeamRecord, given: dict[str, Any], where: str) -> None:
        template = self._records.get(("template", given.get("passthrough", "")))
        own = template if isinstance(template, Template) and template.team == team.id else None
        if given.get("passthrough") and (why := wrong_passthrough(own)):
            self._fail(f"{where}.passthrough", f"{given['passthrough']} {why}")

    def key(self, team: TeamRecord, given: dict[str, Any], where: str) -> None:
        name, token = given["name"], given.get("token")
        named = [k for k in self._all(Key) if (k.team, k.name) == (team.id, name)]
        named.sort(key=lambda k: k.revoked)  # prefer a valid key to a revoked one
        label = f"{name} of {team.id}"
        if (first := self._written.setdefault(("key name", label), where)) != where:
            self._fail(where, f"is the same as {first}")
        own = {field: value for field, value in given.items() if field not in ("token", "hook")}
        hook = given.get("hook", is_hook_secret(token or "") or (token is None and any(k.secret for k in named)))
        if hook and own.get("scopes", ["send"]) != ["send"]:
            self._fail(f"{where}.scopes", 'a hook\'s key has ["send"] alone')
        if token is not None and hook != is_hook_secret(token):
            self._fail(f"{where}.token", "is v1,whsec_… for a hook's key, and hk_… for any other")
        if token is None and named:
            if hook != bool(named[0].secret):
                self._fail(f"{where}.hook", "cannot change; give the new key a name of its own")
            self.owned("key", named[0].id, own, where, team, name)
            return
        made = token or (HOOK + self._make_secret() if hook else self._mint())
        public = public_id(made)
        assert public is not None  # checked when the file was parsed
        own |= {"id": public, "hash": token_hash(made)}
        old = self._records.get(("key", public))
        if hook and not (isinstance(old, Key) and self._opens(old)):
            own["secret"] = self._vault.seal(made.encode(), f"hook/{public}")
        if isinstance(old, Key) and (old.team, old.hash) != (team.id, own["hash"]):
            self._fail(f"{where}.token", "is in use by another key; take a token of its own")
        if old is None:
            own["created_at"] = self._now
        self.owned("key", public, own, where, team, name)
        if old is None:
            self.keys.append(NewKey(team=team.id, name=name, token=made))
        for replaced in named:
            if not replaced.revoked and replaced.id not in self._tokens:
                self._save("key", replaced.id, msgspec.structs.replace(replaced, revoked=True), team.id)
                self.changed.append(f"key {label}: the token that it had before is revoked")

    def _opens(self, key: Key) -> bool:
        """Return whether the key's secret can be decrypted; False if the master secret has changed."""
        try:
            return bool(self._vault.open(key.secret, f"hook/{key.id}"))
        except ValueError:
            return False

    def inbound(self, team: TeamRecord, given: dict[str, Any], where: str) -> None:
        address = given["address"]
        name = address.rpartition("@")[2]
        if verified_by(verified_domains(self._records.values()), name) != team.id:
            self._fail(f"{where}.address", f"{name} is no domain that {team.id} has verified, nor inside one")
        self.owned("inbound", f"{team.id}/{address}", given, where, team, address)

    def webhook(self, team: TeamRecord, given: dict[str, Any], where: str) -> None:
        """Plan a webhook; its URL identifies it within the team."""
        url, login = split_login(given["url"])
        own = {field: value for field, value in given.items() if field != "secret"} | {"url": url}
        old = next((hook for hook in self._all(Webhook) if (hook.team, hook.url) == (team.id, url)), None)
        if old is None:
            id_, secret = self._new_id("whk_"), given.get("secret") or self._make_secret()
            own |= {"id": id_, "secret": sealed_secret(self._vault, id_, secret), "created_at": self._now}
            self.webhooks.append(NewWebhook(team=team.id, id=id_, url=url, secret=secret))
        else:
            id_ = old.id
            if "secret" in given:
                own = msgspec.to_builtins(rotated(old, given["secret"], self._now, self._vault)) | own
        if login is not None:
            own["login"] = old.login if old and self._has_login(old, login) else sealed_login(self._vault, id_, login)
        form = own.get("format") or (old.format if old else OWN_FORMAT)
        own |= new_pair(id_, form, old, self._make_pair, self._vault)
        self.owned("webhook", id_, own, where, team, url)

    def _has_login(self, hook: Webhook, login: str) -> bool:
        """Return whether the webhook already has this login. Encryption output differs each time, so an equal login is
        kept.
        """
        try:
            return bool(hook.login) and self._vault.open(hook.login or "", f"webhook/{hook.id}/login") == login.encode()
        except ValueError:
            return False

    def suppression(self, team: TeamRecord, given: dict[str, Any], suppressed: Collection[tuple[int, str]]) -> None:
        address: Address = given["email"]
        written = ("suppression", f"{team.id}/{address.normal}")
        if written not in self._written and (team.ref, address.normal) not in suppressed:
            self._written[written] = address.given
            self.suppressions.append((team.ref, address, given.get("reason", "manual")))
            self.changed.append(f"suppression {address.given} of {team.id}: created")

    def owned(
        self,
        kind: str,
        id_: str,
        given: dict[str, Any],
        where: str,
        team: TeamRecord,
        shown: str | None = None,
    ) -> None:
        """Write a record owned by the team; `shown` replaces the id in the output."""
        owner = getattr(self._records.get((kind, id_)), "team", team.id)
        if owner != team.id:
            self._fail(f"{where}.id", f"{id_} belongs to another team; ids are unique in the instance")
        label = f"{kind.replace('_', ' ')} " + (f"{shown} of {team.id}" if shown else id_)
        self._put(kind, id_, given | {"team": team.id}, where, team.id, label)

    def _put(self, kind: str, id_: str, given: dict[str, Any], where: str, team: str | None, label: str) -> Setting:
        first = self._written.setdefault((kind, id_), where)
        if first != where:
            self._fail(where, f"is the same as {first}")
        old = self._records.get((kind, id_))
        new = self._merged(old, kind, given, where)
        if new != old:
            self._save(kind, id_, new, team)
            self.changed.append(f"{label}: {_difference(old, new)}")
        return new

    def _merged(self, old: Setting | None, kind: str, given: dict[str, Any], where: str) -> Setting:
        fields = ({} if old is None else msgspec.to_builtins(old)) | given
        for field in msgspec.structs.fields(KINDS[kind]):
            if field.required and field.name not in fields:
                self._fail(f"{where}.{field.name}", f"is missing; a new {kind.replace('_', ' ')} needs it")
        return msgspec.convert(fields, KINDS[kind])

    def _save(self, kind: str, id_: str, record: Setting, team: str | None) -> None:
        self._records[kind, id_] = record
        self.rows[kind, id_] = to_row(kind, id_, record, team)

    def _all(self, kind: type[S]) -> list[S]:
        return [record for record in self._records.values() if isinstance(record, kind)]

    def _fail(self, where: str, why: str) -> NoReturn:
        raise SetupError(f"{self._file}: {where}: {why}")


def _difference(old: Setting | None, new: Setting) -> str:
    if old is None:
        return "created"
    fields = [name for name in new.__struct_fields__ if getattr(old, name) != getattr(new, name)]
    version = f"version {getattr(new, 'version', '')}" if "version" in fields else None
    return f"changed ({version or ', '.join(fields)})"
