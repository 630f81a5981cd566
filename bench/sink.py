"""An SMTP server on loopback that accepts and discards all mail, for measuring delivery."""

import asyncio

_REPLIES = {b"EHLO": b"250-sink\r\n250 PIPELINING\r\n", b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}
_END = b"\r\n.\r\n"


class Sink:
    def __init__(self) -> None:
        self.count = 0

    async def listen(self) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(lambda: _Session(self), "127.0.0.1", 0)


class _Session(asyncio.Protocol):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._rest = b""
        self._in_mail = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(b"220 sink\r\n")

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while True:
            terminator = _END if self._in_mail else b"\r\n"
            line, separator, rest = self._rest.partition(terminator)
            if not separator:
                return
            self._rest = rest
            if self._in_mail:
                self._in_mail = False
                self._sink.count += 1
                self._transport.write(b"250 accepted\r\n")
            else:
                verb = line[:4].upper()
                self._in_mail = verb == b"DATA"
                self._transport.write(_REPLIES.get(verb, b"250 ok\r\n"))
