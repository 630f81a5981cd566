"""Twilio's Verify v2 and Messages APIs."""
