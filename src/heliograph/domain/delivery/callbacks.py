"""Which carriers report to our callback address, and when their silence means that something is not set up."""

from heliograph.domain.limits import DAY_MS
from heliograph.domain.setup.records import CarrierRecord

# What a provider's callbacks are verified with; without it our address is not there.
_VERIFIED_BY = {"ses": "callback_topic", "sendgrid": "callback_key"}


def has_address(carrier: CarrierRecord) -> bool:
    """Tell whether it can be told where to call."""
    return carrier.kind in ("cloud_api", "http", "twilio") or (
        carrier.kind == "smtp" and bool(carrier.options.get("provider"))
    )


def calls_back(carrier: CarrierRecord) -> bool:
    """Tell whether reports are to be expected of it."""
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
            return bool(provider and options.get(_VERIFIED_BY.get(provider, "callback_secret")))
    return False


def is_silent(day: int, hour: int, last_at: int | None, now: int) -> bool:
    """Tell whether messages went out within a day, not only in the last hour, and no callback came within that day."""
    return day > hour and (last_at is None or last_at < now - DAY_MS)
