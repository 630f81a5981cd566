"""Mails the links for invitations and password resets; a link that cannot be mailed is shown to its creator."""

from typing import NamedTuple

from msgspec.structs import replace

from heliograph.dashboard.page_request import PageRequest
from heliograph.domain.accounts.people import Person
from heliograph.domain.mail.system_mail import SystemMail
from heliograph.domain.refusals import Refusal
from heliograph.domain.text import remove_linkable_words
from heliograph.manage import people, platform_mail
from heliograph.manage.people import LinkTerms
from heliograph.texts.dashboard_links import sign_in_link_page

LINK_MAILED = "We sent the link to {}."
NAME_MAX = 60  # maximum characters of the team's name in a mail


def _invitation_mail(brand: str, team: str, link: str) -> SystemMail:
    target = f"{team} on {brand}" if team else brand
    return SystemMail(
        subject=f"You're invited to {target}",
        summary=f"You've been invited to join {target}.",
        action="Open the invitation to accept or decline it.",
        button=("View invitation", link),
        footer="This link expires in 7 days. If you weren't expecting an invitation, you can ignore this email.",
    )


def _reset_mail(brand: str, team: str, link: str) -> SystemMail:
    return SystemMail(
        subject=f"Reset your {brand} password",
        summary=f"We received a request to reset your {brand} password.",
        action="If this was you, choose a new password now.",
        button=("Choose new password", link),
        footer="This link expires in one hour. If you didn't request this, ignore this email."
        " Your password won't change.",
    )


MAIL_BY_PURPOSE = {"invite": _invitation_mail, "reset": _reset_mail}


def link_terms(request: PageRequest) -> LinkTerms:
    """Return the terms of new links: whether an operator creates them, and whether they are mailed."""
    return LinkTerms(
        by_operator=request.has_role("operator"), by_mail=not platform_mail.has_only_simulators(request.setup, "email")
    )


class ShownLink(NamedTuple):
    """A link that its creator must pass on to the user."""

    url: str
    purpose: str
    person: Person
    failure: str = ""  # why the link could not be mailed; empty if this instance only simulates mail


async def mail_or_show(
    request: PageRequest, person: Person, token: str, purpose: str, terms: LinkTerms
) -> ShownLink | None:
    """Mail the link and return None; if mail is simulated, return the link, so that the page shows it.

    If the mail fails, its link is invalidated. For an invitation, a new link is then returned, which does not verify
    the address; for a password reset, the Refusal is raised.
    """
    url = request.context.base_url + sign_in_link_page(token)
    if not terms.by_mail:
        return ShownLink(url, purpose, person)
    team = request.team_or_none.record if request.team_or_none else None
    # The recipient may not know the team, so addresses in the team's name are removed.
    name = remove_linkable_words(team.name)[:NAME_MAX] if team else ""
    mail = MAIL_BY_PURPOSE[purpose](request.setup.platform.brand, name, url)
    try:
        owner_id = team.id if team else request.user.person
        await platform_mail.send_system_mail(request.store, request.context.failover, owner_id, person.email, mail)
    except Refusal as refusal:
        await request.store.people.use_link(token, purpose)
        if purpose != "invite":
            raise
        shown_terms = replace(terms, by_mail=False)
        if team:
            token = await people.make_team_link(request.store, request.actor, person, team.id, purpose, shown_terms)
        else:
            token = await people.make_link(request.store, request.actor, person, purpose, shown_terms)
        return ShownLink(request.context.base_url + sign_in_link_page(token), purpose, person, refusal.message)
    return None
