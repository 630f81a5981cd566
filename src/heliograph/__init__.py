"""Heliograph: transactional email, SMS, WhatsApp and one-time codes that a team runs itself.

Receivers of webhooks: `from heliograph import verify_webhook`; it needs the standard library alone.
"""

from heliograph.webhooks.verification import WebhookRefused, verify_webhook

__all__ = ["WebhookRefused", "__version__", "verify_webhook"]

__version__ = "0.2.0.dev0"
