"""Notification preferences of people, and the chat webhooks for notices of a team or of the instance."""

from collections.abc import Collection, Mapping

from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.domain.operations.notices import INSTANCE_TEAM, NoticeKind
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.secrets import Vault
from heliograph.runtime.clock import Clock
from heliograph.storage.notices import ChatWebhook
from heliograph.storage.store import Store
from heliograph.texts.notices import host_of, notice_kinds
from heliograph.webhooks.service import FindRefusal


async def set_preferences(
    store: Store, actor: Actor, person: str, email: str, teams: Collection[str], selected: Collection[str]
) -> bool:
    """Set which notices a person receives for each of `teams`. `selected`: entries of the form `team/kind`."""
    preferences = {
        NoticeKind(team, kind): f"{team}/{kind}" in selected for team in teams for kind in notice_kinds(team)
    }
    entry = actor.audit_entry(store.clock.now(), "account.notices", email)
    return await store.notices.choose(person, preferences, entry)


class ChatHooks:
    """Sets, removes and tests the chat webhook of a team or of the instance."""

    def __init__(self, store: Store, clock: Clock, *, vault: Vault, find_refusal: FindRefusal) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self._find_refusal = find_refusal

    async def set(self, actor: Actor, team: str, url: str) -> None:
        """Set the chat webhook URL, checked like a webhook's; never shown, because anyone who has it can post."""
        if not url.lower().startswith("https://"):
            raise InvalidRequest("Enter the full webhook URL of your chat, starting with https://.", param="url")
        if refusal := await self._find_refusal(url):
            raise InvalidRequest(f"This URL can't be used: {refusal}.", param="url")
        hook = ChatWebhook(team, self._vault.encrypt(url.encode(), f"chat/{team}"), host_of(url), self._clock.now())
        await self._store.notices.set_chat_webhook(hook, self._audit_entry(actor, team, "chat.set", hook.host))

    async def remove(self, actor: Actor, team: str) -> None:
        await self._store.notices.delete_chat_webhook(team, self._audit_entry(actor, team, "chat.remove"))

    async def test(self, actor: Actor, team: str) -> None:
        if await self._store.notices.get_chat_webhook(team) is None:
            raise InvalidRequest("No chat is set up. Save a webhook URL first.", param="url")
        await self._store.notices.test_chat_webhook(team, self._audit_entry(actor, team, "chat.test"))

    def _audit_entry(self, actor: Actor, team: str, action: str, detail: str = "") -> AuditEntry:
        return actor.audit_entry(self._clock.now(), action, team or "platform", detail, team=team or None)


def effective_preferences(role: str, team: str, preferences: Mapping[NoticeKind, bool]) -> dict[str, bool]:
    """Return kind → whether this person receives notices of that kind."""
    default = role != "viewer" or team == INSTANCE_TEAM
    return {kind: preferences.get(NoticeKind(team, kind), default) for kind in notice_kinds(team)}
