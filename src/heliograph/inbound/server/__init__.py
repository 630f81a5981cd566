"""SMTP server for bounces and inbound mail, with SPF, DKIM and DMARC checks."""
