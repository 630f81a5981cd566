"""Rules of inbound texts: the team that a text belongs to, and the automatic reply (contract 17)."""

import re
from typing import Any

import msgspec

from heliograph.domain.delivery import lanes, routing
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.delivery.outcome import IncomingText
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import WHATSAPP_WINDOW_MS
from heliograph.domain.phones.opt_out import PhoneChannel
from heliograph.domain.phones.phone import country_of
from heliograph.domain.phones.sms import sms_content
from heliograph.domain.sending.acceptance import Acceptance, AcceptedRecipient, Decision
from heliograph.domain.sending.send_options import AT_ONCE, Timing
from heliograph.domain.setup.records import Platform, Team
from heliograph.domain.setup.snapshot import Setup

_NUMBER = re.compile(r"\+?[0-9]{3,15}")


def owner_of(number: str, setup: Setup) -> Team | None:
    """Return the team whose approved sender ID is `number`; None if not found."""
    wanted = number.lstrip("+").casefold()
    for team in setup.teams.values():
        for sender in team.sender_ids.values():
            if sender.approved and wanted and sender.value.lstrip("+").casefold() == wanted:
                return team
    return None


def received_record(id_: str, text: IncomingText, carrier: str) -> dict[str, Any]:
    """Return the data of an inbound text's event."""
    record = {
        "object": "received",
        "id": id_,
        "from": text.sender,
        "to": text.to,
        "text": text.text,
        "carrier": carrier,
    }
    return record | {"incomplete": True} if text.is_incomplete else record


def answer_message(
    id_: str,
    team: Team,
    platform: Platform,
    channel: PhoneChannel,
    text: IncomingText,
    body: str,
    now: int,
    age_ms: int,
) -> tuple[Acceptance, Decision]:
    """Build the free automatic reply to a text, sent from the number that the person wrote to.

    `now`: the team's time; `age_ms`: time since the text was sent. On WhatsApp the reply expires with the conversation
    window.
    """
    status = "queued" if platform.paused else "sending"
    record = {
        "id": id_,
        "to": text.sender,
        "status": status,
        "sandbox": team.sandbox,
        "created_at": timestamp(now),
    }
    done = Decision(
        response=msgspec.json.encode(record), recipients=[AcceptedRecipient(text.sender, text.sender, "to")]
    )
    country = country_of(text.sender)
    item = Acceptance(
        id=id_,
        team=team.record.ref,
        channel=channel,
        lane=lanes.LANE[channel],
        status=status,
        sandbox=team.sandbox,
        key_id="",
        created_at=now,
        content=msgspec.json.encode(_content(team, platform, channel, country, text.to, body)),
        decide=lambda found: done,
        country=country,
        timing=Timing(expires_at=now - age_ms + WHATSAPP_WINDOW_MS) if channel == "whatsapp" else AT_ONCE,
    )
    return item, done


def _content(
    team: Team, platform: Platform, channel: PhoneChannel, country: str | None, to: str, body: str
) -> SmsContent | WhatsappContent:
    if channel == "whatsapp":
        return WhatsappContent(template="", language="", body=body, is_answer=True)
    own = to if _NUMBER.fullmatch(to) else routing.sender_id(team, country)
    return sms_content(team, platform, own, body, is_answer=True)
