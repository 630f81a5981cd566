"""A scripted SMSC: its response to each command and number, and the receipts that it sends.

As a process: `python -m tests.carriers.smsc --port N`; it prints a line of JSON for each event.
"""

import argparse
import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

from heliograph.carriers.sms.smpp import command, status
from heliograph.carriers.sms.smpp.pdu import (
    MESSAGE_STATE,
    NETWORK_ERROR_CODE,
    RECEIPTED_MESSAGE_ID,
    Pdu,
    PduReader,
    ShortMessage,
    SmppAddress,
    decode_short_message,
    encode_pdu,
    encode_short_message,
)
from heliograph.carriers.sms.smpp.receipt import MESSAGE_STATE_NAMES

DROP = "drop"  # disconnect instead of responding
HALF = "half"  # disconnect in the middle of the response
HANG = "hang"  # never answer
HOLD = "hold"  # answer when `release` is called
NACK = "nack"  # generic_nack

# A status, one of the words above, or bytes to send instead. In a list, one per request; the last one repeats.
Answer = int | str | bytes
Script = dict[str, Answer | list[Answer]]  # by command, or by destination number

WORDS: dict[str, Answer] = {
    "accept": status.ROK,
    "refuse": 0x0B,
    "throttle": 0x58,
    "full": 0x14,
    **{step: step for step in (DROP, HALF, HANG, NACK)},
}
NAMES = {
    command.BIND_TRANSCEIVER: "bind",
    command.SUBMIT_SM: "submit",
    command.ENQUIRE_LINK: "enquire",
    command.UNBIND: "unbind",
}
RECEIPT = 0x04
AGAIN_S = 0.05  # delay before a receipt that got a temporary error is sent again


def receipt(id_: str, state: str = "DELIVRD", *, err: str = "000", text: str = "", tlvs: bool = False) -> ShortMessage:
    """Return a delivery receipt, as text or with TLVs only."""
    line = f"id:{id_} sub:001 dlvrd:001 submit date:2611150930 done date:2611150931 stat:{state} err:{err} text:{text}"
    fields = {
        RECEIPTED_MESSAGE_ID: id_.encode() + b"\0",
        MESSAGE_STATE: bytes((MESSAGE_STATE_NAMES.index(state),)),
        NETWORK_ERROR_CODE: b"\x03" + int(err).to_bytes(2),
    }
    return ShortMessage(
        source=SmppAddress(1, 1, "447700900123"),
        destination=SmppAddress(5, 0, "ACME"),
        esm_class=RECEIPT,
        text=b"" if tlvs else line.encode(),
        tlvs=fields if tlvs else {},
    )


# The states that receipts report for each accepted message, in order.
RECEIPTS: dict[str, tuple[str, ...]] = {
    "none": (),
    "delivered": ("DELIVRD",),
    "failed": ("UNDELIV",),
    "twice": ("DELIVRD", "DELIVRD"),
    "reordered": ("DELIVRD", "ENROUTE"),
    "late": ("UNDELIV", "DELIVRD"),
}


class Smsc:
    def __init__(
        self,
        script: Script | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        receipts: str = "none",
        early: bool = False,  # the receipt is sent before the response
        later_s: float = 0.0,  # seconds from the response to the receipt
        tell: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> None:
        self.host, self.port = host, port
        self.script: Script = script or {}
        self.received: list[ShortMessage] = []
        self.requests: list[tuple[str, Pdu]] = []  # name and PDU of each request received
        self.answers: list[Pdu] = []  # responses to our requests, including generic_nacks
        self.connections: list[Connection] = []  # all connections so far, closed ones too
        self.held_receipts: list[tuple[Connection, bytes]] = []
        self.tell = tell
        self.issued = 0
        self.unsent: list[ShortMessage] = []  # receipts that wait for a bind
        self.later_s = later_s
        self._tls, self._receipts, self._early = tls, RECEIPTS[receipts], early
        self._times: defaultdict[str, int] = defaultdict(int)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), self.host, self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in self.connections:
            connection.transport.abort()
        await asyncio.sleep(0)

    @property
    def bound(self) -> "list[Connection]":
        return [connection for connection in self.connections if connection.bound]

    def names(self) -> list[str]:
        return [name for name, _ in self.requests]

    def release(self) -> None:
        held_receipts, self.held_receipts = self.held_receipts, []
        for connection, octets in held_receipts:
            connection.transport.write(octets)

    async def deliver(self, sm: ShortMessage) -> Pdu:
        """Send a PDU on the newest connection; return the client's response."""
        return await self.bound[-1].request(command.DELIVER_SM, encode_short_message(sm))

    def answer_to(self, name: str) -> Answer:
        script = self.script.get(name, status.ROK)
        if not isinstance(script, list):
            return script
        self._times[name] += 1
        return script[min(self._times[name], len(script)) - 1]

    def next_answer(self, pdu: Pdu) -> tuple[Answer, bytes, list[ShortMessage]]:
        """Return how to answer a request, the body of the answer, and the receipts that follow."""
        name = NAMES[pdu.command]
        self.requests.append((name, pdu))
        if name != "submit":
            return self.answer_to(name), b"smsc\0" if name == "bind" else b"", []
        sm = decode_short_message(pdu.body)
        self.received.append(sm)
        action = self.answer_to(sm.destination.value if sm.destination.value in self.script else name)
        self.issued += 1
        id_ = f"{self.issued:08x}"
        answer_text = action if isinstance(action, int | str) else action.hex()
        about = {"from": sm.source.value, "validity": sm.validity_period, "answer": answer_text, "id": id_}
        self.tell({"submit": sm.destination.value, **about})
        return (
            action,
            id_.encode() + b"\0",
            [receipt(id_, state) for state in self._receipts] if action == status.ROK else [],
        )


class Connection(asyncio.Protocol):
    def __init__(self, smsc: Smsc) -> None:
        self.bound = False
        self._smsc = smsc
        self._frames = PduReader()
        self._sequence = 0
        self._waiting: dict[int, asyncio.Future[Pdu]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._smsc.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.bound = False
        for waiting in self._waiting.values():
            waiting.cancel()

    def data_received(self, data: bytes) -> None:
        for pdu in self._frames.feed(data):
            if pdu.command in NAMES:
                self._handle_request(pdu)
            else:
                self._smsc.answers.append(pdu)
                if (waiting := self._waiting.pop(pdu.sequence, None)) and not waiting.done():
                    waiting.set_result(pdu)

    def _handle_request(self, pdu: Pdu) -> None:
        smsc = self._smsc
        action, body, receipts = smsc.next_answer(pdu)
        error = action if isinstance(action, int) else status.ROK
        octets = encode_pdu(pdu.command | command.RESP, pdu.sequence, b"" if error else body, error)
        if smsc._early:
            self.send_receipts(receipts)
        match action:
            case "drop":
                self.transport.abort()
            case "half":
                self.transport.write(octets[:-3])
                self.transport.close()
            case "hang":
                pass
            case bytes():
                self.transport.write(action)
            case "hold":
                smsc.held_receipts.append((self, octets))
            case "nack":
                self.transport.write(encode_pdu(command.GENERIC_NACK, pdu.sequence, status=status.RINVCMDID))
            case _:
                self.transport.write(octets)
        if pdu.command == command.BIND_TRANSCEIVER and action == status.ROK:
            self.bound = True
            smsc.tell({"bound": True})
            waiting, smsc.unsent = smsc.unsent, []
            self.send_receipts(waiting)
        if pdu.command == command.UNBIND and action == status.ROK:
            smsc.tell({"bound": False})
            self.transport.close()
        if smsc.later_s:
            asyncio.get_running_loop().call_later(smsc.later_s, self.send_receipts, receipts)
        elif not smsc._early:
            self.send_receipts(receipts)

    def send_receipts(self, receipts: list[ShortMessage]) -> None:
        for sm in receipts:
            answer = self.request(command.DELIVER_SM, encode_short_message(sm))
            asyncio.get_running_loop().create_task(self._repeat_receipt(sm, answer))

    async def _repeat_receipt(self, sm: ShortMessage, answer: asyncio.Future[Pdu]) -> None:
        """Send the receipt until it is acknowledged, on any connection."""
        try:
            while (await answer).status == status.RX_T_APPN:
                await asyncio.sleep(AGAIN_S)
                answer = self.request(command.DELIVER_SM, encode_short_message(sm))
            self._smsc.tell({"receipt": (await answer).status})
        except asyncio.CancelledError:
            self._smsc.unsent.append(sm)

    def request(self, id_: int, body: bytes = b"") -> asyncio.Future[Pdu]:
        self._sequence += 1
        answer = self._waiting[self._sequence] = asyncio.get_running_loop().create_future()
        if self.transport.is_closing():
            answer.cancel()
        self.transport.write(encode_pdu(id_, self._sequence, body))
        return answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="smsc", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    for name in NAMES.values():
        steps = f"one for each time, the last one stays: {', '.join(WORDS)}, or a number"
        parser.add_argument(f"--{name}", default="accept", metavar="HOW,…", help=steps)
    parser.add_argument("--to", action="append", default=[], metavar="NUMBER=HOW,…", help="for messages to a number")
    parser.add_argument("--receipts", choices=RECEIPTS, default="delivered")
    parser.add_argument("--early", action="store_true", help="receipts come before the answer to their message")
    parser.add_argument("--later", type=float, default=0.0, metavar="S", help="receipts come so long after it")
    parser.add_argument("--quiet", action="store_true", help="print nothing but the port")
    args = parser.parse_args()
    steps_by_name = {name: getattr(args, name) for name in NAMES.values()} | dict(pair.split("=") for pair in args.to)
    script: Script = {
        name: [_read_answer(step_word) for step_word in steps.split(",")] for name, steps in steps_by_name.items()
    }

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)

    async def serve() -> None:
        options: dict[str, Any] = {} if args.quiet else {"tell": tell}
        smsc_options = {"receipts": args.receipts, "early": args.early, "later_s": args.later}
        async with Smsc(script, port=args.port, **smsc_options, **options) as smsc:
            tell({"port": smsc.port})
            await asyncio.Event().wait()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        pass


def _read_answer(step_word: str) -> Answer:
    return WORDS[step_word] if step_word in WORDS else int(step_word, 0)


if __name__ == "__main__":
    main()
