"""A network to PostgreSQL that can hang or break: a proxy from a TCP port to the server's Unix socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Network:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._name = parts.path
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._flows = asyncio.Event()
        self._flows.set()
        self.refuses = False  # connections are closed at once
        self.connections = 0

    def hang(self) -> None:
        """Forward no more data, without closing any connection."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def drop(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Return the URL of the database through this proxy."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        try:
            yield f"postgresql://postgres@127.0.0.1:{server.sockets[0].getsockname()[1]}{self._name}?sslmode=disable"
        finally:
            server.close()
            self.refuses = True
            while self._tasks:  # a connection in progress may have started two more tasks
                self.drop()
                tasks, self._tasks = self._tasks, set()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refuses:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        await self._flows.wait()
        there, back = await asyncio.open_unix_connection(self._socket)
        self._writers += [writer, back]
        self._tasks |= {asyncio.create_task(self._pipe(reader, back)), asyncio.create_task(self._pipe(there, writer))}

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
            writer.close()
