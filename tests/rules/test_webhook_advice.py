"""Every way in which an endpoint fails has a sentence of its own, and something to do."""

import pytest

from heliograph.words.webhook_advice import advice

LOST = "the webhook's secret cannot be opened"


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_what_was_taken_needs_none(status: int) -> None:
    assert advice(status, None) is None


@pytest.mark.parametrize(
    ("status", "error", "what", "cure"),
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
        (None, "no answer within 15 s", "too long", "Answer at once"),
        (None, "TLS failed: certificate has expired", "expired", "Renew"),
        (None, "TLS failed: Hostname mismatch", "secure connection", "valid for this host"),
        (None, "no connection: Connection refused", "Nothing answers", "runs"),
        (None, "hooks.example has no address", "no address", "slip"),
        (None, "DNS gives no answer for hooks.example (Timeout)", "looked up", "name servers"),
        (None, "a.test is, or leads to, a private or reserved address, which …", "private", "heliograph listen"),
        (None, "the event is no longer kept", "no longer kept", "message"),
        (None, LOST, "secret", "Rotate"),
        (None, "something new", "no usable answer", "URL"),
        (None, None, "no usable answer", "URL"),
    ],
)
def test_what_happened_and_what_to_do(status: int | None, error: str | None, what: str, cure: str) -> None:
    found = advice(status, error)
    assert found and what in found.what and cure in found.cure
