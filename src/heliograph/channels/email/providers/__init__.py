"""Mail providers behind a relay: how each signs its callbacks, and what its words mean for a recipient."""

from heliograph.channels.email.providers.brevo import Brevo
from heliograph.channels.email.providers.mailgun import Mailgun
from heliograph.channels.email.providers.postmark import Postmark
from heliograph.channels.email.providers.provider import CallbackOptions, MailProvider
from heliograph.channels.email.providers.resend import ResendProvider
from heliograph.channels.email.providers.sendgrid import SendGrid
from heliograph.channels.email.providers.ses import Ses
from heliograph.channels.web import Web

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
