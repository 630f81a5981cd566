"""Navigation of the dashboard: the pages that the menu and the search link to, and the role each requires."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from heliograph.texts.dashboard_links import ACCOUNT, HOME, OPERATOR, OWN_NOTICES

Need = Literal["anyone", "person", "viewer", "developer", "owner", "operator"]


class MenuPlace(msgspec.Struct, frozen=True):
    """A page that the menu or the search links to."""

    name: str
    path: str  # relative to the team's pages, unless it begins with /dashboard
    icon: str
    words: str = ""  # additional search keywords; empty to exclude the page from the search
    need: Need = "viewer"
    also: str = ""  # path prefix under which the menu also highlights this item

    def address(self, base: str) -> str:
        return self.path if self.path.startswith(HOME) else base + self.path

    def is_here(self, path: str, base: str) -> bool:
        own = self.address(base)
        within = own not in (base, OPERATOR) and path.startswith(f"{own}/")
        return path == own or within or bool(self.also and f"{path}/".startswith(f"{base}{self.also}/"))


# Menu items by group heading; the first group has no heading.
MENU: dict[str, tuple[MenuPlace, ...]] = {
    "": (
        MenuPlace("Overview", "", "home", "home dashboard figures charts"),
        MenuPlace("Messages", "/messages", "messages", "email sms whatsapp sent log"),
        MenuPlace("Verifications", "/verifications", "verify", "codes otp verify"),
        MenuPlace("Test inbox", "/inbox", "inbox", "sandbox mails"),
        MenuPlace("Received", "/received", "inbox", "incoming mail replies texts answers"),
    ),
    "Content": (
        MenuPlace("Templates", "/templates", "template", "content", also="/layouts"),
        MenuPlace("Domains & senders", "/senders", "domain", "dns dkim spf display name sender id"),
        MenuPlace("Suppressions", "/suppressions", "suppression", "bounces complaints blocklist unsubscribe"),
        MenuPlace("Opt-outs", "/opt-outs", "suppression", "stop start phones unsubscribe"),
    ),
    "Developers": (
        MenuPlace("Quick start", "/start", "start", "first message examples curl python node"),
        MenuPlace("API keys", "/keys", "key", "token secret", "developer"),
        MenuPlace("Webhooks", "/webhooks", "webhook", "endpoints callbacks"),
        MenuPlace("Events", "/events", "event", "feed"),
        MenuPlace("Request log", "/requests", "log", "errors refused api calls"),
    ),
    "Team": (
        MenuPlace("Members", "/team", "people", "people invite roles"),
        MenuPlace("Billing", "/billing", "billing", "money credit prices ledger"),
        MenuPlace("Settings", "/settings", "settings", "retention limits", also="/notices"),
        MenuPlace("Audit log", "/audit", "audit", "changes history who"),
    ),
}
OPERATORS: tuple[MenuPlace, ...] = (
    MenuPlace("Health", OPERATOR, "home", "operator teams status tenants", "operator", "/teams"),
    MenuPlace("Approvals", f"{OPERATOR}/approvals", "check", "operator domains templates", "operator"),
    MenuPlace("People", f"{OPERATOR}/people", "people", "operator accounts", "operator"),
    MenuPlace("Carriers", f"{OPERATOR}/carriers", "carrier", "operator smtp smpp provider", "operator"),
    MenuPlace("Queues", f"{OPERATOR}/queues", "queue", "operator pause resume dead letters", "operator"),
    MenuPlace("Platform", f"{OPERATOR}/platform", "settings", "operator instance settings", "operator", "/notices"),
    MenuPlace("Audit log", f"{OPERATOR}/audit", "audit", need="operator"),
)
# Pages found by the search that are not in the menu.
OTHERS: tuple[MenuPlace, ...] = (
    MenuPlace("Layouts", "/layouts", "template", "head foot frame of emails"),
    MenuPlace("Chat notices", "/notices", "settings", "slack mattermost discord alerts"),
    MenuPlace("Your account", ACCOUNT, "person", "password two-factor sessions", "person"),
    MenuPlace("Your email notices", OWN_NOTICES, "email", "alerts mails", "person"),
    MenuPlace("All teams", HOME, "team", "switch team", "person"),
    MenuPlace("Instance audit log", f"{OPERATOR}/audit", "audit", "operator changes history who", "operator"),
)
# Pages with forms, found only by users who may submit them.
FORMS: tuple[MenuPlace, ...] = (
    MenuPlace("Create API key", "/keys/new", "key", "new token secret", "developer"),
    MenuPlace("Create template", "/templates/new", "template", "new content", "developer"),
    MenuPlace("Add domain", "/senders/domains/new", "domain", "new sender dns", "developer"),
    MenuPlace("Add webhook", "/webhooks/new", "webhook", "new endpoint url events", "developer"),
    MenuPlace("Invite member", "/team/new", "people", "new people role", "owner"),
    MenuPlace("Add a suppression", "/suppressions/new", "plus", "block address", "developer"),
    MenuPlace("Import suppressions", "/suppressions/import", "plus", "csv upload", "developer"),
    MenuPlace("Erase an address", "/suppressions/erase", "suppression", "gdpr privacy delete forget", "owner"),
)


def searched() -> Iterator[MenuPlace]:
    """Yield the pages that the search finds, except forms."""
    for places in (*MENU.values(), OTHERS, OPERATORS):
        yield from (place for place in places if place.words)
