"""Links on their way to the person: mailed where mail can be sent, else shown to who made them."""

from msgspec.structs import replace

from heliograph.dashboard import platform_mail
from heliograph.dashboard.visit import Visit
from heliograph.rules.audit import AuditEntry
from heliograph.rules.refusals import Refusal
from heliograph.storage.people import Link, Person

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


async def hand_over(visit: Visit, person: Person, link: Link, note: AuditEntry) -> str:
    """Make the link. Answers it, to be shown; empty: it is mailed. A refusal says why it cannot be, and it is gone."""
    is_shown = platform_mail.is_simulated(visit, "email")
    proven = int(visit.may("operator") or not is_shown)
    token = await visit.store.people.make_link(replace(link, maker=visit.person.person, proven=proven), note)
    url = f"{visit.context.base_url}/dashboard/link/{token}"
    if is_shown:
        return url
    subject, text = MAILS[link.purpose]
    words = {"brand": visit.setup.platform.brand, "link": url}
    try:
        await platform_mail.send(visit, person.email, subject.format(**words), text.format(**words))
    except Refusal as refusal:
        await visit.store.people.use_link(token, link.purpose)
        if link.purpose != "invite":
            raise
        message = f"{person.email} is invited, but the mail was not sent. {refusal.message} “New link” mails it then."
        raise Refusal(message) from refusal
    return ""


def told(person: Person) -> str:
    return f"The link is mailed to {person.email}."
