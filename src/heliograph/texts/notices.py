"""Texts of notices: emails, chat posts, and the kinds that people can subscribe to."""

from collections.abc import Mapping, Sequence

import msgspec

from heliograph.domain.mail.system_mail import SystemMail, to_safe_line
from heliograph.domain.operations.notices import HOURLY_MAX, TEST, NoticeRow
from heliograph.domain.setup.snapshot import Setup
from heliograph.domain.text import remove_linkable_words
from heliograph.texts.dashboard_links import ACCOUNT_NOTICES, HOME, operator_page, team_page
from heliograph.webhooks.policy.webhook_url import parse_target

NOTICES_PER_MAIL_MAX = 20  # maximum notices listed in one mail
NAME_MAX = 60  # characters of a name
REQUEST_MAX = 110  # characters of a request's text, such as “Send as Acme from acme.com”

# Kinds of notices for members of a team, and for operators: label and description.
TEAM_KINDS = {
    "approval": ("Approvals", "An operator approved or refused a domain, name, sender ID or template."),
    "template": ("WhatsApp templates", "Meta rejected, paused, disabled or re-approved a template."),
    "domain": ("Domains", "A domain can no longer send because DNS records are missing or wrong."),
    "webhook": ("Webhooks", "A webhook was disabled because its endpoint kept failing."),
    "bounces": ("Bounces and complaints", "Too many emails bounced or were reported as spam."),
    "credit": ("Credit", "Credit fell below the alert level in the team's settings."),
    "key_limit": ("Key limits", "A restricted API key reached one of its limits."),
}
INSTANCE_KINDS = {
    "dead_letters": ("Dead letters", "A message could not be processed and needs a decision."),
    "platform": ("Platform", "Delivery was paused automatically, or the platform's domain can no longer send."),
}

# Record kind → what the notice calls a request for approval.
_REQUEST_LABELS = {
    "domain": "domain",
    "display_name": "display name",
    "sender_id": "SMS sender ID",
    "template": "template",
    "team": "team name",
}

# Texts for Meta's template statuses; other statuses produce no notice.
_META_STATUS_TEXTS = {
    "template.upstream_approved": ("Meta approved {}", "can be sent", "No action is needed."),
    "template.upstream_rejected": (
        "Meta rejected {}",
        "can't be sent",
        "Change it in WhatsApp Manager and submit it again.",
    ),
    "template.upstream_paused": (
        "Meta paused {}",
        "can't be sent until Meta approves it again",
        "Recipients gave negative feedback. Improve it, and only send it to people who asked for it.",
    ),
    "template.upstream_disabled": (
        "Meta disabled {}",
        "can't be sent",
        "Create a new template in WhatsApp Manager.",
    ),
}


class NoticeText(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    body: str
    action: str
    button: str
    url: str


def notice_text(notice: NoticeRow, setup: Setup, base_url: str) -> NoticeText:
    """Return the texts of a notice: the event, the action to take, and a link."""
    team = setup.teams.get(notice.team)
    owner = _name(team.record.name if team else setup.platform.brand)
    subject, body, action, button, *page = _TEXT_BY_KIND[notice.kind](notice, setup, owner)
    url = base_url + (team_page(notice.team, *page) if notice.team else operator_page(*page))
    return NoticeText(subject=f"[{owner}] {subject}", body=body, action=action, button=button, url=url)


def to_mail(notices: Sequence[NoticeRow], setup: Setup, base_url: str, role: str) -> SystemMail:
    """Return a mail about one or more notices. `role`: the reader's role in the team of the first notice."""
    brand = setup.platform.brand
    texts = [notice_text(notice, setup, base_url) for notice in notices[:NOTICES_PER_MAIL_MAX]]
    if len(notices) == 1:
        (text,) = texts
        team = setup.teams.get(notices[0].team)
        reader = f"{role} of {_name(team.record.name)}" if team else role
        article = "an" if reader[0] in "aeiou" else "a"
        return SystemMail(
            subject=text.subject,
            summary=text.body,
            action=text.action,
            button=(text.button, text.url),
            footer=f"You get this email because you are {article} {reader} on {brand}.",
            settings_url=base_url + ACCOUNT_NOTICES,
        )
    lines = [text.subject for text in texts]
    if len(notices) > NOTICES_PER_MAIL_MAX:
        lines.append(f"and {len(notices) - NOTICES_PER_MAIL_MAX} more")
    return SystemMail(
        subject=f"[{brand}] {len(notices)} notices",
        summary=f"There are {len(notices)} new notices.",
        action="Open the dashboard to see what needs attention.",
        items=tuple(lines),
        button=("Open the dashboard", base_url + HOME),
        footer=f"You get at most {HOURLY_MAX} of these emails an hour.",
        settings_url=base_url + ACCOUNT_NOTICES,
    )


def to_chat(notices: Sequence[NoticeRow], setup: Setup, base_url: str, url: str) -> bytes:
    """Return the JSON body for Slack and Mattermost, or for Discord. Mentions in user-written text are disabled."""
    if len(notices) == 1:
        single = notice_text(notices[0], setup, base_url)
        text = (
            f"{to_safe_line(single.subject)}\n{to_safe_line(single.body)} {to_safe_line(single.action)}\n{single.url}"
        )
    else:
        lines = [
            to_safe_line(notice_text(notice, setup, base_url).subject) for notice in notices[:NOTICES_PER_MAIL_MAX]
        ]
        more = [f"and {len(notices) - NOTICES_PER_MAIL_MAX} more"] if len(notices) > NOTICES_PER_MAIL_MAX else []
        text = "\n".join([f"{len(notices)} notices:", *lines, *more, base_url + HOME])
    text = text.replace("@", "@\u200b")
    target = parse_target(url)
    if target.host in ("discord.com", "discordapp.com") and not target.path_and_query.endswith("/slack"):
        return msgspec.json.encode({"content": text[:1900], "allowed_mentions": {"parse": []}})
    for character, escaped in {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.items():
        text = text.replace(character, escaped)
    return msgspec.json.encode({"text": text})


def _name(text: str) -> str:
    """Return a name that is safe in a mail: without text that mail clients turn into links."""
    return to_safe_line(remove_linkable_words(text), NAME_MAX) or "your team"


def _approval_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    kind, _, verb = notice.facts["action"].partition(".")
    subject, id_, team = notice.facts["subject"], "", setup.teams.get(notice.team)
    if kind == "template":
        id_ = subject
        subject = team.templates[subject].name if team and subject in team.templates else subject
    request = f"“{to_safe_line(subject, REQUEST_MAX)}”"  # a name, or a requested change as a sentence
    labeled_request = f"{request} ({_REQUEST_LABELS[kind]} of {owner})"
    if verb == "approve":
        return f"Approved: {request}", f"{labeled_request} is approved.", "You can use it now.", "View", kind, id_
    detail = to_safe_line(notice.facts.get("detail", ""))
    reason = f": {detail}" if detail else " without a reason."
    action = "Change it and submit it again, or contact an operator."
    return f"Refused: {request}", f"{labeled_request} was refused{reason}", action, "View", kind, id_


def _template_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    id_, team = notice.facts["subject"], setup.teams.get(notice.team)
    name = f"“{_name(team.templates[id_].name if team and id_ in team.templates else id_)}”"
    subject, effect, action = _META_STATUS_TEXTS[notice.facts["action"]]
    reason = to_safe_line(notice.facts.get("detail", ""))
    body = f"The WhatsApp template {name} of {owner} {effect}{f': {reason}' if reason else '.'}"
    return subject.format(name), body, action, "View template", "template", id_


def _domain_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    name = notice.facts["subject"]
    team = setup.teams.get(notice.team)
    domain = team.domains.get(name) if team else None
    return (
        f"{name} can no longer send",
        f"DNS records of {name} are missing or wrong, so {owner} can't send email from this domain.",
        "Restore the DNS records shown on the domain page. We check again automatically.",
        "View DNS records",
        "domain",
        *([domain.id] if domain else []),
    )


def _webhook_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    team, url = setup.teams.get(notice.team), notice.facts["subject"]
    # Use the webhook's current state: if it was enabled or deleted since, the reason is unknown.
    hook = next((hook for hook in team.webhooks if hook.url == url and hook.disabled_reason), None) if team else None
    host, reason = host_of(url), hook.disabled_reason if hook else "the endpoint kept failing"
    return (
        f"The webhook to {host} was disabled",
        f"Events of {owner} are no longer sent to {host}: {reason}.",
        "Fix the endpoint, turn on the webhook, then replay the missed events.",
        "View webhook",
        "webhook",
        hook.id if hook else "",
    )


def _bounces_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    rates = notice.facts["detail"]
    action = "Remove addresses that bounced or complained from your lists, and only email people who asked for it."
    if notice.facts["action"] == "reputation.pause":
        body = f"Emails of {owner} without a template are paused: {rates}."
        action += " Then ask an operator to resume sending."
        return "Direct emails are paused", body, action, "View bounces", "reputation"
    body = f"Too many emails of {owner} bounce or get complaints: {rates}. If this continues, direct emails are paused."
    return "Too many emails bounce", body, action, "View bounces", "reputation"


def _credit_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    team = setup.teams.get(notice.team)
    currency = team.record.currency if team else ""
    remaining_credit = f"{notice.facts['credit']} {currency}".strip()
    return (
        f"Credit is low: {remaining_credit}",
        f"{owner} has {remaining_credit} left, below the alert level of {notice.facts['mark']} {currency}.",
        "Add credit soon. When it runs out, messages with a price are refused.",
        "View billing",
        "credit",
    )


def _key_limit_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    caller = setup.callers.get(notice.facts["key"])
    name = _name(caller.key.name) if caller else notice.facts["key"]
    return (
        f"The key {name} reached a limit",
        f"The API key “{name}” of {owner} reached its limit of recipients or spend, so further sends are refused.",
        "Check what the key sent. If the limit is too low, create a key with a higher one.",
        "View keys",
        "key",
    )


def _dead_letters_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    count = notice.facts["count"]
    subject = "A message" if count == "1" else f"{count} messages"
    return (
        "New dead letters",
        f"{subject} repeatedly failed to process on {owner} and {'is' if count == '1' else 'are'} held.",
        "Find the cause, then retry or delete them. You get this notice at most once an hour.",
        "View queues",
        "deadletter",
    )


def _platform_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    if notice.facts["action"] == "domain.failed":
        return _domain_text(notice, setup, owner)
    return (
        "Delivery is paused",
        f"{owner} paused delivery automatically: {notice.facts['detail']}.",
        "Messages are accepted and queued. Check the reason, then resume delivery.",
        "View queues",
        "delivery",
    )


def _chat_test_text(notice: NoticeRow, setup: Setup, owner: str) -> tuple[str, ...]:
    body = f"Notices of {owner} are posted to this chat."
    return "Test notice", body, "No action is needed.", "View settings", "chat"


# Functions that return (subject, body, action, button, kind of the linked page) and, for one object's page, its id.
_TEXT_BY_KIND = {
    "approval": _approval_text,
    "template": _template_text,
    "domain": _domain_text,
    "webhook": _webhook_text,
    "bounces": _bounces_text,
    "credit": _credit_text,
    "key_limit": _key_limit_text,
    "dead_letters": _dead_letters_text,
    "platform": _platform_text,
    TEST: _chat_test_text,
}


def host_of(url: str) -> str:
    """Return the host of a URL, the only part that may be shown: the rest may contain a secret."""
    try:
        return parse_target(url).host
    except ValueError:
        return "its address"


def notice_kinds(team: str) -> Mapping[str, tuple[str, str]]:
    return TEAM_KINDS if team else INSTANCE_KINDS
