"""The address of a webhook bin and no other, and what a bin says about what arrives."""

from typing import Any

import pytest

from heliograph.webhooks.policy.bin import address, is_bin, seen
from heliograph.webhooks.policy.signature import headers, make_secret

BASE, TOKEN = "http://127.0.0.1:8700", "0123456789abcdef" * 2
SECRET, NOW = make_secret(b"x" * 24), 1_750_000_000
BODY = b'{"type": "webhook.test"}'
SIGNED = headers([SECRET], "evt_1", NOW, BODY)


@pytest.mark.parametrize(
    "url",
    [
        *(
            f"{BASE}/",
            f"{BASE}/v1/emails",
            f"{BASE}/bin/",
            f"{BASE}/bin/team_a/{TOKEN}/",
            f"{BASE}/bin/team_a/{TOKEN}?a",
        ),
        *(f"{BASE}/bin/../v1/{TOKEN}", f"{BASE}/bin/team_a/../{TOKEN}", f"{BASE}/bin/team_a/{TOKEN[1:]}"),
        *(f"{BASE}/bin/team%2fa/{TOKEN}", f"{BASE}/bin/team_a/{TOKEN}\n", f"http://127.0.0.1:22/bin/team_a/{TOKEN}"),
        *(f"http://127.0.0.1/bin/team_a/{TOKEN}", f"http://127.0.0.1:8700@evil/bin/team_a/{TOKEN}"),
        f"https://127.0.0.1:8700/bin/team_a/{TOKEN}",
    ],
)
def test_nothing_else_is_a_bin(url: str) -> None:
    assert is_bin(BASE, address(BASE, "team_a", TOKEN))
    assert not is_bin(BASE, url)


@pytest.mark.parametrize(
    ("given", "body", "later", "said"),
    [
        (SIGNED, BODY, 0, "valid"),
        (SIGNED, BODY + b" ", 0, "not valid"),
        (SIGNED, BODY, 301, "not valid"),
        ({}, BODY, 0, "none that a bin knows"),
    ],
)
def test_what_arrives_is_said_with_who_signed_it(given: dict[str, Any], body: bytes, later: int, said: str) -> None:
    told = seen([SECRET], given, body, NOW + later)
    assert (told["signature"], told["bytes"]) == (said, len(body))
    assert told["received"] == given.get("webhook-id", "") and SECRET not in str(told)


def test_what_is_said_is_small() -> None:
    assert len(str(seen([], dict.fromkeys(SIGNED, "x" * 10**6), b"", NOW))) < 1024
