"""API key tokens (contract 3): `hk_<10 public>_<43 secret><6 checksum>`; only the hash is stored.

In a cell, the public id begins with the cell's name: `hk_cell_01_<10>_…` (ADR 0047).

The secret of a hook key is `v1,whsec_…`, the format of Supabase's auth hooks. A hash of the secret does not suffice to
verify signatures, so the secret is stored encrypted.
"""

import hashlib
import hmac
import re
import zlib
from collections.abc import Mapping

from heliograph.domain.network.client_address import is_in_ranges
from heliograph.domain.refusals import InsufficientScope, InvalidApiKey, WrongCell
from heliograph.domain.setup.cells import CELL_NAME
from heliograph.domain.setup.records import Caller, Key
from heliograph.webhooks.policy.webhook import SECRET_BYTES, secret_size

ENTROPY_BYTES = 64  # 512 random bits for the 316 bits of a token: the modulo bias is below 2^-190

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PUBLIC_ID = re.compile(rf"(?:{CELL_NAME.pattern}_)?[0-9A-Za-z]{{10}}")
_SECRET_LENGTH = 43 + 6  # with the checksum
_TOKEN = re.compile(rf"(hk_({PUBLIC_ID.pattern})_[0-9A-Za-z]{{43}})([0-9A-Za-z]{{6}})")
HOOK_SECRET_PREFIX = "v1,"  # prefix of the secret of a hook key
RESTRICTED_CREATOR = "A restricted key cannot create, change or rotate keys. Ask an owner of the team."
_NO_HASH = "0" * 64  # compared if the key does not exist, so that both cases take the same time


def make_token(entropy: bytes, cell: str = "") -> str:
    """Return a new token. `cell`: name of the cell (ADR 0047) that creates the key; empty if there are no cells."""
    if len(entropy) < ENTROPY_BYTES:
        raise ValueError(f"a token needs {ENTROPY_BYTES} random bytes")
    letters = _base62(int.from_bytes(entropy), 53)
    text = f"hk_{cell and cell + '_'}{letters[:10]}_{letters[10:]}"
    return text + checksum(text)


def checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), 6)


def _base62(number: int, length: int) -> str:
    """Return the last `length` base-62 digits of the number."""
    digits = ""
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits


def parse_token(text: str) -> str | None:
    """Return the public id of a token; None if the token is not well-formed."""
    match = _TOKEN.fullmatch(text)
    return match[2] if match and checksum(match[1]) == match[3] else None


def cell_of(public_id: str) -> str:
    """Return the name of the cell in a key's public id; empty if the key was not created in a cell."""
    return public_id[:-11]


def is_hook_secret(text: str) -> bool:
    return text.startswith(HOOK_SECRET_PREFIX) and secret_size(text.removeprefix(HOOK_SECRET_PREFIX)) in SECRET_BYTES


def public_id(text: str) -> str | None:
    """Return the public id of a key from its token, or of a hook key from its secret; None if invalid."""
    if is_hook_secret(text):
        return _base62(int(token_hash(text), 16), 10)
    return parse_token(text)


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def has_hash(token: str, expected_hash: str) -> bool:
    return hmac.compare_digest(token_hash(token), expected_hash)


def check_grant(creator: Key | None, key: Key) -> None:
    """Reject a new key that has more rights or a longer validity than the key that creates it.

    Without this check the scope `manage` would grant everything. A platform key creates any keys of teams, like an
    operator.
    """
    if creator is None or "operate" in creator.scopes:
        return
    if creator.restrictions is not None:
        raise InsufficientScope(RESTRICTED_CREATOR)
    if missing := [scope for scope in key.scopes if scope not in creator.scopes]:
        raise InsufficientScope(f"This key does not have the scope {missing[0]} and cannot grant it.")
    if creator.domain not in (None, key.domain):
        raise InsufficientScope(f"This key is restricted to {creator.domain}; keys created with it must be, too.")
    if creator.expires_at is not None and (key.expires_at is None or key.expires_at > creator.expires_at):
        raise InsufficientScope("This key expires; keys created with it must not expire later.")
    if creator.networks and not (key.networks and set(key.networks) <= set(creator.networks)):
        raise InsufficientScope(
            f"This key works only from {', '.join(creator.networks)}; keys created with it must, too."
        )


def check_network(key: Key, address: str) -> None:
    """Reject a key that is used from a network that it does not permit.

    Loopback addresses are not exempt: behind an untrusted proxy, every request comes from a loopback address.
    """
    if key.networks and not is_in_ranges(address, key.networks):
        raise InsufficientScope(f"This key can be used only from {', '.join(key.networks)}, not from {address}.")


def authenticate(token: str, callers: Mapping[str, Caller], now: int, cell: str = "") -> Caller:
    """Return the caller who holds the token.

    `callers`: public id → caller; `now` is in ms. `cell`: name of this process's cell (ADR 0047); empty if it has none.
    Raises WrongCell if an unknown key names another cell, and InvalidApiKey for every other failure.
    """
    # A malformed token has no stored hash, so the lookup alone decides.
    caller = callers.get(token[3 : -_SECRET_LENGTH - 1])
    is_match = has_hash(token, caller.key.hash if caller else _NO_HASH)
    if caller is None or not is_match or caller.key.secret or not is_valid(caller.key, now):
        other = cell_of(parse_token(token) or "") if cell and caller is None else ""
        raise WrongCell.for_key(other, cell) if other not in ("", cell) else InvalidApiKey()
    return caller


def is_valid(key: Key, now: int) -> bool:
    return not key.revoked and (key.expires_at is None or key.expires_at > now)
