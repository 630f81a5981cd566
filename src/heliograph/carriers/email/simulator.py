"""The simulator carrier for email: sends nothing; the recipient's local part selects the outcome (contract 13)."""

from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

import msgspec

from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.magic_recipients import SIMULATOR_DOMAIN, Behaviour, behaviour_of, is_resend_suppressed
from heliograph.domain.delivery.outcome import Accepted, Deferred, DueReport, Outcome, Refused, Report, local_failure
from heliograph.inbound.policy.inbound_mail import Authentication
from heliograph.inbound.policy.inbound_parser import TeamMailbox, parse_inbound_mail
from heliograph.runtime.threads import BUILD_POOL

QUOTED_LINES_MAX = 20  # lines of the original that a simulated reply quotes
REPLY_TEXT = "Thank you, I received it. (simulator)"

_content_decoder = msgspec.json.Decoder(EmailContent)


def _smtp_detail(code: str, enhanced: str, text: str) -> dict[str, Any]:
    reply_text = f"{code} {enhanced} {text} (simulator)"
    return {"carrier": "simulator", "code": code, "enhanced": enhanced, "text": reply_text}


ACCEPTED_DETAIL = _smtp_detail("250", "2.0.0", "Queued")
DELIVERED_DETAIL = _smtp_detail("250", "2.1.5", "Delivered")
NO_SUCH_USER_DETAIL = _smtp_detail("550", "5.1.1", "No such user")
REJECTED_DETAIL = _smtp_detail("554", "5.7.1", "Message rejected")
BUSY_DETAIL = _smtp_detail("451", "4.7.1", "Try again later")
SUPPRESSED_DETAIL = local_failure("suppressed", "the address simulates a suppressed recipient (simulator)")
COMPLAINT_DETAIL = {"carrier": "simulator", "text": "feedback report: abuse (simulator)"}

DELIVERED = Report(status="delivered", detail=DELIVERED_DETAIL)
BOUNCED = Report(status="bounced", detail=NO_SUCH_USER_DETAIL, suppress="bounce")
COMPLAINED = Report(status="complained", detail=COMPLAINT_DETAIL, suppress="complaint")

REFUSAL_BY_BEHAVIOUR: dict[Behaviour, Refused] = {
    "bounced": Refused(detail=NO_SUCH_USER_DETAIL, bounced=True),
    "failed": Refused(detail=REJECTED_DETAIL),
}
DEFERRALS_BY_BEHAVIOUR: dict[Behaviour, int] = {"softbounce": 2, "delayed": 2}
REPORTS_BY_BEHAVIOUR: dict[Behaviour, tuple[Report, ...]] = {
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

    def __init__(self, step_ms: int, team_mail: TeamMailbox | None = None) -> None:
        """Create the simulator; `team_mail` receives the replies of `reply@simulator.test`."""
        self._step_ms = step_ms
        self._team_mail = team_mail
        self._reports = {
            behaviour: [DueReport(step_ms, report) for report in reports]
            for behaviour, reports in REPORTS_BY_BEHAVIOUR.items()
        }

    async def send_message(self, message: OutboundMessage) -> Outcome:
        behaviour = behaviour_of(message.address)
        if is_resend_suppressed(message.address):
            return Refused(detail=SUPPRESSED_DETAIL)
        if behaviour in REFUSAL_BY_BEHAVIOUR:
            return REFUSAL_BY_BEHAVIOUR[behaviour]
        if behaviour == "deferred":  # follows the usual retry schedule until it fails permanently
            return Deferred(detail=BUSY_DETAIL)
        if message.attempt < DEFERRALS_BY_BEHAVIOUR.get(behaviour, 0):
            delayed = behaviour == "delayed" and message.attempt == 1
            return Deferred(detail=BUSY_DETAIL, retry_after_ms=self._step_ms, delayed=delayed)
        if behaviour == "reply":
            await self._store_reply(message)
        return Accepted(
            carrier_id=f"sim-{message.message_id}-{message.address}",
            detail=ACCEPTED_DETAIL,
            reports=self._reports[behaviour],
        )

    async def _store_reply(self, message: OutboundMessage) -> None:
        """Store a reply from the recipient in the team's mailbox, if the reply address belongs to a team.

        The reply's bytes are deterministic, so that sending the mail again creates no second reply.
        """
        content = await BUILD_POOL.run_large(len(message.content), _content_decoder.decode, message.content)
        reply_to = content.reply_to or content.from_address
        to = reply_to if isinstance(reply_to, str) else reply_to[0]
        if self._team_mail is None or self._team_mail.find_team_id(to) is None:
            return
        reply = build_reply(message, content, to)
        inbound_mail = await BUILD_POOL.run(parse_inbound_mail, reply, message.address, [to])
        await self._team_mail.deliver(reply, inbound_mail, [to], Authentication())


def build_reply(message: OutboundMessage, content: EmailContent, to: str) -> bytes:
    """Build the recipient's simulated reply to a mail."""
    reply = EmailMessage()
    reply["From"], reply["To"], reply["Subject"] = message.address, to, f"Re: {content.subject}"
    reply["Message-ID"] = f"<re-{message.message_id}-{message.position}@{SIMULATOR_DOMAIN}>"
    reply["In-Reply-To"] = f"<{message.message_id}@{content.from_address.rpartition('@')[2]}>"
    quoted = "\n".join(f"> {line}" for line in (content.text or content.subject).splitlines()[:QUOTED_LINES_MAX])
    reply.set_content(f"{REPLY_TEXT}\n\nOn 1 Jan 2026 at 12:00, <{content.from_address}> wrote:\n\n{quoted}\n")
    return reply.as_bytes(policy=SMTP)
