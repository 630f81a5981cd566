"""Notifies systemd of the state of the service (Type=notify, sd_notify(3)), if systemd started it."""

import asyncio
import os
import socket
from contextlib import suppress

SYSTEMD_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


# A full queue of the socket means that systemd does not read: waiting for it would block the event loop.
SEND_TIMEOUT_S = 1.0


def notify(state: str, *, timeout_s: float = SEND_TIMEOUT_S) -> None:
    if path := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(timeout_s)
            sock.sendto(state.encode(), f"\0{path[1:]}" if path.startswith("@") else path)


async def feed_watchdog() -> None:
    """Notify systemd's watchdog twice per period until cancelled; without notifications, systemd ends the process."""
    limit_s = int(os.environ.get("WATCHDOG_USEC", 0)) / 1_000_000
    while limit_s:
        notify("WATCHDOG=1", timeout_s=0)
        await asyncio.sleep(limit_s / 2)
    await asyncio.Event().wait()


def child_environment() -> dict[str, str]:
    """Return the environment of child processes, without systemd's variables: only the parent notifies systemd."""
    return {name: value for name, value in os.environ.items() if name not in SYSTEMD_VARIABLES}
