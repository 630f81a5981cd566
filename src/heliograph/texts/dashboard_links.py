"""Dashboard paths by kind of object, so that other modules need not know URLs."""

HOME = "/dashboard"
TEAMS = f"{HOME}/teams"
OPERATOR = f"{HOME}/operator"
PORTAL = f"{HOME}/portal"  # pages of a team in a portal, below it with the same paths as below HOME
ACCOUNT = f"{HOME}/account"
ACCOUNT_NOTICES = f"{ACCOUNT}/notices"

# Paths below a team's pages; kinds without a page for each object link to their list.
TEAM_LIST_PATHS = {
    "chat": "/notices",
    "credit": "/billing",
    "display_name": "/senders",
    "domain": "/senders",
    "inbox": "/inbox",
    "key": "/keys",
    "layout": "/layouts",
    "member": "/team",
    "message": "/messages",
    "opt_out": "/opt-outs",
    "queued": "/messages?status=queued",
    "recipient": "/senders",
    "reputation": "/messages?status=bounced",
    "sender_id": "/senders",
    "suppression": "/suppressions",
    "team": "/settings",
    "template": "/templates",
    "unsubscribe": "/unsubscribes",
    "webhook": "/webhooks",
}
TEAM_OBJECT_PATHS = {
    "domain": "/senders/domains",
    "key": "/keys",
    "layout": "/layouts",
    "message": "/messages",
    "template": "/templates",
    "webhook": "/webhooks",
}
# Paths below the operators' pages.
OPERATOR_PATHS = {
    "carrier": "/carriers",
    "chat": "/notices",
    "deadletter": "/queues",
    "delivery": "/queues",
    "domain": "/platform/sender",
    "key": "/keys",
    "operator": "/people",
    "person": "/people",
    "platform": "/platform",
}


def team_page(team: str, kind: str = "", id_: str = "") -> str:
    """Return the page of an object, or of all objects of a kind; without a kind, the team's home page."""
    return f"{TEAMS}/{team}{path_in_team(kind, id_) if kind else ''}"


def path_in_team(kind: str, id_: str = "") -> str:
    """Return the path of an object relative to a team's pages."""
    return f"{TEAM_OBJECT_PATHS[kind]}/{id_}" if id_ and kind in TEAM_OBJECT_PATHS else TEAM_LIST_PATHS[kind]


def sign_in_link_page(token: str) -> str:
    """Return the page of a one-time sign-in link."""
    return f"{HOME}/link/{token}"


def portal_link_page(token: str) -> str:
    """Return the page of a one-time link to a portal."""
    return f"{PORTAL}/open/{token}"


def operator_page(kind: str) -> str:
    return OPERATOR + OPERATOR_PATHS[kind]
