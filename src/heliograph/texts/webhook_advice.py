"""Explanations of failed webhook deliveries, with advice for the endpoint's owner."""

import msgspec

from heliograph.webhooks.policy.retry import NoResponseReason, classify_response


class Advice(msgspec.Struct, frozen=True):
    problem: str
    fix: str


_ADVICE_BY_STATUS = {
    400: Advice(
        "Your endpoint considers the request malformed.", "Parse the raw body as JSON, and check the endpoint's log."
    ),
    401: Advice(
        "Your endpoint requires a login.", "Allow these requests without a login and verify their signature instead."
    ),
    403: Advice(
        "Your endpoint denied the request.",
        "Check the signing secret, and any firewall or CSRF protection in front of the endpoint.",
    ),
    404: Advice("Nothing was found at this URL.", "Check the path of the URL, and that your program is deployed."),
    405: Advice(
        "Your endpoint doesn't accept POST at this URL.", "Check the path of the URL. Events are sent as POST."
    ),
    408: Advice(
        "Your endpoint timed out reading the request.", "Check its log. A proxy in front of it may time out too soon."
    ),
    410: Advice(
        "Your endpoint responded 410 Gone, so we stop sending events.",
        "Respond with 200 instead, then turn the webhook on.",
    ),
    413: Advice("The event is too large for your endpoint.", "Accept bodies of at least 20 KB."),
    415: Advice("Your endpoint doesn't accept JSON.", "Accept Content-Type: application/json."),
    429: Advice("Your endpoint is rate limiting requests.", "No action is needed if this is rare: we retry later."),
    502: Advice("A proxy couldn't reach your endpoint.", "Start the program behind the proxy."),
    503: Advice("Your endpoint is unavailable.", "Start it, or wait: we retry later."),
    504: Advice("A proxy timed out waiting for your endpoint.", "Respond first and do slow work afterwards."),
}
_ADVICE_BY_STATUS_CLASS = {
    1: Advice("The response was not final.", "Respond with a 2xx status."),
    3: Advice("Your endpoint redirects, and we don't follow redirects.", "Use the final URL instead."),
    4: Advice("Your endpoint refused the request.", "Respond with a 2xx status once you have received the event."),
    5: Advice("Your endpoint failed while processing the event.", "Check its log for this time, then retry."),
}
_ADVICE_BY_FAILURE: dict[NoResponseReason, Advice] = {
    "too_slow": Advice("Your endpoint took too long to respond.", "Respond immediately and do slow work afterwards."),
    "certificate_expired": Advice(
        "Your endpoint's certificate has expired.", "Renew the certificate. We retry automatically."
    ),
    "tls_failed": Advice(
        "A secure connection could not be established.",
        "Check that the certificate is valid for this host and sent with its intermediate certificates.",
    ),
    "private_address": Advice(
        "The host resolves to a private address, which webhooks can't use.",
        "Use a public address, or receive events on your own machine with heliograph listen.",
    ),
    "no_address": Advice("The host has no DNS address.", "Check the host in the URL for typos."),
    "dns_silent": Advice("The DNS lookup of the host failed.", "Check the name servers of the domain."),
    "no_connection": Advice(
        "The connection failed.", "Check that your program is running, its port, and any firewall."
    ),
    "not_kept": Advice("The event is no longer stored.", "Events are kept for 30 days. Read the message instead."),
    "no_secret": Advice("The webhook's secret can no longer be read.", "Rotate the secret and update your endpoint."),
}
_UNKNOWN_FAILURE = Advice(
    "There was no usable response.", "Check that the URL points to your endpoint, and check its log."
)


def advice_for(status: int | None, reason: NoResponseReason | None) -> Advice | None:
    """Return advice on a failed attempt; None if the event was delivered."""
    if classify_response(status) == "delivered":
        return None
    if status is not None:
        return _ADVICE_BY_STATUS.get(status) or _ADVICE_BY_STATUS_CLASS.get(status // 100, _UNKNOWN_FAILURE)
    return _ADVICE_BY_FAILURE.get(reason, _UNKNOWN_FAILURE) if reason else _UNKNOWN_FAILURE
