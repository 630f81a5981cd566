"""The exact URL of a webhook bin, and the report on a received request."""

from typing import Any

import pytest

from heliograph.webhooks.policy.bin import bin_url, is_bin, receipt_report
from heliograph.webhooks.policy.signature import make_secret, signature_headers

BASE, TOKEN = "http://127.0.0.1:8700", "0123456789abcdef" * 2
SECRET, NOW = make_secret(b"x" * 24), 1_750_000_000
BODY = b'{"type": "webhook.test"}'
SIGNED = signature_headers([SECRET], "evt_1", NOW, BODY)


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
def test_webhook_bin_rejects_other_urls(url: str) -> None:
    assert is_bin(BASE, bin_url(BASE, "team_a", TOKEN))
    assert not is_bin(BASE, url)


@pytest.mark.parametrize(
    ("given", "body", "later", "said"),
    [
        (SIGNED, BODY, 0, "valid"),
        (SIGNED, BODY + b" ", 0, "not valid"),
        (SIGNED, BODY, 301, "not valid"),
        ({}, BODY, 0, "missing or in another format"),
    ],
)
def test_webhook_bin_reports_the_signature_of_a_request(
    given: dict[str, Any], body: bytes, later: int, said: str
) -> None:
    actual = receipt_report([SECRET], given, body, NOW + later)
    assert (actual["signature"], actual["bytes"]) == (said, len(body))
    assert actual["received"] == given.get("webhook-id", "") and SECRET not in str(actual)


def test_webhook_bin_report_stays_small() -> None:
    assert len(str(receipt_report([], dict.fromkeys(SIGNED, "x" * 10**6), b"", NOW))) < 1024
