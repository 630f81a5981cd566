"""Sends account links (invitation, password reset) by mail; if mail is simulated, the link is shown to its creator."""

from heliograph.dashboard.page_request import Visit
from heliograph.domain.accounts.people import Person
from heliograph.domain.mail.system_mail import OwnMail
from heliograph.domain.refusals import Refusal
from heliograph.domain.text import without_addresses
from heliograph.manage import platform_mail
from heliograph.manage.people import LinkTerms
from heliograph.texts.dashboard_links import of_link

MAILED = "The link is mailed to {}."
NAME_MAX = 60  # maximum length of the team's name in a mail, in characters


def _invitation(brand: str, team: str, link: str) -> OwnMail:
    place = f"{team} on {brand}" if team else brand
    return OwnMail(
        subject=f"You are invited to {place}",
        said=f"You are invited to work with {place}.",
        todo="See by whom, then accept or decline.",
        button=("See the invitation", link),
        end="The link is good for 7 days. If you expect no invitation, do nothing.",
    )


def _reset(brand: str, team: str, link: str) -> OwnMail:
    return OwnMail(
        subject=f"A new password for {brand}",
        said=f"Somebody asked for a new password of yours at {brand}.",
        todo="Choose it now, if that was you.",
        button=("Choose a new password", link),
        end="The link is good for one hour. If you asked nobody for it, do nothing: your password stays.",
    )


MAILS = {"invite": _invitation, "reset": _reset}


def terms_of(visit: Visit) -> LinkTerms:
    """Return the terms of a link that this user creates now."""
    return LinkTerms(by_operator=visit.may("operator"), mailed=not platform_mail.is_simulated(visit.setup, "email"))


async def mail_or_show(visit: Visit, person: Person, token: str, purpose: str, terms: LinkTerms) -> str:
    """Mail the link and return "", or return the URL to be shown if mail is simulated.

    If the mail is refused, the link is invalidated and the refusal raised.
    """
    url = visit.context.base_url + of_link(token)
    if not terms.mailed:
        return url
    team = visit.team_found.record if visit.team_found else None
    # The recipient may not know the team: remove addresses that the team put into its name.
    name = without_addresses(team.name)[:NAME_MAX] if team else ""
    mail = MAILS[purpose](visit.setup.platform.brand, name, url)
    try:
        whose = team.id if team else visit.person.person
        await platform_mail.send(visit.store, visit.context.handover, whose, person.email, mail)
    except Refusal as refusal:
        await visit.store.people.use_link(token, purpose)
        if purpose != "invite":
            raise
        message = f"{person.email} is invited, but the mail was not sent. {refusal.message} “New link” mails it then."
        raise Refusal(message) from refusal
    return ""
