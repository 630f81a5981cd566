"""API keys: create, rotate with an overlap, revoke. Only the hash of a token is stored; hook secrets are encrypted."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, get_args

import msgspec
from msgspec.structs import replace

from heliograph.changes.fields import check_fields, check_room, is_line
from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.domain.field_docs import TIME, limited, says
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.limits import DAY_MS
from heliograph.domain.network.client_address import is_network
from heliograph.domain.refusals import InvalidApiKey, InvalidRequest, NotFound, TeamSuspended
from heliograph.domain.setup.keys import ENTROPY_BYTES, HOOK, check_giver, make_token, public_id, token_hash
from heliograph.domain.setup.records import Key, KeyScope, Scope
from heliograph.domain.setup.secrets import Seal
from heliograph.domain.setup.snapshot import PLATFORM_TEAM, Row, Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store
from heliograph.templates.policy.values import wrong_passthrough
from heliograph.webhooks.policy.signature import ENTROPY_MIN, make_secret

OVERLAP_MS = DAY_MS  # a rotated key stays valid for this long
NETWORKS_MAX = 20  # most networks per key
NEW_MAX, NEW_MS = 5000, 30 * DAY_MS  # most keys that a team may create in this time, including revoked and expired ones
STATES = ("works", "expires", "expired", "revoked")
_NUMBERED = re.compile(r"(.*?)(?: ([0-9]{1,4}))?", re.S)


class WantedKey(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a new API key."""

    team: str  # PLATFORM_TEAM with only the scope `operate` for a platform key
    name: str | None = None  # None for a name with the public id
    scopes: tuple[KeyScope, ...] = ("send",)
    domain: str | None = None
    expires_at: int | None = None
    networks: tuple[str, ...] = ()
    passthrough: str = ""
    hook: bool = False  # a hook key verifies signatures of hooks and permits nothing else


class MadeKey(msgspec.Struct, frozen=True, kw_only=True):
    """A created key with its token."""

    key: Key
    token: str  # shown once; for a hook key, its secret
    old: Key | None = None  # the replaced key


class KeyLine(msgspec.Struct, frozen=True, kw_only=True):
    """A key in a list, with its state and last use."""

    record: Key
    state: str  # one of STATES
    used_at: int | None


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key as its team reads it, without its token."""

    id: Annotated[str, says("Public id: the 10 characters after `hk_` in its token.", example="4fTzQ8kW1b")]
    name: Annotated[str, says("What it is for.", example="server")]
    scopes: Annotated[
        tuple[Annotated[str, limited(enum=list(get_args(Scope)))], ...], says("What it may do.", example=["send"])
    ]
    domain: Annotated[str | None, says("The domain that it is pinned to; null: none.")]
    state: Annotated[str, says("Whether it works; `expires`: until `expires_at`.", enum=list(STATES))]
    expires_at: Annotated[str | None, says("Until when it works; null: until it is revoked.", **TIME)]
    networks: Annotated[tuple[str, ...], says("Where it may be used from; empty: anywhere.")]
    passthrough: Annotated[str | None, says("The template that free text in Twilio's shape becomes; null: the team's.")]
    hook: Annotated[bool, says("Whether it signs hooks, such as Supabase's, and opens nothing else.")]
    last_used_at: Annotated[
        str | None, says("Its last use, within a minute; null: never.", example="2026-11-15T09:30:00.000Z", **TIME)
    ]


async def create(store: Store, actor: Actor, wanted: WantedKey, seal: Seal | None = None) -> MadeKey:
    """Create a key. An API key as actor cannot grant more than it has. `seal`: encrypts a hook's secret."""
    token, now = new_token(store.clock.entropy, hook=wanted.hook), store.clock.now()
    fields = msgspec.structs.asdict(wanted)
    del fields["hook"]
    fields["name"] = f"key {public_id(token)}" if wanted.name is None else wanted.name.strip()
    made_at = now + store.setup.current.ahead(wanted.team)
    made = MadeKey(key=_with_token(Key(id="", hash="", created_at=made_at, **fields), token, seal), token=token)

    def decide(setup: Setup, _: int) -> SetupChange:
        check_fields(wrong_fields(setup, made.key, now))
        check_giver(_giver(setup, actor, now), made.key)
        _check_room(setup, actor, made.key.team, now)
        row = _row(made.key)
        return SetupChange(rows=[row], audit=_entry(store, actor, "key.create", made.key))

    await store.setup.change(decide, wanted.team)
    return made


async def rotate(store: Store, actor: Actor, id_: str, team: str | None = None, seal: Seal | None = None) -> MadeKey:
    """Replace a key with a new one of the same permissions; the old key stays valid for a day at most.

    The new key does not expire, unless the actor is a key that does.
    """
    token = new_token(store.clock.entropy, hook=bool(_find(store.setup.current, team, id_).secret))
    now = store.clock.now()
    made: list[MadeKey] = []

    def decide(setup: Setup, _: int) -> SetupChange:
        old, giver = _find(setup, team, id_), _giver(setup, actor, now)
        if state_of(old, now) in ("revoked", "expired"):
            raise InvalidRequest("This key no longer works: there is nothing to rotate. Make a new one.")
        name = next_name(old.name, {key.name for key in keys_of(setup, old.team)})
        new = replace(_with_token(old, token, seal), name=name, created_at=now + setup.ahead(old.team))
        new = replace(new, expires_at=giver.expires_at if giver else None)
        check_giver(giver, new)
        ended = replace(old, expires_at=min(now + OVERLAP_MS, old.expires_at or now + OVERLAP_MS))
        _check_room(setup, actor, old.team, now, rotates=True)
        made.append(MadeKey(key=new, token=token, old=ended))
        rows = [_row(new), _row(ended)]
        return SetupChange(rows=rows, audit=_entry(store, actor, "key.rotate", new))

    await store.setup.change(decide, team)
    return made[-1]


async def revoke(store: Store, actor: Actor, id_: str, team: str | None = None) -> Key:
    """Revoke a key and return its state before.

    Revoking cannot be undone. An API key may revoke itself and keys that it could have created.
    """
    found, now = list[Key](), store.clock.now()

    def decide(setup: Setup, _: int) -> SetupChange:
        key = _find(setup, team, id_)
        found.append(key)
        giver = _giver(setup, actor, now)
        if giver and giver.id != key.id:
            check_giver(giver, key)
        if key.revoked:
            return SetupChange()
        row = _row(replace(key, revoked=True))
        return SetupChange(rows=[row], audit=_entry(store, actor, "key.revoke", key))

    await store.setup.change(decide, team)
    return found[-1]


async def lines(store: Store, team: str | None, noted: Mapping[str, int]) -> list[KeyLine]:
    """List keys, valid ones first; of all teams if `team` is None.

    `noted`: last uses not yet written to the database.
    """
    found, now = keys_of(store.setup.current, team), store.clock.now()
    used = await store.requests.key_uses(key.id for key in found) | dict(noted)
    made = [KeyLine(record=key, state=state_of(key, now), used_at=used.get(key.id)) for key in found]
    return sorted(made, key=lambda one: (one.record.team, one.state in ("revoked", "expired"), one.record.name))


def to_record(line: KeyLine) -> KeyRecord:
    key = line.record
    return KeyRecord(
        id=key.id,
        name=key.name,
        scopes=key.scopes,
        domain=key.domain,
        state=line.state,
        expires_at=timestamp(key.expires_at) if key.expires_at is not None else None,
        networks=key.networks,
        passthrough=key.passthrough or None,
        hook=bool(key.secret),
        last_used_at=timestamp(line.used_at) if line.used_at is not None else None,
    )


def keys_of(setup: Setup, team: str | None) -> list[Key]:
    return [caller.key for caller in setup.callers.values() if team in (None, caller.team.record.id)]


def _check_room(setup: Setup, actor: Actor, team: str, now: int, *, rotates: bool = False) -> None:
    """Raise InvalidRequest if a team would exceed its limit of valid keys, or of keys created in 30 days.

    Revoked and expired keys are stored forever, so that they stay invalid. A rotation is exempt from the first limit:
    the extra key exists only for a day, and a leaked key must be replaceable.
    """
    keys = keys_of(setup, team)
    new = sum(key.created_at > now - NEW_MS for key in keys)
    what = "keys made within 30 days, with those that were revoked"
    check_room(actor, "name", new, what, most=NEW_MAX, cure="Use those there are")
    if not rotates:
        works = sum(state_of(key, now) not in ("revoked", "expired") for key in keys)
        check_room(actor, "name", works, "keys that work")


def state_of(key: Key, now: int) -> str:
    if key.revoked:
        return "revoked"
    if key.expires_at is None:
        return "works"
    return "expires" if key.expires_at > now else "expired"


def end_of(day: str) -> int:
    """Return the end of a day such as 2027-01-31, or 0 (already past) if the day is invalid."""
    return parse_timestamp(f"{day}T23:59:59Z") or 0


def next_name(name: str, taken: set[str]) -> str:
    """Return the next free numbered name: `server`, `server 2`, `server 3`.

    The new name differs, so that a setup file with the old key's name does not change the new key.
    """
    found = _NUMBERED.fullmatch(name)
    assert found
    base, number = found[1][:190], int(found[2] or 1)
    return next(one for n in range(number + 1, number + len(taken) + 2) if (one := f"{base} {n}") not in taken)


def new_token(entropy: Callable[[int], bytes], *, hook: bool) -> str:
    return HOOK + make_secret(entropy(ENTROPY_MIN)) if hook else make_token(entropy(ENTROPY_BYTES))


def _with_token(key: Key, token: str, seal: Seal | None) -> Key:
    id_, secret = public_id(token), ""
    if token.startswith(HOOK):
        assert seal, "a hook's secret is kept"
        secret = seal(token.encode(), f"hook/{id_}")
    return replace(key, id=id_, hash=token_hash(token), secret=secret)


def _giver(setup: Setup, actor: Actor, now: int) -> Key | None:
    """Return the API key that makes the request, or None if the actor is not a key.

    Raises a refusal if the key was revoked or has expired, or its team was suspended.
    """
    if actor.kind != "key":
        return None
    caller = setup.callers.get(actor.id)
    if caller is None or state_of(caller.key, now) in ("revoked", "expired"):
        raise InvalidApiKey
    if caller.team.record.suspended:
        raise TeamSuspended
    return caller.key


def wrong_fields(setup: Setup, key: Key, now: int) -> dict[str, str]:
    is_platform = key.team == PLATFORM_TEAM and key.scopes == ("operate",)
    if key.team not in setup.teams and not is_platform:
        return {"team": f"There is no team {key.team}. Known: {', '.join(setup.teams) or 'none'}."}
    wrong = {}
    if not is_line(key.name):
        wrong["name"] = "Give it a name of one line, up to 200 characters."
    if any(other.name == key.name for other in keys_of(setup, key.team)):
        wrong["name"] = f"Another {'platform key' if is_platform else 'key of the team'} has this name."
    if not key.scopes:
        wrong["scopes"] = "Choose at least one."
    if key.secret and key.scopes != ("send",):
        wrong["scopes"] = "A hook's key has the permission send, and no other."
    if "operate" in key.scopes and not is_platform:
        wrong["scopes"] = "Only a platform key, which belongs to no team, has the permission operate."
    if key.domain is not None and (is_platform or key.domain not in setup.teams[key.team].domains):
        wrong["domain"] = "The team has no such domain."
    if key.expires_at is not None and key.expires_at <= now:
        wrong["expires_at"] = "Choose a day that is not over yet, or leave it empty."
    if len(key.networks) > NETWORKS_MAX or not all(is_network(text) for text in key.networks):
        wrong["networks"] = f"Give up to {NETWORKS_MAX} addresses or ranges such as 192.0.2.0/24."
    if (
        key.passthrough
        and not is_platform
        and (why := wrong_passthrough(setup.teams[key.team].templates.get(key.passthrough)))
    ):
        wrong["passthrough"] = f"{key.passthrough} {why}."
    return wrong


def _find(setup: Setup, team: str | None, id_: str) -> Key:
    caller = setup.callers.get(id_)
    if caller is None or team not in (None, caller.team.record.id):
        raise NotFound("There is no such key. Its id is the 10 characters after hk_ in its token.")
    return caller.key


def _row(key: Key) -> Row:
    return to_row("key", key.id, key, key.team or None)


def _entry(store: Store, actor: Actor, action: str, key: Key) -> AuditEntry:
    return actor.did(store.clock.now(), action, key.name, key.id, team=key.team or None)
