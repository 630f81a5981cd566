"""Mail providers behind a relay: how each signs its callbacks, and what its words mean for a recipient."""

from heliograph.carriers.email.providers.brevo import Brevo
from heliograph.carriers.email.providers.mailgun import Mailgun
from heliograph.carriers.email.providers.postmark import Postmark
from heliograph.carriers.email.providers.provider import CallbackOptions, MailProvider
from heliograph.carriers.email.providers.resend import ResendProvider
from heliograph.carriers.email.providers.sendgrid import SendGrid
from heliograph.carriers.email.providers.ses import Ses
from heliograph.carriers.http_client import Web

PROVIDERS: dict[str, type[MailProvider]] = {
    "ses": Ses,
    "postmark": Postmark,
    "mailgun": Mailgun,
    "sendgrid": SendGrid,
    "resend": ResendProvider,
    "brevo": Brevo,
}


def make_provider(name: str, options: CallbackOptions, web: Web) -> MailProvider:
    """Make it; `web` connects to checked addresses only.

    Raises ValueError for a key or certificate that cannot be read.
    """
    return PROVIDERS[name](options, web)
