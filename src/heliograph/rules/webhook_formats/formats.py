"""All formats that a webhook can have."""

from heliograph.rules.event import TYPES, event_body
from heliograph.rules.setup.records import OWN_FORMAT, Webhook
from heliograph.rules.webhook_formats import postmark, resend, twilio
from heliograph.rules.webhook_formats.format import Format, Signing
from heliograph.rules.webhook_signature import headers


def _standard(signing: Signing) -> dict[str, str]:
    return headers(signing.secrets, signing.event, signing.t, signing.body)


FORMATS = {
    OWN_FORMAT: Format(types=TYPES, body=event_body, sign=_standard),
    "postmark": Format(types=postmark.TYPES, body=postmark.body, sign=postmark.sign),
    "resend": Format(types=resend.TYPES, body=resend.body, sign=_standard),
    "twilio": Format(
        types=twilio.TYPES,
        body=twilio.body,
        sign=twilio.sign,
        content_type=twilio.CONTENT_TYPE,
        target=twilio.target,
    ),
}


def hears(hook: Webhook, type_: str) -> bool:
    asked = {"*", type_, type_.partition(".")[0] + ".*"}
    return type_ in FORMATS[hook.format].types and not asked.isdisjoint(hook.events)
