"""Registry of all webhook event formats."""

from heliograph.domain.delivery.outcome import Own
from heliograph.domain.events import TYPES, event_body
from heliograph.domain.setup.records import OWN_FORMAT, Webhook
from heliograph.webhooks.policy.formats import postal, postmark, resend, twilio
from heliograph.webhooks.policy.formats.format import Format
from heliograph.webhooks.policy.signature import standard_headers

CANCELED: Own = "canceled"  # other services do not report a canceled message as failed

FORMATS = {
    OWN_FORMAT: Format(types=TYPES, body=event_body, sign=standard_headers),
    "postal": Format(types=postal.TYPES, body=postal.body, sign=postal.sign, hushed=(CANCELED,), has_keys=True),
    "postmark": Format(
        types=postmark.TYPES,
        body=postmark.body,
        sign=postmark.sign,
        hushed=(CANCELED,),
        by_name=(postmark.INBOUND,),
    ),
    "resend": Format(
        types=resend.TYPES, body=resend.body, sign=standard_headers, name=resend.name_of, hushed=(CANCELED,)
    ),
    "twilio": Format(
        types=twilio.TYPES,
        body=twilio.body,
        sign=twilio.sign,
        content_type=twilio.CONTENT_TYPE,
        callbacks=True,
    ),
}


def hears(hook: Webhook, type_: str, reason: str | None = None) -> bool:
    """Return whether the webhook subscribes to an event. `reason`: our failure reason, if the event is a failure."""
    form, asked = FORMATS[hook.format], {"*", type_, type_.partition(".")[0] + ".*"}
    if hook.asked:
        return form.name(type_, reason) in hook.asked
    if type_ in form.by_name and type_ not in hook.events:
        return False
    return type_ in form.types and reason not in form.hushed and not asked.isdisjoint(hook.events)


def signs_callbacks(hook: Webhook, type_: str) -> bool:
    """Return whether the webhook signs callbacks of this event type, even if it does not subscribe to the type."""
    form = FORMATS[hook.format]
    return form.callbacks and type_ in form.types
