"""The event types of contract 10."""

import pytest

from heliograph.rules.event import TYPES, event_type
from heliograph.rules.team import Channel

EXPECTED = """
email.sending email.sent email.delivered email.bounced email.complained email.failed
sms.sending sms.sent sms.delivered sms.failed
whatsapp.sending whatsapp.sent whatsapp.delivered whatsapp.read whatsapp.failed
verification.verified verification.failed verification.exhausted suppression.created suppression.deleted
domain.verified domain.failed credit.low webhook.test
""".split()


def test_types() -> None:
    assert sorted(TYPES) == sorted(EXPECTED)


@pytest.mark.parametrize(
    ("channel", "status", "name"),
    [("email", "bounced", "email.bounced"), ("whatsapp", "read", "whatsapp.read")],
)
def test_event_type(channel: Channel, status: str, name: str) -> None:
    assert event_type(channel, status) == name


@pytest.mark.parametrize(("channel", "status"), [("sms", "read"), ("email", "queued"), ("email", "lost")])
def test_no_such_event(channel: Channel, status: str) -> None:
    with pytest.raises(ValueError, match="no event"):
        event_type(channel, status)
