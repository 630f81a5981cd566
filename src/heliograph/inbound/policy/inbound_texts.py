"""Rules of inbound SMS and WhatsApp texts: which team receives a text, and the automatic reply (contract 17)."""

import re

import msgspec

from heliograph.domain.delivery import lanes, routing
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.delivery.outcome import IncomingText
from heliograph.domain.event_data import InboundTextData
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import WHATSAPP_WINDOW_MS
from heliograph.domain.phones.opt_out import PhoneChannel
from heliograph.domain.phones.phone import country_of
from heliograph.domain.phones.sms import sms_content
from heliograph.domain.sending.acceptance import Acceptance, AcceptedRecipient, Decision
from heliograph.domain.sending.send_options import IMMEDIATE, Timing
from heliograph.domain.setup.records import Platform, Team
from heliograph.domain.setup.snapshot import Setup

_PHONE_NUMBER = re.compile(r"\+?[0-9]{3,15}")


def find_owner(number: str, setup: Setup) -> Team | None:
    """Return the team whose approved sender ID is `number`; None if not found."""
    normalized = number.lstrip("+").casefold()
    for team in setup.teams.values():
        for sender in team.sender_ids.values():
            if sender.approved and normalized and sender.value.lstrip("+").casefold() == normalized:
                return team
    return None


def inbound_text_data(id_: str, text: IncomingText, carrier: str) -> InboundTextData:
    """Return the `data` object of an inbound text's event."""
    return InboundTextData(
        id=id_,
        from_=text.sender,
        to=text.to,
        text=text.text,
        carrier=carrier,
        incomplete=text.is_incomplete or msgspec.UNSET,
    )


def build_auto_reply(
    id_: str,
    team: Team,
    platform: Platform,
    channel: PhoneChannel,
    text: IncomingText,
    body: str,
    now: int,
    age_ms: int,
) -> tuple[Acceptance, Decision]:
    """Build the automatic reply to a text. It costs nothing and is sent from the number that received the text.

    `now`: the team's time; `age_ms`: time since the text was sent. On WhatsApp, the reply expires when the customer
    service window ends (WHATSAPP_WINDOW_MS after the text).
    """
    status = "queued" if platform.paused else "sending"
    record = {
        "id": id_,
        "to": text.sender,
        "status": status,
        "sandbox": team.sandbox,
        "created_at": timestamp(now),
    }
    decision = Decision(
        response=msgspec.json.encode(record), recipients=[AcceptedRecipient(text.sender, text.sender, "to")]
    )
    country = country_of(text.sender)
    item = Acceptance(
        id=id_,
        team=team.record.ref,
        channel=channel,
        lane=lanes.LANE_BY_CHANNEL[channel],
        status=status,
        sandbox=team.sandbox,
        key_id="",
        created_at=now,
        content=msgspec.json.encode(_content(team, platform, channel, country, text.to, body)),
        decide=lambda state: decision,
        country=country,
        timing=Timing(expires_at=now - age_ms + WHATSAPP_WINDOW_MS) if channel == "whatsapp" else IMMEDIATE,
    )
    return item, decision


def _content(
    team: Team, platform: Platform, channel: PhoneChannel, country: str | None, to: str, body: str
) -> SmsContent | WhatsappContent:
    if channel == "whatsapp":
        return WhatsappContent(template="", language="", body=body, is_answer=True)
    sender_id = to if _PHONE_NUMBER.fullmatch(to) else routing.sender_id(team, country)
    return sms_content(team, platform, sender_id, body, is_answer=True)
