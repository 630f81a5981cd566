"""P30: what comes back is neither lost nor believed too easily.

Four ways in at once (a provider's callbacks, mail, texts, Meta's news), each repeating what was not answered, while the
service is killed: what was answered 2xx or 250 is there once. Then what is forged, stale, repeated or foreign changes
nothing, and hostile mails and callbacks stop nobody. The checker is the feed of events, read as a customer does.
"""

import hmac
import http.client
import json
import random
import smtplib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.carriers.providers import OPTIONS, gzipped, payload, signed
from tests.journeys.load import AGAIN_S, email
from tests.journeys.smtp_sink import Sink
from tests.journeys.test_received import ZONE, Receiving, letter, name_server
from tests.proof.size import DATABASES, FULL, database_name, report, rounds, size
from tests.proof.test_hostile import KIB, LATE_S, Probe, many
from tests.service import Service, free_port, until

KILLS, BELIEVED = size("P30 kills"), size("P30 not believed")
HOSTILE = 1_000
SECRET = "a secret of a phone carrier"
BREATH_S = 0.1 if FULL else 0.03
PHONE, OURS = "447700900123", "12025550123"
MORE = f"""
[[carriers]]
id = "texts"
channel = "sms"
kind = "http"
url = "http://127.0.0.1:9/"
countries = ["JP"]
callback_secret = "{SECRET}"
callback = {{ id = "$.report", status = "$.status", delivered = ["ok"], failed = ["no"] }}
incoming = {{ from = "$.from", to = "$.to", text = "$.text", id = "$.id" }}
[[carriers]]
id = "meta"
channel = "whatsapp"
kind = "cloud_api"
countries = ["JP"]
phone_number_id = "1"
access_token = "t"
app_secret = "{SECRET}"
[[teams]]
id = "team_acme"
[[teams.inbound]]
address = "*@in.acme.test"
[[teams.sender_ids]]
country = "JP"
value = "+{OURS}"
approved = true
"""


RELAY = """
[[carriers]]
id = "{name}"
channel = "email"
kind = "smtp"
host = "127.0.0.1"
port = {port}
tls = "none"
priority = {priority}
provider = "{name}"
"""
TOLD = {"email.complained", "suppression.created", "sms.received", "template.status_changed"}
PERMANENT = {  # the golden payload that a hard bounce is
    "ses": "bounce",
    "postmark": "hard_bounce",
    "mailgun": "failed_permanent",
    "sendgrid": "bounce",
    "resend": "bounced",
    "brevo": "hard_bounce",
}


@contextmanager
def answering(database_url: str, folder: Path) -> Iterator[Receiving]:
    """Mail leaves by Postmark's relay; five more providers may call."""
    setup = MORE
    with (
        Sink() as sink,
        name_server(ZONE) as names,
        Receiving(database_url, folder / "data", free_port(), names) as service,
    ):
        for name, options in OPTIONS.items():
            setup += RELAY.format(name=name, port=sink.port, priority=1 if name == "postmark" else 2)
            setup += "".join(f"{field} = {json.dumps(value)}\n" for field, value in options.items())
        service.apply()
        more = folder / "more.toml"
        more.write_text(setup)
        service.apply(more)
        yield service


def call_back(service: Service, carrier: str, body: bytes, headers: dict[str, str]) -> int:
    given = {"content-type": "application/json"} | headers
    return service.ask("POST", f"/carriers/{carrier}/callback", body, key=None, headers=given).status


def bounce(service: Service, id_: str, to: str, event: str = "hard_bounce") -> int:
    headers, body = signed("postmark", payload("postmark", event, id_, to), 0)
    return call_back(service, "postmark", body, headers)


def text(service: Service, number: int, secret: str = SECRET) -> int:
    told = {"from": PHONE, "to": OURS, "text": f"text {number}", "id": f"t{number}"}
    body = json.dumps(told).encode()
    return call_back(service, "texts", body, {"x-signature": hmac.new(secret.encode(), body, "sha256").hexdigest()})


def news(service: Service, at: int, status: str, secret: str = SECRET) -> int:
    value = {"event": status, "message_template_name": "parcel", "message_template_language": "en", "reason": "NONE"}
    change = {"field": "message_template_status_update", "value": value}
    body = json.dumps({"entry": [{"id": "1", "time": at, "changes": [change]}]}).encode()
    signature = hmac.new(secret.encode(), body, "sha256").hexdigest()
    return call_back(service, "meta", body, {"x-hub-signature-256": f"sha256={signature}"})


def mail(service: Receiving, number: int) -> int:
    service.mail(letter(f"mail {number}"), f"n{number}@in.acme.test")
    return 250


def send(service: Service, count: int) -> list[tuple[str, str]]:
    """Ids and addresses of so many emails that the relay has taken."""
    addresses = [f"p{number}@example.com" for number in range(count)]
    sent = [(service.post("/v1/emails", email("x", address)).json["id"], address) for address in addresses]
    until(lambda: {service.get(f"/v1/emails/{id_}").json["status"] for id_, _ in sent[-3:]} == {"sent"}, 300)
    return sent


def feed(service: Service) -> list[Any]:
    """All events, as a customer pulls them."""
    events, after = list[Any](), ""
    while True:
        page = service.get(f"/v1/events?limit=100{after and f'&after={after}'}").json
        events += page["data"]
        if not page["has_more"]:
            return events
        after = page["data"][-1]["id"]


class Way:
    """Says one thing after the other, each until it is answered; `answered` is what the world believes."""

    def __init__(self, say: Callable[[int], int], most: int | None = None) -> None:
        self._say, self._most = say, most
        self.answered = 0
        self.again = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in count():
            while not self._stop.is_set() and number != self._most:
                with suppress(OSError, smtplib.SMTPException, http.client.HTTPException):
                    if 200 <= self._say(number) < 300:
                        break
                self.again += 1
                time.sleep(AGAIN_S)
            else:
                return
            self.answered = number + 1
            time.sleep(BREATH_S)

    def end(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.answered


@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
def test_acknowledged_inbound_report_is_stored_once(database_url: str, tmp_path: Path) -> None:
    chance, began = random.Random(30), int(time.time()) - 1_000_000
    with answering(database_url, tmp_path) as service:
        port = free_port()
        service.start("all", port)
        sent = send(service, 10 * KILLS)
        ways = {
            "callbacks": Way(lambda n: bounce(service, *sent[n]), len(sent)),
            "mails": Way(lambda n: mail(service, n)),
            "texts": Way(lambda n: text(service, n)),
            "news": Way(lambda n: news(service, began + n, ("PAUSED", "APPROVED")[n % 2])),
        }
        for _ in rounds("P30", KILLS):
            time.sleep(chance.uniform(0.05, 0.6))
            service.kill()
            service.start("all", port)
        answered = {name: way.end() for name, way in ways.items()}
        events = Counter[str]()

        def all_told() -> bool:
            events.clear()
            for one in feed(service):
                match one["type"], one["data"]:
                    case "email.bounced", data:
                        events[f"callbacks {data['recipient'][1:-12]}"] += 1
                    case "email.received", data:
                        events[f"mails {data['subject'].removeprefix('mail ')}"] += 1
                    case "sms.received", data:
                        events[f"texts {data['text'].removeprefix('text ')}"] += 1
                    case "template.status_changed", data if data["id"] == "tpl_whatsapp":
                        events["news"] += 1
            wanted = [f"{name} {n}" for name, most in answered.items() if name != "news" for n in range(most)]
            return events["news"] >= answered["news"] and all(events[one] for one in wanted)

        until(all_told, 120)
        assert events.pop("news") <= answered["news"] + 1  # the last one may have come without its answer
        assert set(events.values()) == {1}, [one for one in events if events[one] > 1]
    said = ", ".join(f"{many} {name}" for name, many in answered.items())
    again = sum(way.again for way in ways.values())
    name = database_name(database_url)
    report("P30", f"{name}: {KILLS} kills, {said} answered, {again} repeated: 0 lost, 0 doubled")


def state(service: Service, ids: list[str]) -> Any:
    """All that could have changed."""
    events = [one["id"] for one in feed(service)]
    found = [service.get(f"/v1/emails/{id_}").json for id_ in ids]
    return (
        events,
        [(one["status"], [(each["status"], each["detail"]) for each in one["recipients"]]) for one in found],
        service.get("/v1/suppressions?limit=100").json["data"],
        service.get("/v1/opt-outs").json["data"],
        service.get("/v1/received").json["data"],
        service.get("/v1/templates/tpl_whatsapp").json,
    )


@pytest.mark.parametrize("database_url", DATABASES[:1], indirect=True)
def test_forged_inbound_report_changes_nothing(database_url: str, tmp_path: Path) -> None:
    chance, now = random.Random(30), int(time.time())
    with answering(database_url, tmp_path) as service:
        service.start()
        (waiting, there), (ended, gone) = send(service, 2)
        assert bounce(service, ended, gone, "complaint") == 200
        assert text(service, 0) == 200 and news(service, now, "PAUSED") == 200
        until(lambda: {one["type"] for one in feed(service)} >= TOLD)
        before = state(service, [waiting, ended])
        silenced = {one["email"] for one in service.get("/v1/suppressions").json["data"]}

        def forged(n: int) -> int:
            provider = list(OPTIONS)[n % len(OPTIONS)]
            headers, body = signed(
                provider, payload(provider, PERMANENT[provider], waiting, there), now * 1000, f"once{n}"
            )
            if provider in ("postmark", "brevo"):
                headers = {"authorization": headers["authorization"][:-2] + chance.choice("abc")}
            elif provider in ("mailgun", "ses"):
                told = json.loads(body)
                where, name = (told, "Signature") if provider == "ses" else (told["signature"], "signature")
                where[name] = "A" + where[name][1:] if where[name][0] != "A" else "B" + where[name][1:]
                body = json.dumps(told).encode()
            else:
                body = body + b" "
            return call_back(service, provider, body, headers)

        def stale(n: int) -> int:
            provider = ("mailgun", "resend", "sendgrid")[n % 3]
            ages = (301, 3_600, 86_400 * 30) if provider == "resend" else (86_400 * 30,)  # ids of the others are known
            late = (now - chance.choice(ages)) * 1000
            headers, body = signed(provider, payload(provider, PERMANENT[provider], waiting, there), late, f"late{n}")
            return call_back(service, provider, body, headers)

        def foreign(n: int) -> int:
            """Signed well, by a provider that never had it, or about what nobody has."""
            provider, known = (
                chance.choice(("brevo", "resend", "sendgrid", "ses")),
                waiting if n % 2 else f"eml_{n:026}",
            )
            told = payload(provider, PERMANENT[provider], known, there)
            headers, body = signed(provider, told, int(time.time()) * 1000, f"far{n}")
            return call_back(service, provider, body, headers)

        def elsewhere(n: int) -> int:
            return bounce(service, f"eml_{n:026}", f"other{n}@example.com")

        def unknown(n: int) -> int:
            with smtplib.SMTP("127.0.0.1", service.port, timeout=60) as peer:
                peer.ehlo()
                peer.mail("")
                return peer.rcpt(chance.choice((f"b{n:050}@mail.acme.test", f"n{n}@acme.test", "in.acme.test@x.test")))[
                    0
                ]

        kinds: dict[str, tuple[Callable[[int], int], int]] = {
            "forged": (forged, 401),
            "stale": (stale, 401),
            "repeated": (lambda n: bounce(service, ended, gone, "complaint"), 200),
            "of another carrier": (foreign, 200),
            "about no message of ours": (elsewhere, 200),
            "forged texts": (lambda n: text(service, n, "another"), 403),
            "repeated texts": (lambda n: text(service, 0), 200),
            "forged template updates": (lambda n: news(service, now + 9, "DISABLED", "another"), 403),
            "old template updates": (lambda n: news(service, now - 1 - n, "APPROVED"), 200),
            "mails to unknown addresses": (unknown, 550),
        }
        for number in range(BELIEVED):
            name, (say, status) = list(kinds.items())[number % len(kinds)]
            assert say(number) == status, name
        assert state(service, [waiting, ended]) == before
        # About another address than the one that was written to: told, and nobody is silenced for it.
        bounce(service, waiting, "somebody.else@example.org")
        assert {one["email"] for one in service.get("/v1/suppressions").json["data"]} == silenced
    report("P30", f"{BELIEVED} that were {', '.join(kinds)}: 0 changes; 0 suppressed by a report about another address")


def hostile_mail(number: int) -> bytes:
    head = f"From: a{number}@example.org\r\nMessage-ID: <{number}@x>\r\n".encode()
    long, size = b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n", 512 * KIB
    nested = b"".join(
        b"--%d\r\nContent-Type: multipart/mixed; boundary=%d\r\n\r\n" % (depth, depth + 1) for depth in range(2_000)
    )
    return (
        many(head + long, b"--x\r\n\r\na\r\n", b"--x--", size),
        head + b"Content-Type: multipart/mixed; boundary=0\r\n\r\n" + nested,
        many(head, b"X: y\r\n", b"\r\nx", size),
        many(head + b"Subject: ", b"=?utf-8?q?=C3=BC?= ", b"\r\n\r\nx", 60 * KIB),
        many(head, b"DKIM-Signature: v=1; a=rsa-sha256; d=example.org; s=s; h=from; bh=x; b=x\r\n", b"\r\nx", size),
        many(head + b"Content-Type: text/html\r\n\r\n", b"<div><!--", b"", size),
        many(head + b"Content-Transfer-Encoding: base64\r\n\r\n", b"QUJD\r\n", b"", size),
        many(head + b"\r\n", b"> On Mon, Bob wrote:\r\n", b"", size),
        many(head + b"References: ", b"<a@b>\r\n ", b"\r\n\r\nx", 60 * KIB),
        many(head + b"Content-Type: text/plain; charset=utf-7\r\n\r\n", b"+AAA-", b"", size),
    )[number % 10]


def hostile_callback(number: int) -> tuple[str, bytes, dict[str, str]]:
    size, now = 900 * KIB, int(time.time()) * 1000
    body = (
        many(b"", b"[", b"", size),
        many(b"[", b'{"event":"bounce"},', b"{}]", size),
        many(b'{"a":"', b"\\u0061", b'"}', size),
        many(b"{", b'"a":1,', b'"a":1}', size),
        many(b'{"RecordType":"Bounce","Email":"', b"a@", b'"}', size),
    )[number % 5]
    match number % 4:
        case 0:
            headers, body = gzipped(many(b"", b" ", b"[]", 20 * size), now)  # a bomb, signed
            return "sendgrid", body, headers | {"content-encoding": "gzip"}
        case 1:
            headers, body = signed("sendgrid", body, now)
        case 2:
            headers, body = signed("postmark", body, now)
        case _:
            return "texts", body, {"x-signature": hmac.new(SECRET.encode(), body, "sha256").hexdigest()}
    return ("sendgrid", "postmark")[number % 4 - 1], body, headers


def measure(database_url: str, tmp_path: Path) -> None:
    with answering(database_url, tmp_path) as service:
        process = service.start()
        text(service, 0)
        probe, answers = Probe(service.ports[0], process.pid), Counter[int]()
        try:
            report("P30", f"/healthz of another client, before: {probe.longest()}")
            for number in rounds("P30 hostile", HOSTILE):
                if number % 2:
                    answers[call_back(service, *hostile_callback(number // 2))] += 1
                    continue
                try:
                    service.mail(hostile_mail(number // 2), f"h{number}@in.acme.test", sender="")
                    answers[250] += 1
                except smtplib.SMTPResponseException as refused:
                    answers[refused.smtp_code] += 1
                except smtplib.SMTPException:
                    answers[450] += 1
            wait = probe.longest()
        finally:
            probe.close()
        assert service.get("/readyz", key=None).status == 200
        assert not [status for status in answers if status >= 500 and status not in (503, 552, 554)]
    told = ", ".join(f"{many} × {status}" for status, many in sorted(answers.items()))
    report("P30", f"{HOSTILE} hostile mails and callbacks ({told}): /healthz of another client {wait}")
    assert wait.computed <= LATE_S


if FULL:

    @pytest.mark.parametrize("database_url", DATABASES[:1], indirect=True)
    def test_hostile_mails_and_callbacks_block_no_other_client(database_url: str, tmp_path: Path) -> None:
        measure(database_url, tmp_path)
