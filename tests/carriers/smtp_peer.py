"""A scripted mail server: which reply each verb gets, when to disconnect, and how the end of a mail is detected."""

import asyncio
import datetime
import ipaddress
import re
import ssl
import tempfile
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DROP = "drop"  # disconnect instead of replying
HANG = "hang"  # never answer
READ_MAX = 1 << 20

OFFERS = ("PIPELINING", "SIZE 40000000", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES")
USUAL = {
    "connect": "220 peer ESMTP",
    "helo": "250 peer",
    "mail": "250 2.1.0 ok",
    "rcpt": "250 2.1.5 ok",
    "data": "354 go on",
    "final": "250 2.0.0 queued",
    "rset": "250 2.0.0 ok",
    "quit": "221 2.0.0 bye",
    "starttls": "220 2.0.0 go on",
    "auth": "235 2.7.0 welcome",
}

# A reply, or one for each use of the verb (the last one repeats); bytes are sent unchanged.
Answer = str | bytes
Script = dict[str, Answer | list[Answer]]


class Received(msgspec.Struct):
    sender: str
    recipient: str
    raw: bytes  # with dot-stuffing, as received
    tls: bool

    @property
    def mail(self) -> bytes:
        return re.sub(rb"(^|\r\n)\.", rb"\1", self.raw)


class Hangup(Exception): ...


class Peer:
    def __init__(
        self,
        script: Script | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        offers: tuple[str, ...] = OFFERS,
        tls: ssl.SSLContext | None = None,
        implicit: bool = False,
        final_delay: float = 0,
    ) -> None:
        self.host, self.port = host, port
        self.received: list[Received] = []
        self.talks: list[list[str]] = []  # the verbs of each connection
        self.lines: list[str] = []  # whole commands
        self.groups: list[list[str]] = []  # verbs received in one read
        self.open_connections = self.most_connections = 0  # current and maximum number of connections
        self._script = {**USUAL, **(script or {})}
        self._offers = (*offers, "STARTTLS") if tls and not implicit else offers
        self._tls, self._implicit, self._final_delay = tls, implicit, final_delay
        self._times: defaultdict[str, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.open_connections += 1
        self.most_connections = max(self.most_connections, self.open_connections)
        dialogue: list[str] = []
        self.talks.append(dialogue)
        try:
            await SmtpConversation(self, reader, writer, dialogue).run()
        except (Hangup, OSError, asyncio.CancelledError):
            pass
        finally:
            self.open_connections -= 1
            writer.transport.abort()

    async def end_mail(self) -> None:
        await asyncio.sleep(self._final_delay)

    def answer(self, verb: str) -> Answer:
        script = self._script.get(verb, "502 5.5.1 what?")
        if not isinstance(script, list):
            return script
        self._times[verb] += 1
        return script[min(self._times[verb], len(script)) - 1]


class SmtpConversation:
    def __init__(
        self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dialogue: list[str]
    ) -> None:
        self.peer, self.reader, self.writer, self.talk = peer, reader, writer, dialogue
        self.buffer = b""
        self.tls = False
        self.sender = self.recipient = ""

    async def run(self) -> None:
        if self.peer._implicit:
            await self.secure()
        await self.say("connect")
        while True:
            line = await self.line()
            verb = line.split(" ")[0].split(":")[0].lower()
            self.talk.append(verb)
            self.peer.lines.append(line)
            await self.run_command(verb, line)

    async def run_command(self, verb: str, line: str) -> None:
        match verb:
            case "ehlo" if "ehlo" not in self.peer._script:
                offers = [offer for offer in self.peer._offers if not (self.tls and offer == "STARTTLS")]
                await self.write("\n".join(["250-peer", *(f"250-{offer}" for offer in offers), "250 HELP"]))
            case "mail":
                self.sender = line.partition("<")[2].partition(">")[0]
                await self.say(verb)
            case "rcpt":
                self.recipient = line.partition("<")[2].partition(">")[0]
                await self.say(verb)
            case "data":
                reply = await self.say(verb)
                if str(reply).startswith("354"):
                    await self.take_mail()
            case "starttls":
                if str(await self.say(verb)).startswith("220"):
                    await self.secure()
            case "auth" if line.upper() == "AUTH LOGIN":
                for prompt in ("334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6"):
                    await self.write(prompt)
                    self.peer.lines.append(await self.line())
                await self.say(verb)
            case "quit":
                await self.say(verb)
                raise Hangup
            case _:
                await self.say(verb)

    async def secure(self) -> None:
        assert self.peer._tls
        await self.writer.start_tls(self.peer._tls)
        self.tls = True

    async def take_mail(self) -> None:
        if (action := self.peer.answer("body")) in (DROP, HANG):
            await self.read_more()
            await asyncio.sleep(3600 if action == HANG else 0)
            raise Hangup
        observed = 0
        while not (end := end_of_mail(self.buffer, start=observed)):
            observed = max(0, len(self.buffer) - 4)
            await self.read_more()
        raw, self.buffer = self.buffer[: end[0]], self.buffer[end[1] :]
        self.talk.append("final")
        self.peer.received.append(Received(self.sender, self.recipient, raw, self.tls))
        await self.peer.end_mail()
        await self.say("final")

    async def line(self) -> str:
        while b"\r\n" not in self.buffer:
            await self.read_more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line.decode()

    async def read_more(self) -> None:
        octets = await self.reader.read(READ_MAX)
        if not octets:
            raise Hangup
        self.buffer += octets
        self.peer.groups.append([line.split(b" ")[0].decode("latin-1") for line in octets.split(b"\r\n")[:-1]])

    async def say(self, verb: str) -> Answer:
        reply = self.peer.answer(verb)
        if reply == DROP:
            raise Hangup
        if reply == HANG:
            await asyncio.sleep(3600)
        await self.write(reply)
        if isinstance(reply, str) and reply.startswith("421"):
            raise Hangup
        return reply

    async def write(self, reply: Answer) -> None:
        octets = reply if isinstance(reply, bytes) else reply.replace("\n", "\r\n").encode() + b"\r\n"
        self.writer.write(octets)
        await self.writer.drain()


_STRICT = re.compile(rb"(?:\A|(?<=\r\n))\.\r\n")
_LENIENT = re.compile(rb"(?:\A|(?<=[\r\n]))\.(?:\r\n|\n|\r)")


def end_of_mail(octets: bytes, lenient: bool = False, start: int = 0) -> tuple[int, int] | None:
    """Return where the mail ends and the next command begins; a lenient server accepts bare LF and CR too."""
    match = (_LENIENT if lenient else _STRICT).search(octets, start)
    return match.span() if match else None


SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority of the tests."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test CA")])
        builder = self._builder(self._name, self._key.public_key())
        authority = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = authority.add_extension(SIGNS_CERTIFICATES, critical=True).sign(self._key, hashes.SHA256())

    def trusted(self) -> ssl.SSLContext:
        """Return a TLS context for clients that trusts this authority."""
        return ssl.create_default_context(cadata=self.certificate.public_bytes(Encoding.PEM).decode())

    def server(self, *hosts: str, chain: bool = False, days: float = 1) -> tuple[ssl.SSLContext, x509.Certificate]:
        """Return a TLS context for a server with a certificate for these hosts."""
        pem, certificate = self.pem(*hosts, days=days)
        pem += self.certificate.public_bytes(Encoding.PEM) if chain else b""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "server.pem"
            file.write_bytes(pem)
            context.load_cert_chain(file)
        return context, certificate

    def pem(self, *hosts: str, days: float = 1) -> tuple[bytes, x509.Certificate]:
        """Return the key and the certificate of such a server as one PEM text."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.IPAddress(ipaddress.ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        builder = self._builder(subject, key.public_key(), days)
        certificate = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(
            self._key, hashes.SHA256()
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return private + certificate.public_bytes(Encoding.PEM), certificate

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: float = 1) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=days))
            # Python 3.13 requires both extensions.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
