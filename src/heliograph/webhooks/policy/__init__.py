"""Pure rules of webhooks: URLs, secrets, event formats, signatures and retries."""
