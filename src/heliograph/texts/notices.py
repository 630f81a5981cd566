"""Texts of notices: emails, chat posts, and the kinds that people can subscribe to."""

from collections.abc import Mapping, Sequence

import msgspec

from heliograph.domain.mail.system_mail import OwnMail, one_line
from heliograph.domain.operations.notices import HOURLY, TEST, NoticeRow
from heliograph.domain.setup.snapshot import Setup
from heliograph.domain.text import without_addresses
from heliograph.texts.dashboard_links import HOME, OWN_NOTICES, of_instance, of_team
from heliograph.webhooks.policy.webhook_url import parse_target

LISTED = 20  # maximum notices listed in one mail
NAME_MAX = 60  # characters of a name
WISH_MAX = 110  # characters of a request's text, such as “Send as Acme from acme.com”

# Kinds of notices for members of a team, and for operators: label and description.
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

# Subjects of an approval.
_WISHES = {
    "domain": "domain",
    "display_name": "display name",
    "sender_id": "SMS sender ID",
    "template": "template",
    "team": "team name",
}

# Texts for Meta's template statuses; other statuses produce no notice.
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


class NoticeWords(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    said: str
    todo: str
    button: str
    url: str


def say(one: NoticeRow, setup: Setup, base_url: str) -> NoticeWords:
    """Return the texts of a notice: the event, the action to take, and a link."""
    team = setup.teams.get(one.team)
    whose = _name(team.record.name if team else setup.platform.brand)
    subject, said, todo, button, *place = _WORDS[one.kind](one, setup, whose)
    url = base_url + (of_team(one.team, *place) if one.team else of_instance(*place))
    return NoticeWords(subject=f"[{whose}] {subject}", said=said, todo=todo, button=button, url=url)


def to_mail(told: Sequence[NoticeRow], setup: Setup, base_url: str, role: str) -> OwnMail:
    """Return a mail about one or more notices. `role`: the reader's role in the team of the first notice."""
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
            settings=base_url + OWN_NOTICES,
        )
    lines = [one.subject for one in said]
    if len(told) > LISTED:
        lines.append(f"and {len(told) - LISTED} more")
    return OwnMail(
        subject=f"[{brand}] {len(told)} notices",
        said=f"{len(told)} things happened, too many for a mail each.",
        todo="Open the dashboard to see what needs you.",
        lines=tuple(lines),
        button=("Open the dashboard", base_url + HOME),
        end=f"You get at most {HOURLY} of these mails an hour.",
        settings=base_url + OWN_NOTICES,
    )


def to_chat(told: Sequence[NoticeRow], setup: Setup, base_url: str, url: str) -> bytes:
    """Return the JSON body for Slack and Mattermost, or for Discord. Mentions in user-written text are disabled."""
    if len(told) == 1:
        one = say(told[0], setup, base_url)
        text = f"{one_line(one.subject)}\n{one_line(one.said)} {one_line(one.todo)}\n{one.url}"
    else:
        lines = [one_line(say(one, setup, base_url).subject) for one in told[:LISTED]]
        more = [f"and {len(told) - LISTED} more"] if len(told) > LISTED else []
        text = "\n".join([f"{len(told)} notices:", *lines, *more, base_url + HOME])
    text = text.replace("@", "@\u200b")
    target = parse_target(url)
    if target.host in ("discord.com", "discordapp.com") and not target.path_and_query.endswith("/slack"):
        return msgspec.json.encode({"content": text[:1900], "allowed_mentions": {"parse": []}})
    for mark, meaning in {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.items():
        text = text.replace(mark, meaning)
    return msgspec.json.encode({"text": text})


def _name(text: str) -> str:
    """Return a name that is safe in a mail: without text that mail clients turn into links."""
    return one_line(without_addresses(text), NAME_MAX) or "your team"


def _approval(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    thing, _, verb = one.facts["action"].partition(".")
    subject, id_, team = one.facts["subject"], "", setup.teams.get(one.team)
    if thing == "template":
        id_ = subject
        subject = team.templates[subject].name if team and subject in team.templates else subject
    wish = f"“{one_line(subject, WISH_MAX)}”"  # a name, or a requested change as a sentence
    what = f"{wish} ({_WISHES[thing]} of {whose})"
    if verb == "approve":
        return f"Approved: {wish}", f"{what} is approved.", "You can use it now.", "Open it", thing, id_
    why = one_line(one.facts.get("detail", ""))
    reason = f": {why}" if why else ", and no reason was given."
    todo = "Change it and ask again, or ask an operator."
    return f"Refused: {wish}", f"{what} was refused{reason}", todo, "Open it", thing, id_


def _template(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    id_, team = one.facts["subject"], setup.teams.get(one.team)
    name = f"“{_name(team.templates[id_].name if team and id_ in team.templates else id_)}”"
    subject, effect, todo = _UPSTREAM[one.facts["action"]]
    why = one_line(one.facts.get("detail", ""))
    said = f"The WhatsApp template {name} of {whose} {effect}{f': {why}' if why else '.'}"
    return subject.format(name), said, todo, "Open the template", "template", id_


def _domain(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    name = one.facts["subject"]
    team = setup.teams.get(one.team)
    found = team.domains.get(name) if team else None
    return (
        f"{name} can no longer send",
        f"DNS records of {name} are missing or wrong, so emails of {whose} from it are refused.",
        "Put the records back as the page shows them; the domain is checked again by itself.",
        "See the records",
        "domain",
        *([found.id] if found else []),
    )


def _webhook(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    team, url = setup.teams.get(one.team), one.facts["subject"]
    # Use the webhook's current state: if it was enabled or deleted since, the reason is unknown.
    hook = next((hook for hook in team.webhooks if hook.url == url and hook.disabled_reason), None) if team else None
    host, reason = host_of(url), hook.disabled_reason if hook else "the endpoint kept failing"
    return (
        f"The webhook to {host} was disabled",
        f"{whose} is no longer told its events at {host}: {reason}.",
        "Mend the endpoint, enable the webhook, then replay what it missed.",
        "Open the webhook",
        "webhook",
        hook.id if hook else "",
    )


def _bounces(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    rates = one.facts["detail"]
    todo = "Remove addresses that bounced or complained from your lists, and write only to people who asked for it."
    if one.facts["action"] == "reputation.pause":
        said = f"Emails of {whose} without a template are paused: {rates}."
        todo += " Then ask an operator to resume."
        return "Direct emails are paused", said, todo, "See what bounced", "reputation"
    said = f"Too many emails of {whose} come back: {rates}. If it goes on, direct emails are paused."
    return "Too many emails bounce", said, todo, "See what bounced", "reputation"


def _credit(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    team = setup.teams.get(one.team)
    currency = team.record.currency if team else ""
    left = f"{one.facts['credit']} {currency}".strip()
    return (
        f"Credit is low: {left}",
        f"{whose} has {left} left, less than the {one.facts['mark']} {currency} that its settings name.",
        "Top it up, or messages with a price are refused when it is used up.",
        "See the credit",
        "credit",
    )


def _dead(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    count = one.facts["count"]
    what = "A message" if count == "1" else f"{count} messages"
    return (
        "Messages are parked as dead letters",
        f"{what} repeatedly crashed delivery on {whose} and {'is' if count == '1' else 'are'} parked.",
        "Look at why, then retry or drop them. There is at most one such notice an hour.",
        "Open the queues",
        "deadletter",
    )


def _platform(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    if one.facts["action"] == "domain.failed":
        return _domain(one, setup, whose)
    return (
        "Delivery is paused",
        f"{whose} paused delivery by itself: {one.facts['detail']}.",
        "Messages are accepted and wait. Look at the reason, then resume.",
        "Open the queues",
        "delivery",
    )


def _test(one: NoticeRow, setup: Setup, whose: str) -> tuple[str, ...]:
    said = f"This chat gets the notices of {whose}."
    return "A test of the chat hook", said, "Nothing is to be done.", "See the settings", "chat"


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
    """Return the host of a URL, the only part that may be shown: the rest may contain a secret."""
    try:
        return parse_target(url).host
    except ValueError:
        return "its address"


def kinds_of(team: str) -> Mapping[str, tuple[str, str]]:
    return TEAM_KINDS if team else INSTANCE_KINDS
