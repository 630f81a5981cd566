"""The service with a slow email carrier that appends the id of each message it sends to a file in its data folder."""

import sys
from collections import Counter
from pathlib import Path


def program(scale: int, send_s: float) -> str:
    """Return a program for `Service.start`, with leases, heartbeats and pauses `scale` times shorter than usual."""
    service = f"""
import asyncio, os
from heliograph.domain import limits

limits.LEASE_MS //= {scale}
limits.HEARTBEAT_MS //= {scale}
limits.CONTACT_PAUSE_MAX_MS //= {scale}

from heliograph import app
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.cli.main import main
from heliograph.storage.engine import sqlite

every = app.every
app.every = lambda seconds, work, **how: every(seconds / {scale}, work, **how)
sqlite.BUSY_MS = 10_000 // {scale}
send_message, path = EmailSimulator.send_message, os.environ["HELIOGRAPH_DATA"] + "/sent"
sent = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


async def slow(self, message):
    await message.hooks.before_send()
    os.write(sent, f"{{message.message_id}}\\n".encode())
    await asyncio.sleep({send_s})
    return await send_message(self, message)


EmailSimulator.send_message = slow
main()
"""
    # A new interpreter: a fork of this one has read the limits already.
    return f"import os, sys; os.execv({sys.executable!r}, [sys.executable, '-c', {service!r}, *sys.argv[1:]])"


def count_sends(data: Path) -> Counter[str]:
    """Return how often each message was sent, by its id."""
    return Counter((data / "sent").read_text().split())
