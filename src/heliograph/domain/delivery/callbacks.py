"""Carrier callbacks: which carriers send them, and when their absence indicates missing configuration."""

from heliograph.domain.limits import DAY_MS
from heliograph.domain.setup.records import CarrierRecord

# Provider → option that verifies its callbacks; if the option is not set, the callback URL is not served.
_VERIFICATION_OPTION_BY_PROVIDER = {"ses": "callback_topic", "sendgrid": "callback_key"}


def supports_callbacks(carrier: CarrierRecord) -> bool:
    """Return whether the carrier can be configured with a callback URL."""
    return carrier.kind in ("cloud_api", "http", "twilio") or (
        carrier.kind == "smtp" and bool(carrier.options.get("provider"))
    )


def expects_callbacks(carrier: CarrierRecord) -> bool:
    """Return whether callbacks are expected from the carrier."""
    options = carrier.options
    match carrier.kind:
        case _ if not carrier.enabled:
            return False
        case "twilio":
            return True
        case "cloud_api":
            return bool(options.get("app_secret"))
        case "http":
            return bool(options.get("callback_secret") and options.get("callback"))
        case "smtp":
            provider = options.get("provider")
            return bool(provider and options.get(_VERIFICATION_OPTION_BY_PROVIDER.get(provider, "callback_secret")))
    return False


def lacks_callbacks(sent_in_day: int, sent_in_hour: int, last_at: int | None, now: int) -> bool:
    """Return whether no callback arrived in the last day, although messages were sent, some over an hour ago."""
    return sent_in_day > sent_in_hour and (last_at is None or last_at < now - DAY_MS)
