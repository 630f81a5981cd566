"""Notification preferences of people, and the chat webhooks for notices of a team or of the instance."""

from collections.abc import Collection, Mapping

from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.domain.operations.notices import INSTANCE, NoticeKind
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.secrets import Vault
from heliograph.runtime.clock import Clock
from heliograph.storage.notices import ChatHook
from heliograph.storage.store import Store
from heliograph.texts.notices import host_of, kinds_of
from heliograph.webhooks.service import RefusalOf


async def choose(
    store: Store, actor: Actor, person: str, email: str, teams: Collection[str], wanted: Collection[str]
) -> bool:
    """Set which kinds of notices a person wants, for each of `teams` (and the instance).

    `wanted`: entries of the form `team/kind`.
    """
    choices = {NoticeKind(team, kind): f"{team}/{kind}" in wanted for team in teams for kind in kinds_of(team)}
    entry = actor.did(store.clock.now(), "account.notices", email)
    return await store.notices.choose(person, choices, entry)


class ChatHooks:
    """Sets, removes and tests the chat webhook of a team or of the instance."""

    def __init__(self, store: Store, clock: Clock, *, vault: Vault, refusal_of: RefusalOf) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self._refusal_of = refusal_of

    async def set(self, actor: Actor, team: str, url: str) -> None:
        """Set the chat webhook URL, with the same checks as for webhooks.

        It is never shown, as it permits posting to the chat.
        """
        if not url.lower().startswith("https://"):
            raise InvalidRequest(
                "Write the whole address of the chat's webhook, which begins with https://.", param="url"
            )
        if refusal := await self._refusal_of(url):
            raise InvalidRequest(f"This address cannot be used: {refusal}.", param="url")
        hook = ChatHook(team, self._vault.seal(url.encode(), f"chat/{team}"), host_of(url), self._clock.now())
        await self._store.notices.set_hook(hook, self._entry(actor, team, "chat.set", hook.host))

    async def remove(self, actor: Actor, team: str) -> None:
        await self._store.notices.drop_hook(team, self._entry(actor, team, "chat.remove"))

    async def test(self, actor: Actor, team: str) -> None:
        if await self._store.notices.hook(team) is None:
            raise InvalidRequest("There is no chat to test. Save its address first.", param="url")
        await self._store.notices.test_hook(team, self._entry(actor, team, "chat.test"))

    def _entry(self, actor: Actor, team: str, action: str, detail: str = "") -> AuditEntry:
        return actor.did(self._clock.now(), action, team or "platform", detail, team=team or None)


def defaults(role: str, team: str, chosen: Mapping[NoticeKind, bool]) -> dict[str, bool]:
    """Return kind → whether this person receives notices of that kind."""
    own = role != "viewer" or team == INSTANCE
    return {kind: chosen.get(NoticeKind(team, kind), own) for kind in kinds_of(team)}
