"""Authenticates, authorises and rate-limits requests of every protocol (contract 2), and writes the request log.

The order is key → team → scope → network → restrictions → rate limit.
"""

from collections.abc import Mapping
from contextlib import suppress

from heliograph.accept.context import Context
from heliograph.accept.rate import RateDecision, RateLimits
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.operations.request_log import duration_ms
from heliograph.domain.refusals import (
    SETUP_DEPENDENT_REFUSALS,
    InsufficientScope,
    InvalidApiKey,
    RateLimitExceeded,
    Refusal,
    TeamSuspended,
)
from heliograph.domain.setup import keys
from heliograph.domain.setup.key_restrictions import Action, check_action
from heliograph.domain.setup.records import PERMITS_NOTHING, Caller, Key
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.requests import LoggedRequest
from heliograph.webhooks.policy.signature import is_signed

LOGGED_MESSAGE_MAX = 500  # longest refusal message in the request log, in characters


class Admission:
    """Authenticates, authorises and rate-limits every request of this process."""

    def __init__(self, context: Context, rates: RateLimits) -> None:
        self._context = context
        self._rates = rates

    def find(self, token: bytes) -> Caller:
        """Return the caller that owns the API key `token`; raise InvalidApiKey or WrongCell if none does."""
        context = self._context
        try:
            decoded = token.decode("ascii").strip()
        except UnicodeDecodeError:
            raise InvalidApiKey() from None
        return keys.authenticate(decoded, context.store.setup.current.callers, context.clock.now(), context.store.cell)

    async def authenticate_hook(self, team: str, headers: Mapping[str, str], body: bytes) -> Caller:
        """Return the caller whose hook key signed the request to a hook of `team`; a hook key only verifies signatures.

        Reloads the setup once if no hook key matches.
        """
        setup, setup_before = self._context.store.setup, self._context.store.setup.current
        try:
            return self._find_signer(team, headers, body)
        except InvalidApiKey:
            if not headers.get("webhook-signature") or not await setup.refresh_if_newer(setup_before):
                raise
            return self._find_signer(team, headers, body)

    def _find_signer(self, team: str, headers: Mapping[str, str], body: bytes) -> Caller:
        setup, now = self._context.store.setup.current, self._context.clock.now()
        for key in setup.teams[team].hook_keys if team in setup.teams else ():
            with suppress(ValueError):  # skip a key that cannot be decrypted because the master secret changed
                if keys.is_valid(key, now) and is_signed([self._secret(key)], headers, body, now // SECOND_MS):
                    return setup.callers[key.id]
        raise InvalidApiKey("The signature does not match any active hook key of this team.")

    def _secret(self, key: Key) -> str:
        return self._context.decrypt(key.secret, f"hook/{key.id}").decode().removeprefix(keys.HOOK_SECRET_PREFIX)

    def admit(self, caller: Caller, scopes: tuple[str, ...], address: str, action: Action = "") -> RateDecision:
        """Count the request against the key's rate limit and return the decision; raise a Refusal if not allowed."""
        key, record = caller.key, caller.team.record
        now = self._context.clock.team_now(record.ref)
        self._context.state.last_used[key.id] = now
        if record.suspended:
            raise TeamSuspended()
        if scopes != key.scopes and set(scopes).isdisjoint(key.scopes):
            self.check_scope(caller, scopes)
        if key.networks:
            keys.check_network(key, address)
        if key.restrictions is not None:
            check_action(key, action)
        decision = self._rates.take(key.id, record.rate_limit, now)
        if not decision.allowed and not decision.needs_sync:
            raise RateLimitExceeded(
                f"This key may make {record.rate_limit} requests a second. {RateLimitExceeded.fix}",
                retry_after=decision.wait_s,
            )
        return decision

    @staticmethod
    def check_scope(caller: Caller, scopes: tuple[str, ...]) -> None:
        """Raise a Refusal if the key has none of these scopes."""
        key = caller.key
        if set(scopes).isdisjoint(key.scopes):
            raise InsufficientScope(
                "This version of the service cannot read the restrictions of this key, so the key permits nothing. "
                "Ask an owner of the team for a new key."
                if key.restrictions == PERMITS_NOTHING
                else f"This endpoint needs a key with the scope {' or '.join(scopes)}; "
                f"this key has {', '.join(key.scopes) or 'none'}."
            )

    async def authenticate_and_admit(
        self, token: bytes, scopes: tuple[str, ...], address: str, action: Action = ""
    ) -> tuple[Caller, RateDecision]:
        """Authenticate and admit a request; return its caller and rate-limit decision.

        If the request would be refused, the setup is reloaded; if the setup has changed, the request is checked again.
        """
        setup_before = self._context.store.setup.current
        try:
            caller = self.find(token)
            decision = self.admit(caller, scopes, address, action)
        except Refusal as refusal:
            if not await self.refresh_setup(refusal, token, setup_before):
                raise
            caller = self.find(token)
            decision = self.admit(caller, scopes, address, action)
        return caller, await self.wait_for_sync(decision, caller, scopes, address) if decision.needs_sync else decision

    async def wait_for_sync(
        self, decision: RateDecision, caller: Caller, scopes: tuple[str, ...], address: str
    ) -> RateDecision:
        """Sync rate-limit counts with the other processes and decide again, until the decision needs no sync."""
        while decision.needs_sync:
            await self._rates.sync()
            decision = self.admit(caller, scopes, address)
        return decision

    async def readmit(self, caller: Caller, scopes: tuple[str, ...], address: str) -> Caller:
        """Check and rate-limit another request of an authenticated caller; return the caller from the current setup."""
        current = self._context.store.setup.current.callers.get(caller.key.id)
        if current is None or not keys.is_valid(current.key, self._context.clock.now()):
            raise InvalidApiKey()
        decision = self.admit(current, scopes, address)
        await self.wait_for_sync(decision, current, scopes, address)
        return current

    async def refresh_setup(self, refusal: Refusal, token: bytes, setup_before: Setup) -> bool:
        """Load the setup if it is newer than `setup_before`; return True if the refused request must be checked again.

        The setup is not loaded if a newer setup cannot change the refusal.
        """
        setup = self._context.store.setup
        # A newer setup changes nothing if the key is malformed or was already known.
        if isinstance(refusal, InvalidApiKey):
            public = keys.parse_token(token.decode("ascii", "replace").strip())
            if public is None or public in setup_before.callers:
                return False
        return isinstance(refusal, SETUP_DEPENDENT_REFUSALS) and await setup.refresh_if_newer(setup_before)

    def newest_caller(self, caller: Caller) -> Caller:
        """Return the API key's caller from the current setup; `caller` itself if the key was deleted."""
        return self._context.store.setup.current.callers.get(caller.key.id, caller)

    def peek(self, caller: Caller) -> RateDecision:
        """Return the key's rate-limit status without taking a token."""
        record = caller.team.record
        return self._rates.take(caller.key.id, record.rate_limit, self._context.clock.team_now(record.ref), cost=0)

    def should_log(self, caller: Caller) -> bool:
        """Return whether to log this request; at most `log_requests_per_second` per team are logged."""
        limit = self._context.store.setup.current.platform.log_requests_per_second
        return self._context.state.request_log.should_log(caller.team.record.ref, limit)

    def log_request(
        self,
        id_: str,
        caller: Caller,
        route: str,
        status: int,
        *,
        subject: str = "",
        replayed: bool = False,
        refusal: Refusal | None = None,
        client: str = "",
    ) -> None:
        """Write a request to its team's log: every refusal, and the successful requests selected by `should_log`.

        Requests with a platform key belong to no team and are not logged.
        """
        clock, request_log, team = self._context.clock, self._context.state.request_log, caller.team.record.ref
        if not team:
            return
        now = clock.now()
        logged = LoggedRequest(
            id=id_,
            at=now + clock.offsets.get(team, 0),
            team=team,
            key=caller.key.id,
            route=route,
            status=status,
            code=refusal.code if refusal else "",
            message=refusal.message[:LOGGED_MESSAGE_MAX] if refusal else "",
            took_ms=duration_ms(id_, now),
            replayed=int(replayed),
            subject=subject,
            refused=int(status >= 400),
            client=client,
        )
        if refusal:
            request_log.buffer.append(logged)
        else:
            request_log.add(logged)
