"""Two hundred malformed sessions: none is accepted wrongly, and none stops or delays the service."""

import base64
import itertools
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.service import PATIENCE_S, TOKENS
from tests.submission.conftest import HOST, SubmissionClient, mail

AUTH = b"EHLO x\r\nAUTH PLAIN " + base64.b64encode(b"\0u\0" + TOKENS["OTHER"].encode()) + b"\r\n"
GOOD = b"EHLO x\r\nAUTH PLAIN " + base64.b64encode(b"\0u\0" + TOKENS["ACME"].encode()) + b"\r\n"
BEGIN = GOOD + b"MAIL FROM:<a@acme.test>\r\nRCPT TO:<ada@example.com>\r\nDATA\r\n"
HEAD = b"From: hi@acme.test\r\nTo: ada@example.com\r\nSubject: hostile\r\n"
END = b"\r\n.\r\n"
SMUGGLED = (
    b"MAIL FROM:<a@acme.test>\r\nRCPT TO:<smuggled@example.com>\r\nDATA\r\n"
    b"From: hi@acme.test\r\nSubject: smuggled\r\n\r\nx"
)

Session = tuple[list[bytes], int]  # (bytes sent, number of mails that may be accepted)


def commands() -> Iterator[Session]:
    """Return malformed commands, in every state."""
    odd = [
        *(b"", b" ", b"\0", b"\xff\xfe", b"EHLO", b"EHLO \r", b"HELO\t\t", b"MAIL", b"MAIL FROM", b"MAIL FROM:"),
        *(b"MAIL FROM:<a@b> SIZE=x", b"MAIL FROM:<a@b> SIZE=-1", b"MAIL FROM:<a@b> SIZE=" + b"9" * 5000),
        *(b"MAIL FROM:<a@b> BODY=BINARYMIME", b"MAIL FROM:<a b@c>", b"MAIL FROM:<a@b> X=1", b'MAIL FROM:<"a"@b>'),
        *(b"RCPT TO:<>", b"RCPT TO:<a@b.test", b"RCPT TO:a@b.test>", b"RCPT TO:<a@b.test> XWHAT=NEVER"),
        *(b"RCPT TO:<@c.test:a@b.test>", b"RCPT TO:<a@[127.0.0.1]>", b"RCPT TO:<\xc3\xbc@b.test>"),
        *(b"RCPT TO:<" + b"a" * 5000 + b"@b.test>", b"DATA now", b"DATA", b"BDAT 5 LAST", b"STARTTLS now"),
        *(b"VRFY root", b"EXPN list", b"HELP", b"TURN", b"XCLIENT ADDR=127.0.0.1", b"AUTH", b"AUTH CRAM-MD5"),
        *(b"AUTH PLAIN", b"AUTH PLAIN ====", b"AUTH PLAIN *", b"AUTH PLAIN =", b"AUTH LOGIN =", b"AUTH LOGIN \xff"),
        *(b"AUTH PLAIN " + base64.b64encode(b"\0" * 2000), b"AUTH PLAIN " + b"A" * 9000),
        *(b"GET / HTTP/1.1", b"\x16\x03\x01\x02\x00"),
    ]
    for line in odd:
        yield [line + b"\r\n"], 0
        yield [AUTH, line + b"\r\n", b"MAIL FROM:<a@b.test>\r\n", line + b"\r\n"], 0


def smuggling() -> Iterator[Session]:
    """Return mails with line ends that other servers read as the end of a mail; only the last one is real."""
    ends = [
        *(b"\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\n", b"\r\n.\r", b"\r.\r\n", b"\n\n.\r\n"),
        *(b"\r\n.\0\r\n", b"\r\n. \r\n", b"\r\n\t.\r\n", b"\n.\r", b"\r\n..\r\n"),
    ]
    for end in ends:
        yield [BEGIN, HEAD + b"\r\nx" + end + SMUGGLED + END], 0 if b"\0" in end else 1
        yield [BEGIN, HEAD + b"\r\nx", end, SMUGGLED, END], 0 if b"\0" in end else 1


def mails() -> Iterator[Session]:
    """Return malformed mails after a valid envelope."""
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(200))
    multipart = HEAD + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"
    for body, accepted in [
        (b"", 0),
        (b"\r\n", 0),
        (HEAD + b"\r\n\0", 0),
        (HEAD + b"X-A: " + b"x" * 300_000 + b"\r\n\r\nx", 0),
        (HEAD + b"X-A: y\r\n" * 40_000 + b"\r\nx", 0),
        (HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(26)) + b"\r\nx", 0),
        (HEAD + deep + b"x", 0),
        (multipart + b"--b\r\n\r\nx\r\n" * 10_000, 0),
        (multipart + b"--b" * 100_000, 1),
        (HEAD + b"From: other@acme.test\r\n\r\nx", 0),
        (b"From: evil@elsewhere.test\r\nSubject: x\r\n\r\nx", 0),
        (b"From: hi@acme.test, evil@elsewhere.test\r\nSubject: x\r\n\r\nx", 0),
        (b"From: hi@acme.test <evil@elsewhere.test>\r\nSubject: x\r\n\r\nx", 0),
        (b"From: =?utf-8?q?hi=40acme=2Etest=3E?= <evil@elsewhere.test>\r\nSubject: x\r\n\r\nx", 0),
        (b"From: hi@acme.test\r\nSubject: =?utf-8?q?a=0D=0ABcc:_b=40c=2Etest?=\r\n\r\nx", 0),
        (b"From: hi@acme.test\r\nSubject: x\r\nX-A: =?utf-8?q?a=0Ab?=\r\n\r\nx", 0),
        (b"From: hi@acme.test\r\nSubject: x\r\nX-A: a\rb\r\n\r\nx", 1),
        (HEAD + b"Content-Transfer-Encoding: base64\r\n\r\n!", 0),
        (HEAD + b"Content-Transfer-Encoding: base64\r\n\r\nA", 0),
        (HEAD + b"Content-Type: application/x-msdownload; name=a.exe\r\n\r\nMZ", 0),
        (HEAD + b"Content-Type: text/plain; charset=\xff\r\n\r\n\xff\xfe", 1),
        (HEAD + b"X-Heliograph-Variables: " + b"[" * 5000 + b"\r\n\r\nx", 0),
        (HEAD + b"X-Metadata: 1\r\n\r\nx", 0),
        (HEAD + b"X-Heliograph-Template: ../../etc\r\n\r\nx", 0),
        (HEAD + b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n\r\nx", 0),
        (HEAD + b"\r\n" + b"x" * 200_000, 1),
        (HEAD + b"\r\n" + b".\r\n.." * 50_000, 1),
    ]:
        yield [BEGIN, body + END], accepted


def bursts() -> Iterator[Session]:
    """Return commands that are pipelined, oversized, cut off or in the wrong order."""
    yield [b"NOOP\r\n" * 5000], 0
    yield [AUTH, b"RSET\r\n" * 5000], 0
    yield [b"x" * 100_000], 0
    yield [b"x" * 13_000 + b"\r\n"], 0
    yield [b"EHLO x\n"], 0
    yield [b"EHLO x\r\nNOOP\nQUIT\r\n"], 0
    yield [BEGIN + HEAD + b"\r\nx" + END + b"QUIT\r\n"], 1
    yield [BEGIN + HEAD + b"\r\nx" + END + BEGIN[len(GOOD) :] + HEAD + b"\r\ny" + END + b"QUIT\r\n"], 2
    yield [BEGIN + HEAD + b"\r\nnever ends"], 0
    yield [BEGIN, HEAD, b"\r\nx\r\n."], 0
    yield [GOOD + b"RCPT TO:<ada@example.com>\r\nDATA\r\n" + HEAD + END], 0
    yield [GOOD + b"MAIL FROM:<a@acme.test>\r\nDATA\r\n" + HEAD + END], 0
    yield (
        [GOOD + b"MAIL FROM:<a@acme.test>\r\n" + b"".join(b"RCPT TO:<r%d@example.com>\r\n" % n for n in range(900))],
        0,
    )
    yield [BEGIN[: -len(b"DATA\r\n")] + b"RSET\r\nDATA\r\n" + HEAD + END], 0
    yield [b"STARTTLS\r\n" + BEGIN + HEAD + b"\r\nx" + END], 0
    yield [b"EHLO x\r\nSTARTTLS\r\n" + BEGIN + HEAD + b"\r\nx" + END], 0
    yield [b"EHLO x\r\nSTARTTLS\r\n", b"\x16\x03\x01" + bytes(500)], 0
    chance = random.Random(1)
    for _ in range(60):
        yield [chance.randbytes(chance.randrange(1, 3000)) + b"\r\n"], 0


SESSIONS = list(itertools.chain(commands(), smuggling(), mails(), bursts()))


def run_session(post: SubmissionClient, sent: list[bytes]) -> bytes:
    """Return all replies of a session, to its end."""
    replies = b""
    with socket.create_connection((HOST, post.port), timeout=PATIENCE_S) as connection, suppress(ConnectionError):
        for piece in sent:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65536):
            replies += piece
    return replies


def test_service_survives_two_hundred_hostile_sessions(post: SubmissionClient) -> None:
    assert len(SESSIONS) >= 200
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda session: run_session(post, session[0]), SESSIONS))
    wrong = [
        (sent, answers[-500:])
        for (sent, accepted), answers in zip(SESSIONS, replies, strict=True)
        if answers.count(b"250 2.0.0 Ok: eml_") != accepted
    ]
    assert not wrong
    assert post.send(mail())
    sent = post.service.get("/v1/emails?limit=100").json["data"]
    assert not [message for message in sent if "smuggled" in str(message)]


def test_every_reply_has_an_enhanced_code(post: SubmissionClient) -> None:
    """Except for the greeting, the replies to EHLO, and replies that request more input."""
    for sent, _ in SESSIONS[:60]:
        for line in run_session(post, sent).split(b"\r\n")[1:-1]:
            if line[:3] not in (b"334", b"354") and b"mail.heliograph.test" not in line and line[3:4] != b"-":
                assert line[4:6] == line[:1] + b"." or line.startswith(b"250 AUTH"), line
