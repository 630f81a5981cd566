"""The simulator carrier for email: sends nothing; the recipient's local part selects the outcome (contract 13)."""

from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

import msgspec

from heliograph.carriers.contract import Carrier, Parcel
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.magic_recipients import DOMAIN, Behaviour, behaviour_of, is_held_back
from heliograph.domain.delivery.outcome import Accepted, Deferred, DueReport, Outcome, Refused, Report, own
from heliograph.inbound.policy.inbound_mail import Authentication
from heliograph.inbound.policy.inbound_parser import TeamMail, read_received
from heliograph.runtime.threads import BUILDING

QUOTED_MAX = 20  # lines of the original that a simulated reply quotes
ANSWER = "Thank you, I got it. (simulator)"

_content = msgspec.json.Decoder(EmailContent)


def _reply(code: str, enhanced: str, text: str) -> dict[str, Any]:
    words = f"{code} {enhanced} {text} (simulator)"
    return {"carrier": "simulator", "code": code, "enhanced": enhanced, "text": words}


TAKEN = _reply("250", "2.0.0", "Queued")
ARRIVED = _reply("250", "2.1.5", "Delivered")
NO_SUCH_USER = _reply("550", "5.1.1", "No such user")
REJECTED = _reply("554", "5.7.1", "Message rejected")
BUSY = _reply("451", "4.7.1", "Try again later")
HELD_BACK = own("suppressed", "the address stands for a suppressed one (simulator)")
ABUSE = {"carrier": "simulator", "text": "feedback report: abuse (simulator)"}

DELIVERED = Report(status="delivered", detail=ARRIVED)
BOUNCED = Report(status="bounced", detail=NO_SUCH_USER, suppress="bounce")
COMPLAINED = Report(status="complained", detail=ABUSE, suppress="complaint")

REFUSALS: dict[Behaviour, Refused] = {
    "bounced": Refused(detail=NO_SUCH_USER, bounced=True),
    "failed": Refused(detail=REJECTED),
}
DEFERRALS: dict[Behaviour, int] = {"softbounce": 2, "delayed": 2}
REPORTS: dict[Behaviour, tuple[Report, ...]] = {
    "delivered": (DELIVERED,),
    "asyncbounce": (DELIVERED, BOUNCED),
    "complained": (DELIVERED, COMPLAINED),
    "softbounce": (DELIVERED,),
    "delayed": (DELIVERED,),
    "reply": (DELIVERED,),
    "suppressed": (DELIVERED,),  # the API rejects it earlier; only addresses of other domains reach the carrier
}


class EmailSimulator(Carrier):
    """Returns scripted outcomes and reports for each magic recipient."""

    def __init__(self, step_ms: int, mailbox: TeamMail | None = None) -> None:
        """Create the simulator; `mailbox` receives the replies of `reply@simulator.test`."""
        self._step_ms = step_ms
        self._mailbox = mailbox
        self._reports = {what: [DueReport(step_ms, report) for report in said] for what, said in REPORTS.items()}

    async def hand_over(self, parcel: Parcel) -> Outcome:
        behaviour = behaviour_of(parcel.address)
        if is_held_back(parcel.address):
            return Refused(detail=HELD_BACK)
        if behaviour in REFUSALS:
            return REFUSALS[behaviour]
        if behaviour == "deferred":  # follows the usual retry schedule until it fails permanently
            return Deferred(detail=BUSY)
        if parcel.attempt < DEFERRALS.get(behaviour, 0):
            delayed = behaviour == "delayed" and parcel.attempt == 1
            return Deferred(detail=BUSY, retry_after_ms=self._step_ms, delayed=delayed)
        if behaviour == "reply":
            await self._answer(parcel)
        return Accepted(
            carrier_id=f"sim-{parcel.message_id}-{parcel.address}",
            detail=TAKEN,
            reports=self._reports[behaviour],
        )

    async def _answer(self, parcel: Parcel) -> None:
        """Store a reply from the recipient in the team's mailbox, if the reply address belongs to a team.

        The reply's bytes are deterministic, so that sending the mail again creates no second reply.
        """
        content = await BUILDING.run_large(len(parcel.content), _content.decode, parcel.content)
        asked = content.reply_to or content.from_address
        to = asked if isinstance(asked, str) else asked[0]
        if self._mailbox is None or self._mailbox.owner(to) is None:
            return
        mail = answer_to(parcel, content, to)
        read = await BUILDING.run(read_received, mail, parcel.address, [to])
        await self._mailbox.take(mail, read, [to], Authentication())


def answer_to(parcel: Parcel, content: EmailContent, to: str) -> bytes:
    """Build the recipient's simulated reply to a mail."""
    answer = EmailMessage()
    answer["From"], answer["To"], answer["Subject"] = parcel.address, to, f"Re: {content.subject}"
    answer["Message-ID"] = f"<re-{parcel.message_id}-{parcel.position}@{DOMAIN}>"
    answer["In-Reply-To"] = f"<{parcel.message_id}@{content.from_address.rpartition('@')[2]}>"
    quoted = "\n".join(f"> {line}" for line in (content.text or content.subject).splitlines()[:QUOTED_MAX])
    answer.set_content(f"{ANSWER}\n\nOn 1 Jan 2026 at 12:00, <{content.from_address}> wrote:\n\n{quoted}\n")
    return answer.as_bytes(policy=SMTP)
