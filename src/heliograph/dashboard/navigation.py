"""Pages to which the menu and the search of the dashboard link, and the role that each requires."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from heliograph.texts.dashboard_links import ACCOUNT, ACCOUNT_NOTICES, HOME, OPERATOR

# The role that a page requires. Each role includes those before it; an operator is owner of every team. A read-only
# operator may open all operator pages, but not submit forms.
RequiredRole = Literal["anyone", "person", "viewer", "developer", "owner", "operator"]


class NavItem(msgspec.Struct, frozen=True):
    """A page to which the menu or the search links."""

    name: str
    path: str  # relative to the team's pages, except below /dashboard
    icon: str
    keywords: str = ""  # further words for the search; empty to exclude the page from the search
    required_role: RequiredRole = "viewer"
    also_under: str = ""  # path prefix of further pages on which the menu highlights this item

    def url(self, team_path: str) -> str:
        return self.path if self.path.startswith(HOME) else team_path + self.path

    def is_current(self, path: str, team_path: str) -> bool:
        item_url = self.url(team_path)
        is_subpage = item_url not in (team_path, OPERATOR) and path.startswith(f"{item_url}/")
        return (
            path == item_url
            or is_subpage
            or bool(self.also_under and f"{path}/".startswith(f"{team_path}{self.also_under}/"))
        )


# group heading → menu items; the first group has no heading
MENU: dict[str, tuple[NavItem, ...]] = {
    "": (
        NavItem("Overview", "", "home", "home dashboard figures charts"),
        NavItem("Messages", "/messages", "messages", "email sms whatsapp sent log"),
        NavItem("Message approvals", "/approvals", "check", "release reject held agents", "owner"),
        NavItem("Verifications", "/verifications", "verify", "codes otp verify"),
        NavItem("Test inbox", "/inbox", "inbox", "sandbox mails"),
        NavItem("Received", "/received", "received", "incoming mail replies texts answers"),
    ),
    "Content": (
        NavItem("Templates", "/templates", "template", "content", also_under="/layouts"),
        NavItem("Domains & senders", "/senders", "domain", "dns dkim spf display name sender id"),
        NavItem("Suppressions", "/suppressions", "suppression", "bounces complaints blocklist"),
        NavItem("Unsubscribes", "/unsubscribes", "unsubscribe", "categories newsletter list-unsubscribe"),
        NavItem("Opt-outs", "/opt-outs", "opt_out", "stop start phones unsubscribe"),
    ),
    "Developers": (
        NavItem("Quick start", "/start", "start", "first message examples curl python node"),
        NavItem("API keys", "/keys", "key", "token secret", "developer"),
        NavItem("Webhooks", "/webhooks", "webhook", "endpoints callbacks"),
        NavItem("Events", "/events", "event", "feed"),
        NavItem("Request log", "/requests", "log", "errors refused api calls"),
    ),
    "Team": (
        NavItem("Members", "/team", "people", "people invite roles"),
        NavItem("Billing", "/billing", "billing", "money credit prices ledger"),
        NavItem("Settings", "/settings", "settings", "retention limits", also_under="/notices"),
        NavItem("Audit log", "/audit", "audit", "changes history who"),
    ),
}
OPERATOR_MENU: tuple[NavItem, ...] = (
    NavItem("Teams & health", OPERATOR, "health", "operator teams status tenants", "operator", "/teams"),
    NavItem("Approvals", f"{OPERATOR}/approvals", "check", "operator domains templates", "operator"),
    NavItem("People", f"{OPERATOR}/people", "people", "operator accounts", "operator"),
    NavItem("Carriers", f"{OPERATOR}/carriers", "carrier", "operator smtp smpp provider", "operator"),
    NavItem("Queues", f"{OPERATOR}/queues", "queue", "operator pause resume dead letters", "operator"),
    NavItem("Complaints", f"{OPERATOR}/complaints", "warning", "operator spam rate feedback loop", "operator"),
    NavItem("Platform", f"{OPERATOR}/platform", "settings", "operator instance settings", "operator", "/notices"),
    NavItem("Platform keys", f"{OPERATOR}/keys", "key", "operator token teams api", "operator"),
    NavItem("Audit log", f"{OPERATOR}/audit", "audit", required_role="operator"),
)
# pages in the search, but not in the menu
SEARCH_ONLY_PAGES: tuple[NavItem, ...] = (
    NavItem("Layouts", "/layouts", "template", "header footer frame of emails"),
    NavItem("Chat notices", "/notices", "settings", "slack mattermost discord alerts"),
    NavItem("Your account", ACCOUNT, "person", "password two-factor sessions", "person"),
    NavItem("Email notices", ACCOUNT_NOTICES, "email", "alerts mails", "person"),
    NavItem("All teams", HOME, "team", "switch team", "person"),
    NavItem("Instance audit log", f"{OPERATOR}/audit", "audit", "operator changes history who", "operator"),
)
# pages with forms, shown by the search only to users who may submit them
FORM_PAGES: tuple[NavItem, ...] = (
    NavItem("New key", "/keys/new", "key", "create api token secret", "developer"),
    NavItem("New template", "/templates/new", "template", "create content", "developer"),
    NavItem("New domain", "/senders/domains/new", "domain", "add sender dns", "developer"),
    NavItem("New webhook", "/webhooks/new", "webhook", "add create endpoint url events", "developer"),
    NavItem("Invite member", "/team/new", "people", "new people role", "owner"),
    NavItem("Add a suppression", "/suppressions/new", "plus", "block address", "developer"),
    NavItem("Import suppressions", "/suppressions/import", "plus", "csv upload", "developer"),
    NavItem("Erase an address", "/suppressions/erase", "suppression", "gdpr privacy delete forget", "owner"),
)

OPERATOR_FORM_PAGES: tuple[NavItem, ...] = (
    NavItem("New team", f"{OPERATOR}/teams/new", "team", "create add tenant", "operator"),
    NavItem("Add person", f"{OPERATOR}/people/new", "person", "new invite operator account", "operator"),
    NavItem("New platform key", f"{OPERATOR}/keys/new", "key", "create api token", "operator"),
    NavItem("Add carrier", f"{OPERATOR}/carriers/new", "carrier", "new smtp smpp provider", "operator"),
)


def iter_searchable_pages() -> Iterator[NavItem]:
    """Yield the pages that the search finds, except forms."""
    for items in (*MENU.values(), SEARCH_ONLY_PAGES, OPERATOR_MENU):
        yield from (item for item in items if item.keywords)
