"""Heliograph: transactional email, SMS, WhatsApp and one-time codes that a team runs itself."""

__version__ = "0.1.0"
