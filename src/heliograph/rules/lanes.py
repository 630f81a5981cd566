"""Lanes of the outbox: each has slots of its own, so a slow channel never takes another's (reliability, choices)."""

from heliograph.rules.setup.records import Channel

LANE: dict[Channel, str] = {"email": "email", "sms": "phone", "whatsapp": "phone"}

WEBHOOKS = "webhooks"  # not a lane, but work of another kind
SETUP = "setup"  # nor this: it has changed, and all processes are to follow
INBOX = "inbox"  # nor this: a simulator delivered something in a sandbox team, and somebody may wait for it anywhere

SLOTS: dict[str, int] = {"email": 200, "phone": 200}  # hand-overs at once in one process
