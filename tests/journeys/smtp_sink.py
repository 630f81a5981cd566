"""A mail server of the tests, which accepts every mail and stores it as received."""

import socket
from typing import Any, Self

from aiosmtpd.controller import Controller


class Sink:
    def __init__(self) -> None:
        self.mails: list[tuple[str, list[str], bytes]] = []  # envelope sender, recipients, content
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, enable_SMTPUTF8=True)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, envelope.original_content))
        return "250 2.0.0 taken"

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()
