"""Which SMTP replies are refusals about rate, so that the rate of the provider is reduced."""

import pytest

from heliograph.inbound.policy.smtp_reply import Reply, is_connection_refusal, is_rate_refusal

ABOUT_RATE = (
    "421 4.7.28 Our system has detected an unusual rate of mail originating from your IP address.",
    "421 4.7.0 Our system has detected an unusual rate of unsolicited mail originating from your IP address.",
    "421 4.7.0 [TSS04] Messages from 192.0.2.7 temporarily deferred due to unexpected volume or user complaints",
    "450 4.2.1 The user you are trying to contact is receiving mail at a rate that prevents additional messages",
    "451 4.7.500 Server busy. Please try again later from [192.0.2.7].",
    "451 4.7.1 Too many connections from your host",
    "421 4.7.0 Too many concurrent connections from your IP address",
    "451 4.7.1 Too many messages from your address, slow down",
    "421 RP-001 Unfortunately, messages weren't sent. We have limits for how many can be sent per hour.",
    "452 4.5.3 Too many recipients this hour",
)
OTHERS = (
    "451 4.7.1 Greylisted, please try again in 300 seconds: too many unknown senders",
    "452 4.2.2 The mailbox is full: too many messages",
    "421 4.7.30 Your email has been rate limited because DKIM authentication didn't pass for this message.",
    "421 4.7.0 This message is suspicious due to the very low reputation of the sending IP address.",
    "451 4.3.0 Too many hops",
    "451 4.3.2 Please try again later",
    "554 5.7.1 Too many connections",
)


@pytest.mark.parametrize(("text", "is_about_rate"), [*((t, True) for t in ABOUT_RATE), *((t, False) for t in OTHERS)])
def test_rate_refusal_is_recognised_by_code_and_text(text: str, is_about_rate: bool) -> None:
    assert is_rate_refusal(detail_of(text)) == is_about_rate


@pytest.mark.parametrize(
    ("text", "is_about_connections"),
    [
        ("451 4.7.1 Too many connections from your host", True),
        ("421 4.7.0 Too many concurrent SMTP connections; please try again later", True),
        ("421 4.3.2 The maximum number of concurrent server connections has exceeded a limit", True),
        ("421 Too many sessions opened", True),
        ("554 5.7.1 Too many connections", False),
        ("450 4.7.0 Connection rate limit exceeded", False),
        ("421 4.7.28 Our system has detected an unusual rate of mail originating from your IP address.", False),
        ("451 4.7.1 Too many messages on this connection", False),
    ],
)
def test_refusal_of_connections_is_recognised_by_its_text(text: str, is_about_connections: bool) -> None:
    assert is_connection_refusal(detail_of(text)) == is_about_connections


def detail_of(text: str) -> dict[str, str | None]:
    reply = Reply(int(text[:3]), (text[4:],))
    return {"code": str(reply.code), "enhanced": reply.enhanced, "text": reply.text}
