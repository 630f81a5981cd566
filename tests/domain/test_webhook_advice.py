"""Every way in which an endpoint fails has a sentence of its own, and something to do."""

import pytest

from heliograph.texts.webhook_advice import advice
from heliograph.webhooks.policy.retry import Silence


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_what_was_taken_needs_none(status: int) -> None:
    assert advice(status, None) is None


@pytest.mark.parametrize(
    ("status", "reason", "what", "cure"),
    [
        (301, None, "redirects", "Set the URL"),
        (401, None, "asks for a login", "signature"),
        (403, None, "forbids", "secret"),
        (404, None, "nothing at this address", "path"),
        (410, None, "410 Gone", "turn the webhook on"),
        (418, None, "refused", "200 to 299"),
        (429, None, "fewer requests", "sent again"),
        (500, None, "broke", "log"),
        (502, None, "proxy", "Start the program"),
        (599, None, "broke", "log"),
        (None, "too_slow", "too long", "Answer at once"),
        (None, "certificate_expired", "expired", "Renew"),
        (None, "tls_failed", "secure connection", "valid for this host"),
        (None, "no_connection", "Nothing answers", "runs"),
        (None, "no_address", "no address", "slip"),
        (None, "dns_silent", "looked up", "name servers"),
        (None, "private_address", "private", "heliograph listen"),
        (None, "not_kept", "no longer kept", "message"),
        (None, "no_secret", "secret", "Rotate"),
        (None, "own_fault", "no usable answer", "URL"),
        (None, None, "no usable answer", "URL"),
    ],
)
def test_what_happened_and_what_to_do(status: int | None, reason: Silence | None, what: str, cure: str) -> None:
    found = advice(status, reason)
    assert found and what in found.what and cure in found.cure
