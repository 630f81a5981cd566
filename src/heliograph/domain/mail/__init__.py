"""Email rules: addresses, attachments, MIME parsing, bounces and inbound mail."""
