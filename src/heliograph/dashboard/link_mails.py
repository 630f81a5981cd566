"""Links on their way to the person: mailed where mail can be sent, else shown to who made them."""

from heliograph.dashboard.visit import Visit
from heliograph.manage import platform_mail
from heliograph.manage.people import LinkTerms
from heliograph.rules.refusals import Refusal
from heliograph.storage.people import Person

MAILED = "The link is mailed to {}."
MAILS = {
    "invite": (
        "An invitation to {brand}",
        "You are invited to work with {brand}. See by whom, and accept or decline:\n\n{link}\n\n"
        "The link is good for 7 days. If you expect no invitation, do nothing.\n",
    ),
    "reset": (
        "A new password for {brand}",
        "Choose a new password for {brand}:\n\n{link}\n\n"
        "The link is good for one hour. If you asked nobody for it, do nothing: your password stays.\n",
    ),
}


def terms_of(visit: Visit) -> LinkTerms:
    """Of a link that this person makes now."""
    return LinkTerms(by_operator=visit.may("operator"), mailed=not platform_mail.is_simulated(visit.setup, "email"))


async def mail_or_show(visit: Visit, person: Person, token: str, purpose: str, terms: LinkTerms) -> str:
    """The link, to be shown; empty: it is mailed. A refusal says why it cannot be, and it is gone."""
    url = f"{visit.context.base_url}/dashboard/link/{token}"
    if not terms.mailed:
        return url
    subject, text = MAILS[purpose]
    words = {"brand": visit.setup.platform.brand, "link": url}
    whose = visit.team_found.record.id if visit.team_found else visit.person.person
    mail = subject.format(**words), text.format(**words)
    try:
        await platform_mail.send(visit.store, visit.context.handover, whose, person.email, *mail)
    except Refusal as refusal:
        await visit.store.people.use_link(token, purpose)
        if purpose != "invite":
            raise
        message = f"{person.email} is invited, but the mail was not sent. {refusal.message} “New link” mails it then."
        raise Refusal(message) from refusal
    return ""
