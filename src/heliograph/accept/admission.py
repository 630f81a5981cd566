"""From the API key to the caller, in memory."""

from heliograph.rules.refusals import InsufficientScope, InvalidApiKey
from heliograph.rules.setup import keys
from heliograph.rules.setup.records import Caller
from heliograph.rules.setup.snapshot import Setup


def find_caller(token: bytes, setup: Setup, now: int) -> Caller:
    try:
        return keys.find_caller(token.decode("ascii").strip(), setup.callers, now)
    except UnicodeDecodeError:
        raise InvalidApiKey() from None


def check_scope(caller: Caller, scopes: tuple[str, ...], address: str) -> None:
    """The key needs one of these, and is used from where it may be."""
    if not any(scope in caller.key.scopes for scope in scopes):
        raise InsufficientScope(
            f"This endpoint needs a key with the scope {' or '.join(scopes)}; "
            f"this key has {', '.join(caller.key.scopes) or 'none'}."
        )
    keys.check_network(caller.key, address)
