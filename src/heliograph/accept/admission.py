"""Authenticates, authorises and rate-limits requests of every protocol (contract 2), and writes the request log.

The order is key → team → scope → network → rate limit.
"""

from collections.abc import Mapping
from contextlib import suppress

from heliograph.accept.context import Context
from heliograph.accept.rate import RateLimits, Turn
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.operations.request_log import took_ms
from heliograph.domain.refusals import (
    OF_SETUP,
    InsufficientScope,
    InvalidApiKey,
    RateLimitExceeded,
    Refusal,
    TeamSuspended,
)
from heliograph.domain.setup import keys
from heliograph.domain.setup.records import Caller, Key
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.requests import LoggedRequest
from heliograph.webhooks.policy.signature import is_signed

MESSAGE_MAX = 500  # longest refusal message in the request log, in characters


class Admission:
    """Authenticates, authorises and rate-limits every request of this process."""

    def __init__(self, context: Context, rates: RateLimits) -> None:
        self._context = context
        self._rates = rates

    def find(self, token: bytes) -> Caller:
        """Return the caller that owns the API key `token`; raise InvalidApiKey if the key is unknown or invalid."""
        context = self._context
        try:
            given = token.decode("ascii").strip()
        except UnicodeDecodeError:
            raise InvalidApiKey() from None
        return keys.find_caller(given, context.store.setup.current.callers, context.clock.now())

    async def signer(self, team: str, given: Mapping[str, str], body: bytes) -> Caller:
        """Return the caller whose hook key of `team` signed the request.

        Reloads the setup once if no key matches. `given`: the request's headers.
        """
        setup, seen = self._context.store.setup, self._context.store.setup.current
        try:
            return self._find_signer(team, given, body)
        except InvalidApiKey:
            if not given.get("webhook-signature") or not await setup.learned_since(seen):
                raise
            return self._find_signer(team, given, body)

    def _find_signer(self, team: str, given: Mapping[str, str], body: bytes) -> Caller:
        setup, now = self._context.store.setup.current, self._context.clock.now()
        for key in setup.teams[team].hook_keys if team in setup.teams else ():
            with suppress(ValueError):  # skip a key that cannot be decrypted: the master secret was changed
                if keys.works(key, now) and is_signed([self._secret(key)], given, body, now // SECOND_MS):
                    return setup.callers[key.id]
        raise InvalidApiKey("The signature does not match a hook's key of this team that works.")

    def _secret(self, key: Key) -> str:
        return self._context.unseal(key.secret, f"hook/{key.id}").decode().removeprefix(keys.HOOK)

    def admit(self, caller: Caller, scopes: tuple[str, ...], address: str) -> Turn:
        """Count the request against the key's rate limit and return the decision; raise a Refusal if not allowed."""
        key, record = caller.key, caller.team.record
        now = self._context.clock.of(record.ref)
        self._context.state.used[key.id] = now
        if record.suspended:
            raise TeamSuspended()
        if scopes != key.scopes and set(scopes).isdisjoint(key.scopes):
            raise InsufficientScope(
                f"This endpoint needs a key with the scope {' or '.join(scopes)}; "
                f"this key has {', '.join(key.scopes) or 'none'}."
            )
        if key.networks:
            keys.check_network(key, address)
        turn = self._rates.take(key.id, record.rate_limit, now)
        if not turn.allowed and not turn.asks:
            raise RateLimitExceeded(
                f"This key may make {record.rate_limit} requests a second. {RateLimitExceeded.fix}",
                retry_after=turn.wait_s,
            )
        return turn

    async def enter(self, token: bytes, scopes: tuple[str, ...], address: str) -> tuple[Caller, Turn]:
        """Authenticate and admit a request; return its caller and rate-limit decision.

        Before a refusal is raised, the setup is refreshed and the request is decided again.
        """
        seen = self._context.store.setup.current
        try:
            caller = self.find(token)
            turn = self.admit(caller, scopes, address)
        except Refusal as refusal:
            if not await self.learned(refusal, token, seen):
                raise
            caller = self.find(token)
            turn = self.admit(caller, scopes, address)
        return caller, await self.agreed(turn, caller, scopes, address) if turn.asks else turn

    async def agreed(self, turn: Turn, caller: Caller, scopes: tuple[str, ...], address: str) -> Turn:
        """Sync rate-limit counts with the other processes and decide again, until the decision needs no sync."""
        while turn.asks:
            await self._rates.agree()
            turn = self.admit(caller, scopes, address)
        return turn

    async def learned(self, refusal: Refusal, token: bytes, seen: Setup) -> bool:
        """Return whether the setup has changed since `seen`, so that a refused request must be decided again."""
        setup = self._context.store.setup
        if isinstance(refusal, InvalidApiKey):  # no newer setup helps if the key is malformed or already known
            public = keys.parse_token(token.decode("ascii", "replace").strip())
            if public is None or public in seen.callers:
                return False
        return isinstance(refusal, OF_SETUP) and await setup.learned_since(seen)

    def newest(self, caller: Caller) -> Caller:
        """Return the caller with the same key from the newest setup."""
        return self._context.store.setup.current.callers.get(caller.key.id, caller)

    def look(self, caller: Caller) -> Turn:
        """Return the key's rate-limit status without taking a token."""
        record = caller.team.record
        return self._rates.take(caller.key.id, record.rate_limit, self._context.clock.of(record.ref), cost=0)

    def keeps(self, caller: Caller) -> bool:
        """Return whether to log this request; at most `log_requests_per_second` per team are logged."""
        most = self._context.store.setup.current.platform.log_requests_per_second
        return self._context.state.requests.keeps(caller.team.record.ref, most)

    def note(
        self,
        id_: str,
        caller: Caller,
        route: str,
        status: int,
        *,
        subject: str = "",
        replayed: bool = False,
        refusal: Refusal | None = None,
    ) -> None:
        """Log a request of a team: every refusal, and the successful requests that `keeps` has selected.

        Requests with a platform key belong to no team and are not logged.
        """
        clock, requests, team = self._context.clock, self._context.state.requests, caller.team.record.ref
        if not team:
            return
        now = clock.now()
        logged = LoggedRequest(
            id=id_,
            at=now + clock.moved.get(team, 0),
            team=team,
            key=caller.key.id,
            route=route,
            status=status,
            code=refusal.code if refusal else "",
            message=refusal.message[:MESSAGE_MAX] if refusal else "",
            took_ms=took_ms(id_, now),
            replayed=int(replayed),
            subject=subject,
            refused=int(status >= 400),
        )
        if refusal:
            requests.waiting.append(logged)
        else:
            requests.note(logged)
