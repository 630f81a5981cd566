"""Heliograph: a self-hosted service for transactional email, SMS, WhatsApp and one-time codes.

Webhook receivers import `verify_webhook` from here; it needs only the standard library.
"""

from heliograph.webhooks.verification import WebhookRefused, verify_webhook

__all__ = ["WebhookRefused", "__version__", "verify_webhook"]

__version__ = "0.1.0"
