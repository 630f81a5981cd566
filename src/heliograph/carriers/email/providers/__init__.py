"""Mail providers used as relays: each module verifies a provider's callbacks and converts its events."""

from heliograph.carriers.email.providers.brevo import Brevo
from heliograph.carriers.email.providers.mailgun import Mailgun
from heliograph.carriers.email.providers.postmark import Postmark
from heliograph.carriers.email.providers.provider import CallbackOptions, MailProvider
from heliograph.carriers.email.providers.resend import ResendProvider
from heliograph.carriers.email.providers.sendgrid import SendGrid
from heliograph.carriers.email.providers.ses import Ses
from heliograph.carriers.http_client import CarrierHttp

PROVIDER_BY_NAME: dict[str, type[MailProvider]] = {
    "ses": Ses,
    "postmark": Postmark,
    "mailgun": Mailgun,
    "sendgrid": SendGrid,
    "resend": ResendProvider,
    "brevo": Brevo,
}


def make_provider(name: str, options: CallbackOptions, http: CarrierHttp) -> MailProvider:
    """Create the provider `name`; `http` must connect only to checked addresses.

    Raises ValueError if a key or certificate is invalid.
    """
    return PROVIDER_BY_NAME[name](options, http)
