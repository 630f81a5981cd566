"""API keys: create, restrict, rotate with an overlap, revoke. Token hashes are stored; hook secrets are encrypted."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, get_args

import msgspec
from msgspec.structs import replace

from heliograph.changes.fields import check_fields, check_quota, is_single_line
from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.domain.field_docs import TIME, describe, schema_limits
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.limits import DAY_MS
from heliograph.domain.network.client_address import is_network
from heliograph.domain.refusals import InvalidApiKey, InvalidRequest, NotFound, TeamSuspended
from heliograph.domain.setup import key_restrictions
from heliograph.domain.setup.key_restrictions import RestrictionsRecord
from heliograph.domain.setup.keys import (
    ENTROPY_BYTES,
    HOOK_SECRET_PREFIX,
    check_grant,
    is_valid,
    make_token,
    public_id,
    token_hash,
)
from heliograph.domain.setup.records import Key, KeyRestrictions, KeyScope, Scope
from heliograph.domain.setup.secrets import Encrypt
from heliograph.domain.setup.snapshot import PLATFORM_TEAM, Row, Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store
from heliograph.templates.policy.values import passthrough_error
from heliograph.webhooks.policy.signature import ENTROPY_MIN, make_secret

AUDITED_MAX = 1000  # characters of restrictions in an audit entry
OVERLAP_MS = DAY_MS  # a rotated key stays valid for this long
NETWORKS_MAX = 20  # maximum networks per key
# maximum new keys per team in this period, including revoked and expired ones
CREATED_MAX, CREATED_WINDOW_MS = 5000, 30 * DAY_MS
KEY_STATES = ("works", "expires", "expired", "revoked")
_NUMBERED_NAME = re.compile(r"(.*?)(?: ([0-9]{1,4}))?", re.S)


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a new API key."""

    team: str  # id of the team; PLATFORM_TEAM for a platform key, which has only the scope `operate`
    name: str | None = None  # None for a name with the public id
    scopes: tuple[KeyScope, ...] = ("send",)
    domain: str | None = None
    expires_at: int | None = None
    networks: tuple[str, ...] = ()
    passthrough: str = ""
    restrictions: KeyRestrictions | None = None
    hook: bool = False  # create a hook key: it only verifies the signatures of hook requests


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A created key with its token."""

    key: Key
    token: str  # the token, which is shown only once; for a hook key, its secret
    old: Key | None = None  # the replaced key


class KeySummary(msgspec.Struct, frozen=True, kw_only=True):
    """A key in a list, with its state and last use."""

    record: Key
    state: str  # one of KEY_STATES
    used_at: int | None


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API key in responses, without its token."""

    id: Annotated[
        str, describe("Public id: the part of its token between `hk_` and the last `_`.", example="4fTzQ8kW1b")
    ]
    name: Annotated[str, describe("What it is for.", example="server")]
    scopes: Annotated[
        tuple[Annotated[str, schema_limits(enum=list(get_args(Scope)))], ...],
        describe("What it may do.", example=["send"]),
    ]
    domain: Annotated[str | None, describe("The domain that it is pinned to; null: none.")]
    state: Annotated[str, describe("Whether it works; `expires`: until `expires_at`.", enum=list(KEY_STATES))]
    expires_at: Annotated[str | None, describe("Until when it works; null: until it is revoked.", **TIME)]
    networks: Annotated[tuple[str, ...], describe("Where it may be used from; empty: anywhere.")]
    passthrough: Annotated[
        str | None, describe("The template that free text in Twilio's shape becomes; null: the team's.")
    ]
    restrictions: Annotated[RestrictionsRecord | None, describe("What it may send; null: no restrictions.")]
    hook: Annotated[bool, describe("Whether it signs hooks, such as Supabase's, and opens nothing else.")]
    last_used_at: Annotated[
        str | None, describe("Its last use, within a minute; null: never.", example="2026-11-15T09:30:00.000Z", **TIME)
    ]


async def create(store: Store, actor: Actor, parameters: NewKey, encrypt: Encrypt | None = None) -> CreatedKey:
    """Create an API key. If `actor` is itself a team's key, it cannot grant permissions that it lacks.

    `encrypt`: encrypts the secret of a hook key, which verifies the signatures of hook requests.
    """
    token, now = new_token(store.clock.random_bytes, store.cell, hook=parameters.hook), store.clock.now()
    fields = msgspec.structs.asdict(parameters)
    del fields["hook"]
    fields["name"] = f"key {public_id(token)}" if parameters.name is None else parameters.name.strip()
    created_at = now + store.setup.current.clock_offset(parameters.team)
    created = CreatedKey(
        key=_with_token(Key(id="", hash="", created_at=created_at, **fields), token, encrypt), token=token
    )

    def build_change(setup: Setup, _: int) -> SetupChange:
        check_fields(find_errors(setup, created.key, now))
        check_grant(_actor_key(setup, actor, now), created.key)
        _check_key_quota(setup, actor, created.key.team, now)
        return SetupChange(rows=[_key_row(created.key)], audit=_audit_entry(store, actor, "key.create", created.key))

    await store.setup.change(build_change, parameters.team)
    return created


async def rotate(
    store: Store, actor: Actor, id_: str, team: str | None = None, encrypt: Encrypt | None = None
) -> CreatedKey:
    """Replace a key with a new one of the same permissions; the old key stays valid for at most a day.

    The new key has the same restrictions, and both keys count toward the same limits. The new key does not expire,
    unless the actor is a key that expires.
    """
    token = new_token(store.clock.random_bytes, store.cell, hook=bool(_get_key(store.setup.current, team, id_).secret))
    now = store.clock.now()
    created: list[CreatedKey] = []

    def build_change(setup: Setup, _: int) -> SetupChange:
        old, actor_key = _get_key(setup, team, id_), _actor_key(setup, actor, now)
        if not is_valid(old, now):
            raise InvalidRequest("This key no longer works and can't be rotated. Create a new one.")
        _check_readable(old)
        name = next_name(old.name, {key.name for key in keys_of(setup, old.team)})
        new = replace(
            _with_token(old, token, encrypt),
            name=name,
            created_at=now + setup.clock_offset(old.team),
            counts_as=(old.counts_as or old.id) if old.restrictions else "",
            expires_at=actor_key.expires_at if actor_key else None,
        )
        check_grant(actor_key, new)
        replaced = replace(old, expires_at=min(now + OVERLAP_MS, old.expires_at or now + OVERLAP_MS))
        _check_key_quota(setup, actor, old.team, now, is_rotation=True)
        created.append(CreatedKey(key=new, token=token, old=replaced))
        audit_entry = _audit_entry(store, actor, "key.rotate", new)
        return SetupChange(rows=[_key_row(new), _key_row(replaced)], audit=audit_entry)

    await store.setup.change(build_change, team)
    return created[-1]


async def set_restrictions(
    store: Store, actor: Actor, id_: str, team: str, restrictions: KeyRestrictions | None, revision: str
) -> Key:
    """Set or remove the restrictions of a team's key, as a person or an operator; return the key.

    `revision`: revision of the restrictions that the user edited, which the form sends as `mark`. If the restrictions
    have changed since, the change is refused.
    """

    def build_change(setup: Setup, _: int) -> SetupChange:
        key = _get_key(setup, team, id_)
        if not is_valid(key, store.clock.now()):
            raise InvalidRequest("This key no longer works. Create a new one.")
        _check_readable(key)
        if key.restrictions == restrictions:
            return SetupChange()
        if revision != key_restrictions.restrictions_revision(key.restrictions):
            raise InvalidRequest("Someone changed the restrictions of this key while you were editing.", param="mark")
        before, after = (msgspec.json.encode(value).decode() for value in (key.restrictions, restrictions))
        detail = f"{key.id}: {before[:AUDITED_MAX]} → {after[:AUDITED_MAX]}"
        entry = actor.audit_entry(store.clock.now(), "key.restrict", key.name, detail, team=key.team or None)
        return SetupChange(rows=[_key_row(replace(key, restrictions=restrictions))], audit=entry)

    await store.setup.change(build_change, team)
    return _get_key(store.setup.current, team, id_)


async def revoke(store: Store, actor: Actor, id_: str, team: str | None = None) -> Key:
    """Revoke a key and return its record as it was before.

    Revoking cannot be undone. An API key may revoke itself and keys that it could have created.
    """
    keys_before, now = list[Key](), store.clock.now()

    def build_change(setup: Setup, _: int) -> SetupChange:
        key = _get_key(setup, team, id_)
        keys_before.append(key)
        actor_key = _actor_key(setup, actor, now)
        if actor_key and actor_key.id != key.id:
            check_grant(actor_key, key)
        if key.revoked:
            return SetupChange()
        audit_entry = _audit_entry(store, actor, "key.revoke", key)
        return SetupChange(rows=[_key_row(replace(key, revoked=True))], audit=audit_entry)

    await store.setup.change(build_change, team)
    return keys_before[-1]


async def list_keys(store: Store, team: str | None, unsaved_uses: Mapping[str, int]) -> list[KeySummary]:
    """List the keys of a team, or of all teams if `team` is None; valid keys first.

    `unsaved_uses`: key id → time of the last use, if not yet written to the database.
    """
    keys, now = keys_of(store.setup.current, team), store.clock.now()
    last_uses = await store.requests.read_key_uses(key.id for key in keys) | dict(unsaved_uses)
    summaries = [KeySummary(record=key, state=state_of(key, now), used_at=last_uses.get(key.id)) for key in keys]
    return sorted(
        summaries,
        key=lambda summary: (summary.record.team, summary.state in ("revoked", "expired"), summary.record.name),
    )


def to_record(summary: KeySummary) -> KeyRecord:
    key = summary.record
    return KeyRecord(
        id=key.id,
        name=key.name,
        scopes=key.scopes,
        domain=key.domain,
        state=summary.state,
        expires_at=timestamp(key.expires_at) if key.expires_at is not None else None,
        networks=key.networks,
        passthrough=key.passthrough or None,
        restrictions=key_restrictions.to_record(key.restrictions),
        hook=bool(key.secret),
        last_used_at=timestamp(summary.used_at) if summary.used_at is not None else None,
    )


def keys_of(setup: Setup, team: str | None) -> list[Key]:
    return [caller.key for caller in setup.callers.values() if team in (None, caller.team.record.id)]


def _check_readable(key: Key) -> None:
    """Refuse to change a key with fields that this version does not know: saving the key would lose these fields."""
    if not key.scopes:
        raise InvalidRequest("This version of the service cannot read this key. Create a new one.")


def _check_key_quota(setup: Setup, actor: Actor, team: str, now: int, *, is_rotation: bool = False) -> None:
    """Raise InvalidRequest if a team would exceed its limit of valid keys, or of keys created in 30 days.

    Revoked and expired keys are stored forever, so that they stay invalid. A rotation is exempt from the first limit:
    the extra key exists only for a day, and a leaked key must be replaceable.
    """
    keys = keys_of(setup, team)
    created_count = sum(key.created_at > now - CREATED_WINDOW_MS for key in keys)
    noun = "keys made within 30 days, with those that were revoked"
    check_quota(actor, "name", created_count, noun, limit=CREATED_MAX, fix="Use existing keys")
    if not is_rotation:
        check_quota(actor, "name", sum(is_valid(key, now) for key in keys), "keys that work")


def state_of(key: Key, now: int) -> str:
    if key.revoked:
        return "revoked"
    if key.expires_at is None:
        return "works"
    return "expires" if key.expires_at > now else "expired"


def end_of_day(day: str) -> int:
    """Return the end of a day such as 2027-01-31, or 0 (already past) if the day is invalid."""
    return parse_timestamp(f"{day}T23:59:59Z") or 0


def next_name(name: str, taken: set[str]) -> str:
    """Return the next free numbered name: `server`, `server 2`, `server 3`.

    The new name differs, so that a setup file with the old key's name does not change the new key.
    """
    match = _NUMBERED_NAME.fullmatch(name)
    assert match
    base, number = match[1][:190], int(match[2] or 1)
    return next(
        candidate
        for counter in range(number + 1, number + len(taken) + 2)
        if (candidate := f"{base} {counter}") not in taken
    )


def new_token(entropy: Callable[[int], bytes], cell: str, *, hook: bool) -> str:
    if hook:
        return HOOK_SECRET_PREFIX + make_secret(entropy(ENTROPY_MIN))
    return make_token(entropy(ENTROPY_BYTES), cell)


def _with_token(key: Key, token: str, encrypt: Encrypt | None) -> Key:
    id_, secret = public_id(token), ""
    if token.startswith(HOOK_SECRET_PREFIX):
        assert encrypt, "the secret of a hook key is stored encrypted"
        secret = encrypt(token.encode(), f"hook/{id_}")
    return replace(key, id=id_, hash=token_hash(token), secret=secret)


def _actor_key(setup: Setup, actor: Actor, now: int) -> Key | None:
    """Return the API key that makes the request, or None if the actor is not a key.

    Raises a Refusal if the key was revoked or has expired, or its team was suspended.
    """
    if actor.kind != "key":
        return None
    caller = setup.callers.get(actor.id)
    if caller is None or not is_valid(caller.key, now):
        raise InvalidApiKey
    if caller.team.record.suspended:
        raise TeamSuspended
    return caller.key


def find_errors(setup: Setup, key: Key, now: int) -> dict[str, str]:
    is_platform_key = key.team == PLATFORM_TEAM and key.scopes == ("operate",)
    if key.team not in setup.teams and not is_platform_key:
        return {"team": f"There is no team {key.team}. Known: {', '.join(setup.teams) or 'none'}."}
    errors = {}
    if not is_single_line(key.name):
        errors["name"] = "Enter a name of up to 200 characters."
    if any(other.name == key.name for other in keys_of(setup, key.team)):
        errors["name"] = f"Another {'platform key' if is_platform_key else 'key of the team'} has this name."
    if not key.scopes:
        errors["scopes"] = "Choose at least one permission."
    if key.secret and key.scopes != ("send",):
        errors["scopes"] = "Hook keys can only have the permission send."
    if "operate" in key.scopes and not is_platform_key:
        errors["scopes"] = "Only platform keys, which belong to no team, can have the permission operate."
    if key.restrictions is not None and is_platform_key:
        errors["restrictions"] = "Platform keys cannot send, so they have no restrictions."
    if key.domain is not None and (is_platform_key or key.domain not in setup.teams[key.team].domains):
        errors["domain"] = "The team doesn't have this domain."
    if key.expires_at is not None and key.expires_at <= now:
        errors["expires_at"] = "Choose today or a future date, or leave this empty."
    if len(key.networks) > NETWORKS_MAX or not all(is_network(text) for text in key.networks):
        errors["networks"] = f"Enter up to {NETWORKS_MAX} addresses or ranges such as 192.0.2.0/24."
    if (
        key.passthrough
        and not is_platform_key
        and (error := passthrough_error(setup.teams[key.team].templates.get(key.passthrough)))
    ):
        errors["passthrough"] = f"{key.passthrough} {error}."
    return errors


def _get_key(setup: Setup, team: str | None, id_: str) -> Key:
    caller = setup.callers.get(id_)
    if caller is None or team not in (None, caller.team.record.id):
        raise NotFound("There is no such key. Its id is the part of its token between hk_ and the last _.")
    return caller.key


def _key_row(key: Key) -> Row:
    return to_row("key", key.id, key, key.team or None)


def _audit_entry(store: Store, actor: Actor, action: str, key: Key) -> AuditEntry:
    return actor.audit_entry(store.clock.now(), action, key.name, key.id, team=key.team or None)
