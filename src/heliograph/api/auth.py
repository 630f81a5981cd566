"""From the Authorization header to the caller, in memory."""

from heliograph.rules.refusals import InsufficientScope, InvalidApiKey, MissingApiKey
from heliograph.rules.setup import keys
from heliograph.rules.setup.records import Caller
from heliograph.rules.setup.snapshot import Setup


def find_caller(header: bytes | None, setup: Setup, now: int) -> Caller:
    if header is None or header[:7].lower() != b"bearer ":
        raise MissingApiKey()
    try:
        token = header[7:].decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidApiKey() from None
    return keys.find_caller(token, setup.callers, now)


def check_scope(caller: Caller, scopes: tuple[str, ...]) -> None:
    """The key needs one of these."""
    if not any(scope in caller.key.scopes for scope in scopes):
        raise InsufficientScope(
            f"This endpoint needs a key with the scope {' or '.join(scopes)}; "
            f"this key has {', '.join(caller.key.scopes) or 'none'}."
        )
