"""What people are told of by the service itself: which kinds there are, who is told, how often, and in which words."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from heliograph.rules.audit import SERVICE, AuditEntry
from heliograph.rules.limits import HOUR_MS, MINUTE_MS
from heliograph.rules.mail.own_mail import OwnMail, one_line
from heliograph.rules.setup.snapshot import Setup
from heliograph.rules.setup.webhook_url import parse_target
from heliograph.rules.text import without_addresses

HOURLY = 10  # mails to one person, or posts to one chat, in an hour; the last of them tells of all that waits
LISTED = 20  # things that one mail tells of by name
NAME_MAX = 60  # characters of a name
WISH_MAX = 110  # of what was asked for, such as “Send as Acme from acme.com”
# How long to wait after each try that was put off; when no step is left, the notice is given up.
RETRY_MS = (MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 6 * HOUR_MS)

INSTANCE = ""  # instead of a team
NUMBERED = "#"  # and a team's number, until its id is looked up
TEST = "test"  # tells the chat alone

# What a member of a team, and what an operator, is asked about.
TEAM_KINDS = {
    "approval": ("Approvals", "An operator approved or refused a domain, a name, a sender ID or a template."),
    "template": ("WhatsApp templates", "Meta rejected, paused or disabled a template, or takes it again."),
    "domain": ("Domains", "A domain can no longer send, because its DNS records are missing."),
    "webhook": ("Webhooks", "A webhook was disabled, because its endpoint kept failing."),
    "bounces": ("Bounces and complaints", "Too many emails bounce or are reported as spam."),
    "credit": ("Credit", "The credit fell below the mark in the team's settings."),
}
INSTANCE_KINDS = {
    "dead_letters": ("Dead letters", "Messages that repeatedly crashed delivery were parked."),
    "platform": ("Platform", "Delivery paused itself, or the platform's own domain can no longer send."),
}

# What an approval is about, and where it is shown.
_THINGS = {
    "domain": ("domain", "senders"),
    "display_name": ("display name", "senders"),
    "sender_id": ("SMS sender ID", "senders"),
    "template": ("template", "templates"),
    "team": ("team name", "settings"),
}
ACCOUNT = "/dashboard/account/notices"

# What is told of each of Meta's words on a template; of others nothing.
_UPSTREAM = {
    "template.upstream_approved": ("Meta takes {}", "can be sent", "Nothing is to be done."),
    "template.upstream_rejected": (
        "Meta rejected {}",
        "is refused when it is sent",
        "Change it in WhatsApp Manager and submit it again.",
    ),
    "template.upstream_paused": (
        "Meta paused {}",
        "is refused until Meta takes it again",
        "People dislike it: improve it, and send it to those who asked for it.",
    ),
    "template.upstream_disabled": (
        "Meta disabled {}",
        "is refused when it is sent",
        "Make a new one in WhatsApp Manager.",
    ),
}


class NoticeKind(NamedTuple):
    """What somebody chooses to be told of."""

    team: str
    kind: str


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table, in the order of its columns."""

    name: str  # of this one alone
    at: int
    team: str  # empty: the instance
    kind: str
    facts: dict[str, str] = {}
    actor: str = SERVICE.name


class NoticeWords(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    said: str
    todo: str
    button: str
    url: str


def of_entry(entry: AuditEntry) -> NoticeRow | None:
    """Return what a change in the audit log is to people; None: there is nothing to tell of."""
    thing, _, verb = entry.action.partition(".")
    kind = ""
    if verb in ("approve", "refuse") and thing in _THINGS and entry.team:
        kind = "approval"
    elif entry.action in _UPSTREAM:
        kind = "template"
    elif entry.action == "domain.failed":
        kind = "domain" if entry.team else "platform"
    elif entry.action == "webhook.disable" and entry.actor == SERVICE.name:
        kind = "webhook"
    elif entry.action in ("reputation.warn", "reputation.pause"):
        kind = "bounces"
    elif entry.action == "delivery.pause" and entry.actor == SERVICE.name:
        kind = "platform"
    if not kind:
        return None
    return NoticeRow(
        name=f"{entry.action}/{entry.team or ''}/{entry.subject}/{entry.at}",
        at=entry.at,
        team=entry.team or INSTANCE,
        kind=kind,
        facts={"action": entry.action, "subject": entry.subject, "detail": entry.detail},
        actor=entry.actor,
    )


def low_credit(ref: int, event: str, at: int, credit: str, mark: str) -> NoticeRow:
    """Make a notice; where credit is spent, a team is known by its number alone."""
    facts = {"credit": credit, "mark": mark}
    return NoticeRow(name=f"credit/{event}", at=at, team=f"{NUMBERED}{ref}", kind="credit", facts=facts)


def dead_letters(count: int, at: int) -> NoticeRow:
    """Make one notice an hour, however many dead letters there are."""
    name = f"dead_letters/{at - at % HOUR_MS}"
    return NoticeRow(name=name, at=at, team=INSTANCE, kind="dead_letters", facts={"count": str(count)})


def is_told(role: str | None, chosen: int | None) -> bool:
    """Tell whether a member is told, or an operator about the instance; a viewer is told what they asked for."""
    if role is None:
        return False
    return bool(chosen) if chosen is not None else role != "viewer"


def batches(waiting: int, sent: int) -> list[int]:
    """Return how many notices each mail of now tells of, when so many went in the last hour. What is left waits."""
    free = max(0, HOURLY - sent)
    if waiting <= free - 1 or (waiting == free == 1):
        return [1] * waiting
    return [1] * (free - 1) + [waiting - (free - 1)] if free else []


# -- words ---------------------------------------------------------------------------------------------------------


def say(one: NoticeRow, setup: Setup, base_url: str) -> NoticeWords:
    """Say what happened and what to do, with the team's name."""
    team = setup.teams.get(one.team)
    whose = _name(team.record.name if team else setup.platform.brand)
    subject, said, todo, button, path = _WORDS[one.kind](one, setup, whose)
    home = f"/dashboard/teams/{one.team}" if one.team else "/dashboard/operator"
    return NoticeWords(
        subject=f"[{whose}] {subject}", said=said, todo=todo, button=button, url=f"{base_url}{home}{path}"
    )


def to_mail(told: Sequence[NoticeRow], setup: Setup, base_url: str, role: str) -> OwnMail:
    """Write a mail about one or many; `role` is the reader's, in the team of the first."""
    brand = setup.platform.brand
    said = [say(one, setup, base_url) for one in told[:LISTED]]
    if len(told) == 1:
        (one,) = said
        team = setup.teams.get(told[0].team)
        place = f"{role} of {_name(team.record.name)}" if team else role
        article = "an" if place[0] in "aeiou" else "a"
        return OwnMail(
            subject=one.subject,
            said=one.said,
            todo=one.todo,
            button=(one.button, one.url),
            end=f"You get this because you are {article} {place} on {brand}.",
            settings=base_url + ACCOUNT,
        )
    lines = [one.subject for one in said]
    if len(told) > LISTED:
        lines.append(f"and {len(told) - LISTED} more")
    return OwnMail(
        subject=f"[{brand}] {len(told)} notices",
        said=f"{len(told)} things happened, too many for a mail each.",
        todo="Open the dashboard to see what needs you.",
        lines=tuple(lines),
        button=("Open the dashboard", f"{base_url}/dashboard"),
        end=f"You get at most {HOURLY} of these mails an hour.",
        settings=base_url + ACCOUNT,
    )


def to_chat(told: Sequence[NoticeRow], setup: Setup, base_url: str, url: str) -> bytes:
    """Return the JSON that Slack and Mattermost take, or
    Discord. Nobody is called by what somebody else has written.
    """
    if len(told) == 1:
        one = say(told[0], setup, base_url)
        text = f"{one_line(one.subject)}\n{one_line(one.said)} {one_line(one.todo)}\n{one.url}"
    else:
        lines = [one_line(say(one, setup, base_url).subject) for one in told[:LISTED]]
        more = [f"and {len(told) - LISTED} more"] if len(told) > LISTED else []
        text = "\n".join([f"{len(told)} notices:", *lines, *more, f"{base_url}/dashboard"])
    text = text.replace("@", "@\u200b")
    target = parse_target(url)
    if target.host in ("discord.com", "discordapp.com") and not target.path_and_query.endswith("/slack"):
        return msgspec.json.encode({"content": text[:1900], "allowed_mentions": {"parse": []}})
    for mark, meaning in {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.items():
        text = text.replace(mark, meaning)
    return msgspec.json.encode({"text": text})


def _name(text: str) -> str:
    """Write a name as a mail may say it: without anything that a mail program would make a link of."""
    return one_line(without_addresses(text), NAME_MAX) or "your team"


def _approval(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    thing, _, verb = one.facts["action"].partition(".")
    word, place = _THINGS[thing]
    subject, path = one.facts["subject"], f"/{place}"
    team = setup.teams.get(one.team)
    if thing == "template":
        path = f"/templates/{subject}"
        subject = team.templates[subject].name if team and subject in team.templates else subject
    wish = f"“{one_line(subject, WISH_MAX)}”"  # a name, or what was asked for in a sentence
    what = f"{wish} ({word} of {whose})"
    if verb == "approve":
        return (
            f"Approved: {wish}",
            f"{what} is approved.",
            "You can use it now.",
            "Open it",
            path,
        )
    why = one_line(one.facts.get("detail", ""))
    reason = f": {why}" if why else ", and no reason was given."
    return (
        f"Refused: {wish}",
        f"{what} was refused{reason}",
        "Change it and ask again, or ask an operator.",
        "Open it",
        path,
    )


def _template(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    id_, team = one.facts["subject"], setup.teams.get(one.team)
    name = f"“{_name(team.templates[id_].name if team and id_ in team.templates else id_)}”"
    subject, effect, todo = _UPSTREAM[one.facts["action"]]
    why = one_line(one.facts.get("detail", ""))
    said = f"The WhatsApp template {name} of {whose} {effect}{f': {why}' if why else '.'}"
    return subject.format(name), said, todo, "Open the template", f"/templates/{id_}"


def _domain(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    name = one.facts["subject"]
    team = setup.teams.get(one.team)
    found = team.domains.get(name) if team else None
    path = f"/senders/domains/{found.id}" if found else "/senders" if one.team else "/platform/sender"
    return (
        f"{name} can no longer send",
        f"DNS records of {name} are missing or wrong, so emails of {whose} from it are refused.",
        "Put the records back as the page shows them; the domain is checked again by itself.",
        "See the records",
        path,
    )


def _webhook(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    team, url = setup.teams.get(one.team), one.facts["subject"]
    # The hook is read as it is now: where it was enabled or removed meanwhile, there is less to say.
    hook = next((hook for hook in team.webhooks if hook.url == url and hook.disabled_reason), None) if team else None
    host, reason = host_of(url), hook.disabled_reason if hook else "the endpoint kept failing"
    return (
        f"The webhook to {host} was disabled",
        f"{whose} is no longer told its events at {host}: {reason}.",
        "Mend the endpoint, enable the webhook, then replay what it missed.",
        "Open the webhook",
        f"/webhooks/{hook.id}" if hook else "/webhooks",
    )


def _bounces(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    rates = one.facts["detail"]
    todo = "Remove addresses that bounced or complained from your lists, and write only to people who asked for it."
    if one.facts["action"] == "reputation.pause":
        said = f"Emails of {whose} without a template are paused: {rates}."
        return "Direct emails are paused", said, f"{todo} Then ask an operator to resume.", "See what bounced", _BOUNCED
    said = f"Too many emails of {whose} come back: {rates}. If it goes on, direct emails are paused."
    return "Too many emails bounce", said, todo, "See what bounced", _BOUNCED


_BOUNCED = "/messages?status=bounced"


def _credit(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    team = setup.teams.get(one.team)
    currency = team.record.currency if team else ""
    left = f"{one.facts['credit']} {currency}".strip()
    return (
        f"Credit is low: {left}",
        f"{whose} has {left} left, less than the {one.facts['mark']} {currency} that its settings name.",
        "Top it up, or messages with a price are refused when it is used up.",
        "See the credit",
        "/billing",
    )


def _dead(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    count = one.facts["count"]
    what = "A message" if count == "1" else f"{count} messages"
    return (
        "Messages are parked as dead letters",
        f"{what} repeatedly crashed delivery on {whose} and {'is' if count == '1' else 'are'} parked.",
        "Look at why, then retry or drop them. There is at most one such notice an hour.",
        "Open the queues",
        "/queues",
    )


def _platform(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    if one.facts["action"] == "domain.failed":
        return _domain(one, setup, whose)
    return (
        "Delivery is paused",
        f"{whose} paused delivery by itself: {one.facts['detail']}.",
        "Messages are accepted and wait. Look at the reason, then resume.",
        "Open the queues",
        "/queues",
    )


def _test(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, str, str, str, str]:
    said = f"This chat gets the notices of {whose}."
    return "A test of the chat hook", said, "Nothing is to be done.", "See the settings", "/notices"


_WORDS = {
    "approval": _approval,
    "template": _template,
    "domain": _domain,
    "webhook": _webhook,
    "bounces": _bounces,
    "credit": _credit,
    "dead_letters": _dead,
    "platform": _platform,
    TEST: _test,
}


def host_of(url: str) -> str:
    """Return all of an address that may be shown: the rest may be a secret."""
    try:
        return parse_target(url).host
    except ValueError:
        return "its address"


def kinds_of(team: str) -> Mapping[str, tuple[str, str]]:
    return TEAM_KINDS if team else INSTANCE_KINDS
