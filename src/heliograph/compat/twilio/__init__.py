"""The compatibility API for Twilio: Verify v2 and Messages."""
