"""Registry of all webhook event formats."""

from heliograph.domain.delivery.outcome import LocalReason
from heliograph.domain.events import EVENT_TYPES, event_body
from heliograph.domain.setup.records import DEFAULT_FORMAT, Webhook
from heliograph.webhooks.policy.formats import postal, postmark, resend, twilio
from heliograph.webhooks.policy.formats.format import WebhookFormat
from heliograph.webhooks.policy.signature import standard_headers

CANCELED: LocalReason = "canceled"  # other services do not report cancelled messages as failed

FORMATS = {
    DEFAULT_FORMAT: WebhookFormat(types=EVENT_TYPES, body=event_body, sign=standard_headers),
    "postal": WebhookFormat(
        types=postal.EVENT_BY_TYPE,
        body=postal.body,
        sign=postal.sign,
        unreported_reasons=(CANCELED,),
        uses_key_pair=True,
    ),
    "postmark": WebhookFormat(
        types=postmark.RECORD_TYPE_BY_TYPE,
        body=postmark.body,
        sign=postmark.sign,
        unreported_reasons=(CANCELED,),
        opt_in_types=(postmark.INBOUND,),
    ),
    "resend": WebhookFormat(
        types=resend.RESEND_TYPE_BY_TYPE,
        body=resend.body,
        sign=standard_headers,
        event_name=resend.resend_type,
        unreported_reasons=(CANCELED,),
    ),
    "twilio": WebhookFormat(
        types=twilio.TYPES,
        body=twilio.body,
        sign=twilio.sign,
        content_type=twilio.CONTENT_TYPE,
        supports_callbacks=True,
    ),
}


def is_subscribed(hook: Webhook, type_: str, reason: str | None = None) -> bool:
    """Return whether the webhook subscribes to an event. `reason`: reason of a failure event."""
    event_format, matching_names = FORMATS[hook.format], {"*", type_, type_.partition(".")[0] + ".*"}
    if hook.asked:
        return event_format.event_name(type_, reason) in hook.asked
    if type_ in event_format.opt_in_types and type_ not in hook.events:
        return False
    return (
        type_ in event_format.types
        and reason not in event_format.unreported_reasons
        and not matching_names.isdisjoint(hook.events)
    )


def signs_callbacks(hook: Webhook, type_: str) -> bool:
    """Return whether callbacks of this event type are signed for the webhook, even if it does not subscribe to it."""
    event_format = FORMATS[hook.format]
    return event_format.supports_callbacks and type_ in event_format.types
