"""Restricted keys: hostile calls over every way in, in many threads and two processes, while processes are killed.

Nothing beyond the key's list or limits is written: not by one recipient, not by one cent. Nothing of a key that needs
approval is sent.
"""

import http.client
import json
import random
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

from heliograph.domain.sending.pricing import parse_money
from heliograph.domain.setup.keys import parse_token
from tests.journeys.load import ask_database
from tests.proof.size import report, size
from tests.service import Answer, Service

CALLS, KILLS, CLIENTS = size("restrictions calls"), size("restrictions kills"), size("restrictions clients")
RECIPIENTS_MAX, SPEND_MAX = CALLS // 3, f"{CALLS * 0.001:.4f}"
LIMITS = {"per_hour": RECIPIENTS_MAX, "per_day": RECIPIENTS_MAX, "spend_per_day": SPEND_MAX}
PERMITTED = ("delivered@simulator.test", "ada@permitted.test", "+447400123456", "+15005550006")
FORBIDDEN = ("ada@example.com", "a@sub.permitted.test", "+14155550123")
RECIPIENTS = ["*@simulator.test", "*@permitted.test", "+4474*", "+1500*"]

Send = Callable[[Service, str, str, int], Answer]  # service, key, recipient, port


def direct(service: Service, key: str, to: str, port: int) -> Answer:
    mail = {"from": "hello@acme.test", "to": [to] * random.randint(1, 3), "subject": "Hi", "text": "Hi"}
    return service.post("/v1/emails", mail, key=key, port=port)


def batch(service: Service, key: str, to: str, port: int) -> Answer:
    messages = [{"from": "hello@acme.test", "to": other, "subject": "Hi", "text": "Hi"} for other in (to, PERMITTED[1])]
    return service.post("/v1/emails/batch", {"messages": messages, "mode": "permissive"}, key=key, port=port)


def sms(service: Service, key: str, to: str, port: int) -> Answer:
    body = {"to": to, "template_id": "tpl_sms", "variables": {"parcel": "1"}}
    return service.post("/v1/sms", body, key=key, port=port)


def verify(service: Service, key: str, to: str, port: int) -> Answer:
    return service.post("/v1/verify", {"to": to}, key=key, port=port)


def resend(service: Service, key: str, to: str, port: int) -> Answer:
    mail = {"from": "hello@acme.test", "to": to, "bcc": [PERMITTED[0]], "subject": "Hi", "text": "Hi"}
    return service.post("/compat/resend/emails", mail, key=key, port=port)


def postmark(service: Service, key: str, to: str, port: int) -> Answer:
    mail = {"From": "hello@acme.test", "To": PERMITTED[0], "Bcc": to, "Subject": "Hi", "TextBody": "Hi"}
    headers = {"X-Postmark-Server-Token": key}
    return service.post("/compat/postmark/email", mail, key=None, headers=headers, port=port)


def postal(service: Service, key: str, to: str, port: int) -> Answer:
    mail = {"from": "hello@acme.test", "to": [to], "subject": "Hi", "plain_body": "Hi"}
    headers = {"X-Server-API-Key": key}
    return service.post("/compat/postal/api/v1/send/message", mail, key=None, headers=headers, port=port)


def twilio(service: Service, key: str, to: str, port: int) -> Answer:
    form = {"To": to, "ContentSid": "tpl_sms", "ContentVariables": '{"parcel": "1"}'}
    headers = {
        "Authorization": "Basic " + b64encode(f"AC1:{key}".encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    path = "/compat/twilio/2010-04-01/Accounts/AC1/Messages.json"
    return service.post(path, urlencode(form).encode(), key=None, headers=headers, port=port)


def mcp(service: Service, key: str, to: str, port: int) -> Answer:
    arguments = {"from": "hello@acme.test", "to": [to], "subject": "Hi", "text": "Hi"}
    params = {"name": "send_email", "arguments": arguments}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return service.post("/mcp", call, key=key, port=port)


MAIL_WAYS: tuple[Send, ...] = (direct, batch, resend, postmark, postal, mcp)
PHONE_WAYS: tuple[Send, ...] = (sms, verify, twilio)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_hostile_calls_never_exceed_the_list_or_a_limit(database_url: str, tmp_path: Path) -> None:
    with Service(database_url, tmp_path / "data", processes="1", mcp="on") as service:
        service.apply()
        processes = [service.start("api"), service.start("api")]
        ports = list(service.ports)
        service.start("worker")
        restrictions = {"recipients": RECIPIENTS, **LIMITS}
        created = service.post("/v1/keys", {"name": "agent", "restrictions": restrictions})
        assert created.status == 201, created.raw
        key = created.json["token"]
        held = service.post("/v1/keys", {"name": "assistant", "restrictions": {"approval": "required"}})
        assert held.status == 201, held.raw
        answers = Counter[int | str]()

        def call(number: int) -> None:
            to = random.choice(PERMITTED if number % 2 else FORBIDDEN)
            send = random.choice(MAIL_WAYS if "@" in to else PHONE_WAYS)
            try:
                token = held.json["token"] if number % 5 == 0 else key
                answers[send(service, token, to, ports[number % 2]).status] += 1
            except (OSError, http.client.HTTPException):
                answers["cut"] += 1  # by a kill
                time.sleep(0.05)

        with ThreadPoolExecutor(CLIENTS) as pool:
            for kill in range(KILLS + 1):
                calls = [pool.submit(call, number) for number in range(CALLS // (KILLS + 1))]
                if kill < KILLS:
                    time.sleep(0.3)
                    service.kill(processes[kill % 2])
                    processes[kill % 2] = service.start("api", ports[kill % 2])
                for done in calls:
                    done.result()
        assert not {status for status in answers if isinstance(status, int) and status >= 500} - {503}

        id_ = parse_token(key)
        messages = ask_database(database_url, f"SELECT key, channel, record, price FROM message WHERE key_id = '{id_}'")
        counts = [json.loads(record).get("recipient_count", 1) for _, _, record, _ in messages]
        codes = ask_database(database_url, f"SELECT phone, price FROM verification WHERE key_id = '{id_}'")
        sent_to = ask_database(
            database_url,
            f"SELECT DISTINCT r.address FROM recipient r JOIN message m ON m.key = r.message WHERE m.key_id = '{id_}'",
        )
        assert {address for (address,) in sent_to} | {phone for phone, _ in codes} <= set(PERMITTED)
        used, limit = sum(counts) + len(codes), RECIPIENTS_MAX
        assert 0 < used <= limit
        spent = ask_database(
            database_url,
            "SELECT coalesce(sum(CASE kind WHEN 'hold' THEN amount WHEN 'release' THEN -amount ELSE 0 END), 0) "
            f"FROM ledger WHERE subject IN (SELECT id FROM message WHERE key_id = '{id_}' "
            f"UNION ALL SELECT id FROM verification WHERE key_id = '{id_}')",
        )[0][0]
        assert spent <= parse_money(SPEND_MAX)

        assert ask_database(database_url, "SELECT DISTINCT status FROM approval") == [("pending",)]
        waiting = ask_database(
            database_url,
            "SELECT m.status, r.status, count(*) FROM message m JOIN recipient r ON r.message = m.key "
            f"WHERE m.key_id = '{parse_token(held.json['token'])}' GROUP BY 1, 2",
        )
        assert [statuses for *statuses, _ in waiting] == [["queued", "queued"]]
    report(
        "restrictions",
        f"PostgreSQL, {CALLS} calls by {CLIENTS} clients to two processes, {KILLS} kills: {used} of {limit} "
        f"recipients, {spent / 1_000_000:.4f} of {SPEND_MAX} spent, 0 beyond the list; {waiting[0][2]} recipients wait "
        f"for approval, 0 sent; answers {dict(answers)}",
    )
