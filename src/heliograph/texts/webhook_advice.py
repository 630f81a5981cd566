"""Explanations of failed webhook deliveries, with advice for the endpoint's owner."""

import msgspec

from heliograph.webhooks.policy.retry import Silence, verdict


class Advice(msgspec.Struct, frozen=True):
    what: str
    cure: str


_STATUS = {
    400: Advice("Your endpoint found the request malformed.", "Read the raw body as JSON, and see its log for why."),
    401: Advice(
        "Your endpoint asks for a login.", "Let these requests in without one, and check their signature instead."
    ),
    403: Advice(
        "Your endpoint forbids the request.",
        "Check the secret that you verify the signature with, and any firewall or CSRF protection before it.",
    ),
    404: Advice("There is nothing at this address.", "Check the path of the URL, and that the program is deployed."),
    405: Advice("Your endpoint takes no POST at this address.", "Check the path of the URL: events come as POST."),
    408: Advice("Your endpoint gave up reading the request.", "See its log; a proxy before it may be too impatient."),
    410: Advice(
        "Your endpoint said 410 Gone, which means that it wants no more events.",
        "Answer 200 instead, then turn the webhook on again.",
    ),
    413: Advice("Your endpoint finds the event too large.", "Let it take bodies of 20 KB."),
    415: Advice("Your endpoint does not take JSON.", "Let it take Content-Type: application/json."),
    429: Advice(
        "Your endpoint takes fewer requests than it got.", "Nothing, if it is rare: the event is sent again later."
    ),
    502: Advice("A proxy before your endpoint could not reach it.", "Start the program behind the proxy."),
    503: Advice("Your endpoint is away for now.", "Start it, or wait: the event is sent again later."),
    504: Advice("A proxy before your endpoint waited for it in vain.", "Answer first, and do slow work afterwards."),
}
_CLASS = {
    1: Advice("The answer was not a final one.", "Answer with a status of 200 to 299."),
    3: Advice("Your endpoint redirects, and redirects are not followed.", "Set the URL to where it leads in the end."),
    4: Advice("Your endpoint refused the request.", "Answer with a status of 200 to 299 once you have the event."),
    5: Advice("Your endpoint broke while it worked on the event.", "See its log for this time; then replay the event."),
}
_SILENCE: dict[Silence, Advice] = {
    "too_slow": Advice("Your endpoint took too long.", "Answer at once, and do slow work afterwards."),
    "certificate_expired": Advice(
        "The certificate of your endpoint has expired.", "Renew it; the event is sent again by itself."
    ),
    "tls_failed": Advice(
        "No secure connection came about.",
        "Check that the certificate is valid for this host and sent with its intermediates.",
    ),
    "private_address": Advice(
        "The host leads to a private address, which webhooks may not reach.",
        "Use a public address, or receive events on your own machine with heliograph listen.",
    ),
    "no_address": Advice("DNS has no address for the host.", "Check the host in the URL for a slip."),
    "dns_silent": Advice("The host could not be looked up.", "Check the name servers of the domain."),
    "no_connection": Advice(
        "Nothing answers at this address.", "Check that the program runs, its port, and the firewall before it."
    ),
    "not_kept": Advice("The event is no longer kept.", "Events are kept for 30 days: read its message instead."),
    "no_secret": Advice(
        "The webhook's secret cannot be read any more.", "Rotate the secret, and give your endpoint the new one."
    ),
}
_UNKNOWN = Advice("There was no usable answer.", "Check that the URL leads to your endpoint, and see its log.")


def advice(status: int | None, reason: Silence | None) -> Advice | None:
    """Return advice on a failed attempt; None if the event was delivered."""
    if verdict(status) == "delivered":
        return None
    if status is not None:
        return _STATUS.get(status) or _CLASS.get(status // 100, _UNKNOWN)
    return _SILENCE.get(reason, _UNKNOWN) if reason else _UNKNOWN
