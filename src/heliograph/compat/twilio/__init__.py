"""Twilio: Verify v2 and Messages."""
