"""Every failure of an endpoint has its own explanation and advice."""

import pytest

from heliograph.texts.webhook_advice import advice_for
from heliograph.webhooks.policy.retry import NoResponseReason


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_webhook_success_has_no_advice(status: int) -> None:
    assert advice_for(status, None) is None


@pytest.mark.parametrize(
    ("status", "reason", "what", "cure"),
    [
        (301, None, "redirects", "final URL"),
        (401, None, "requires a login", "signature"),
        (403, None, "denied", "secret"),
        (404, None, "Nothing was found", "path"),
        (410, None, "410 Gone", "turn the webhook on"),
        (418, None, "refused", "2xx"),
        (429, None, "rate limiting", "we retry later"),
        (500, None, "failed", "log"),
        (502, None, "proxy", "Start the program"),
        (599, None, "failed", "log"),
        (None, "too_slow", "too long", "Respond immediately"),
        (None, "certificate_expired", "expired", "Renew"),
        (None, "tls_failed", "secure connection", "valid for this host"),
        (None, "no_connection", "connection failed", "running"),
        (None, "no_address", "no DNS address", "typos"),
        (None, "dns_silent", "lookup", "name servers"),
        (None, "private_address", "private", "heliograph listen"),
        (None, "not_kept", "no longer stored", "message"),
        (None, "no_secret", "secret", "Rotate"),
        (None, "own_fault", "no usable response", "URL"),
        (None, None, "no usable response", "URL"),
    ],
)
def test_webhook_failure_advice_has_a_problem_and_a_fix(
    status: int | None, reason: NoResponseReason | None, what: str, cure: str
) -> None:
    result = advice_for(status, reason)
    assert result and what in result.problem and cure in result.fix
