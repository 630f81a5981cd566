"""Restricted keys: hostile calls over every way in, in many threads and two processes, while processes are killed.

Nothing beyond the key's list or limits is written: not by one recipient, not by one cent. Nothing of a key that needs
approval is sent.
"""

import http.client
import itertools
import json
import random
import smtplib
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from standardwebhooks import Webhook

from heliograph.domain.sending.pricing import parse_money
from heliograph.domain.setup.keys import public_id
from tests.journeys.load import ask_database
from tests.proof.size import FULL, report, size
from tests.service import PATIENCE_S, Answer, Service, free_port
from tests.submission.conftest import deliver

CALLS, KILLS, CLIENTS = size("restrictions calls"), size("restrictions kills"), size("restrictions clients")
RECIPIENTS_MAX, SPEND_MAX = CALLS // 4, f"{CALLS * 0.0008:.4f}"
LIMITS = {"per_hour": RECIPIENTS_MAX, "per_day": RECIPIENTS_MAX, "spend_per_day": SPEND_MAX}
HOOK_RECIPIENTS_MAX = CALLS // 100  # of the hook's key
PERMITTED = ("delivered@simulator.test", "ada@permitted.test", "+447400123456", "+15005550006")
FORBIDDEN = ("ada@example.com", "a@sub.permitted.test", "+14155550123")
RECIPIENTS = ["*@simulator.test", "*@permitted.test", "+4474*", "+1500*"]
SMS = {"template_id": "tpl_sms", "variables": {"parcel": "1"}}
NUMBERS = itertools.count()


class Credentials(msgspec.Struct, frozen=True):
    """A restricted key, and the secret of a hook that is as restricted."""

    key: str
    hook_secret: str


class Client(msgspec.Struct, frozen=True):
    """A client of one of the processes."""

    service: Service
    smtp_port: int
    credentials: Credentials

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        """Post with the key as Bearer token."""
        return self.service.post(path, body, key=self.credentials.key, headers=headers, port=self.service.ports[0])

    def post_as(self, path: str, body: Any, **headers: str) -> Answer:
        """Post with other credentials; underscores in names of headers mean dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.service.post(path, body, key=None, headers=named, port=self.service.ports[0])


Send = Callable[[Client, str], Answer | str]  # with the recipient; text: the reply code of SMTP


def mail_to(*to: str) -> dict[str, Any]:
    return {"from": "hello@acme.test", "to": list(to), "subject": "Hi", "text": "Hi"}


def later() -> str:
    return (datetime.now(UTC) + timedelta(hours=random.randint(1, 24))).isoformat()


def direct(client: Client, to: str) -> Answer:
    return client.post("/v1/emails", mail_to(*[to] * random.randint(1, 3)))


def repeated(client: Client, to: str) -> Answer:
    return client.post("/v1/emails", mail_to(to), **{"Idempotency-Key": f"{to} {random.randint(1, CALLS // 40)}"})


def dry_run(client: Client, to: str) -> Answer:
    return client.post("/v1/emails?dry_run=true", mail_to(to))


def batch(client: Client, to: str) -> Answer:
    return client.post("/v1/emails/batch", {"messages": [mail_to(to), mail_to(PERMITTED[1])], "mode": "permissive"})


def scheduled(client: Client, to: str) -> Answer:
    return client.post("/v1/emails", mail_to(to) | {"scheduled_at": later()})


def scheduled_batch(client: Client, to: str) -> Answer:
    messages = [mail_to(to) | {"scheduled_at": later()} for _ in range(3)]
    return client.post("/v1/emails/batch", {"messages": messages, "mode": random.choice(["strict", "permissive"])})


def resend(client: Client, to: str) -> Answer:
    mail = mail_to(to) | {"bcc": [PERMITTED[0]]}
    return client.post("/compat/resend/emails", mail)


def postmark(client: Client, to: str) -> Answer:
    mail = {"From": "hello@acme.test", "To": PERMITTED[0], "Bcc": to, "Subject": "Hi", "TextBody": "Hi"}
    return client.post_as("/compat/postmark/email", mail, X_Postmark_Server_Token=client.credentials.key)


def postal(client: Client, to: str) -> Answer:
    mail = {"from": "hello@acme.test", "to": [to], "subject": "Hi", "plain_body": "Hi"}
    return client.post_as("/compat/postal/api/v1/send/message", mail, X_Server_API_Key=client.credentials.key)


def smtp(client: Client, to: str) -> str:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "hello@acme.test", PERMITTED[0], "Hi"
    message.set_content("Hi")
    with smtplib.SMTP("127.0.0.1", client.smtp_port, timeout=PATIENCE_S) as connection:
        connection.login("heliograph", client.credentials.key)
        return f"smtp {deliver(connection, message, [PERMITTED[0], to])[0]}"


def hook_mail(client: Client, to: str) -> Answer:
    data = {"token": "246802", "token_hash": "abc", "email_action_type": "signup", "site_url": "https://db.test"}
    return call_hook(client, {"user": {"email": to}, "email_data": data}, "tpl_hook_mail")


def mcp(client: Client, to: str) -> Answer:
    params = {"name": "send_email", "arguments": mail_to(to)}
    return client.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def sms(client: Client, to: str) -> Answer:
    return client.post("/v1/sms", SMS | {"to": to})


def sms_batch(client: Client, to: str) -> Answer:
    messages = [SMS | {"to": other} for other in (PERMITTED[2], to, PERMITTED[2])]
    return client.post("/v1/sms/batch", {"messages": messages, "mode": random.choice(["strict", "permissive"])})


def canceled_sms(client: Client, to: str) -> Answer:
    """Schedule an SMS and cancel it, which gives its spend back, not its count."""
    accepted = client.post("/v1/sms", SMS | {"to": to, "scheduled_at": later()})
    if accepted.status == 202:
        client.post(f"/v1/sms/{accepted.json['id']}/cancel", {})
    return accepted


def scheduled_sms(client: Client, to: str) -> Answer:
    return client.post("/v1/sms", SMS | {"to": to, "scheduled_at": later()})


def whatsapp(client: Client, to: str) -> Answer:
    return client.post("/v1/whatsapp", {"to": to, "template_id": "tpl_whatsapp", "variables": {"parcel": "1"}})


def verify(client: Client, to: str) -> Answer:
    started = client.post("/v1/verify", {"to": to})
    if started.status == 202:
        client.post(f"/v1/verify/{started.json['id']}/resend", {})
    return started


def twilio(client: Client, to: str) -> Answer:
    form = {"To": to, "ContentSid": "tpl_sms", "ContentVariables": '{"parcel": "1"}'}
    return client.post_as(
        "/compat/twilio/2010-04-01/Accounts/AC1/Messages.json",
        urlencode(form).encode(),
        Authorization="Basic " + b64encode(f"AC1:{client.credentials.key}".encode()).decode(),
        Content_Type="application/x-www-form-urlencoded",
    )


def hook_sms(client: Client, to: str) -> Answer:
    return call_hook(client, {"user": {"phone": to[1:]}, "sms": {"otp": "135790"}}, "tpl_hook_sms")


def call_hook(client: Client, body: Any, template: str) -> Answer:
    """Call the hook as Supabase does; it answers refusals with status 200 too."""
    at, id_, raw = datetime.now(UTC), f"msg_{next(NUMBERS)}", json.dumps(body)
    return client.post_as(
        f"/hooks/supabase/team_acme?template={template}",
        raw.encode(),
        webhook_id=id_,
        webhook_timestamp=str(int(at.timestamp())),
        webhook_signature=Webhook(client.credentials.hook_secret).sign(id_, at, raw),
    )


MAIL_WAYS: tuple[Send, ...] = (
    *(direct, repeated, dry_run, batch, scheduled, scheduled_batch),
    *(resend, postmark, postal, smtp, hook_mail, mcp),
)
PHONE_WAYS: tuple[Send, ...] = (*(sms, sms_batch, scheduled_sms, canceled_sms, whatsapp, verify, twilio, hook_sms),)


def is_success(answer: Answer | str) -> bool:
    """Return whether nothing was refused; some ways in report refusals with status 200."""
    if isinstance(answer, str):
        return answer == "smtp 250"
    return answer.status < 300 and not any(sign in answer.raw for sign in (b'"error"', b'"isError":true'))


class Uses(msgspec.Struct, frozen=True):
    """What is stored of a key's messages and verifications."""

    channels: set[str]
    sent_to: set[str]
    recipients: int
    spent: int


def read_uses(database_url: str, key_id: str) -> Uses:
    messages = ask_database(database_url, f"SELECT channel, record FROM message WHERE key_id = '{key_id}'")
    codes = ask_database(database_url, f"SELECT phone FROM verification WHERE key_id = '{key_id}'")
    addresses = ask_database(
        database_url,
        f"SELECT DISTINCT r.address FROM recipient r JOIN message m ON m.key = r.message WHERE m.key_id = '{key_id}'",
    )
    ((spent,),) = ask_database(
        database_url,
        "SELECT coalesce(sum(CASE kind WHEN 'hold' THEN amount WHEN 'release' THEN -amount ELSE 0 END), 0) "
        f"FROM ledger WHERE subject IN (SELECT id FROM message WHERE key_id = '{key_id}' "
        f"UNION ALL SELECT id FROM verification WHERE key_id = '{key_id}')",
    )
    return Uses(
        channels={channel for channel, _ in messages} | ({"verify"} if codes else set()),
        sent_to={address for (address,) in addresses + codes},
        recipients=sum(json.loads(record).get("recipient_count", 1) for _, record in messages) + len(codes),
        spent=spent,
    )


def make_credentials(service: Service, name: str, restrictions: Any, hook_restrictions: Any) -> Credentials:
    tokens = []
    for is_hook, limits in ((False, restrictions), (True, hook_restrictions)):
        name += "'s hook" * is_hook
        created = service.post("/v1/keys", {"name": name, "hook": is_hook, "restrictions": limits})
        assert created.status == 201, created.raw
        tokens.append(created.json["token"].removeprefix("v1,"))
    return Credentials(*tokens)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_hostile_calls_never_exceed_the_list_or_a_limit(database_url: str, tmp_path: Path) -> None:
    smtp_ports = [free_port(), free_port()]
    with ExitStack() as stack:
        services = [
            stack.enter_context(
                Service(database_url, tmp_path / "data", mcp="on", submission_listen=f"127.0.0.1:{port}")
            )
            for port in smtp_ports
        ]
        services[0].apply()
        processes = [service.start("api") for service in services]
        stack.enter_context(Service(database_url, tmp_path / "data")).start("worker")
        permitted = {"recipients": RECIPIENTS, "spend_per_day": SPEND_MAX}
        limits, hook_limits = (
            dict.fromkeys(("per_hour", "per_day"), limit) for limit in (RECIPIENTS_MAX, HOOK_RECIPIENTS_MAX)
        )
        limited = make_credentials(services[0], "agent", permitted | limits, permitted | hook_limits)
        needs_approval = {"approval": "required"}
        held = make_credentials(services[0], "assistant", needs_approval, needs_approval)
        answers, successes = Counter[int | str](), Counter[str]()

        def call(number: int) -> None:
            to = random.choice(PERMITTED if number % 2 else FORBIDDEN)
            send = random.choice(MAIL_WAYS if "@" in to else PHONE_WAYS)
            client = Client(services[number % 2], smtp_ports[number % 2], held if number % 5 == 0 else limited)
            try:
                answer = send(client, to)
            except smtplib.SMTPResponseException as error:
                answers[f"smtp {error.smtp_code}"] += 1
            except (OSError, http.client.HTTPException):
                answers["cut"] += 1  # by a kill
                time.sleep(0.05)
            else:
                answers[answer.status if isinstance(answer, Answer) else answer] += 1
                successes[send.__name__] += is_success(answer)

        with ThreadPoolExecutor(CLIENTS) as pool:
            for kill in range(KILLS + 1):
                calls = [pool.submit(call, number) for number in range(CALLS // (KILLS + 1))]
                if kill < KILLS:
                    time.sleep(0.3)
                    service = services[kill % 2]
                    service.kill(processes[kill % 2])
                    processes[kill % 2] = service.start("api", service.ports[0])
                for done in calls:
                    done.result()
        assert not {status for status in answers if isinstance(status, int) and status >= 500} - {503}
        ways = {send.__name__ for send in MAIL_WAYS + PHONE_WAYS}
        assert successes.keys() <= ways
        if FULL:
            assert {way for way in ways if not successes[way]} == set()

        used, hook_used = (
            read_uses(database_url, str(public_id(token))) for token in (limited.key, f"v1,{limited.hook_secret}")
        )
        for uses, limit in ((used, RECIPIENTS_MAX), (hook_used, HOOK_RECIPIENTS_MAX)):
            assert uses.sent_to <= set(PERMITTED)
            assert 0 < uses.recipients <= limit
            assert uses.spent <= parse_money(SPEND_MAX)

        assert ask_database(database_url, "SELECT DISTINCT status FROM approval") in ([], [("canceled",)])
        ids = ", ".join(f"'{public_id(token)}'" for token in (held.key, f"v1,{held.hook_secret}"))
        waiting = ask_database(
            database_url,
            "SELECT m.status, r.carrier, count(*) FROM message m JOIN recipient r ON r.message = m.key "
            f"WHERE m.key_id IN ({ids}) GROUP BY 1, 2",
        )
        assert {(status, carrier) for status, carrier, _ in waiting} <= {("queued", None), ("failed", None)}
    not_sent = sum(count for *_, count in waiting)
    report(
        "restrictions",
        f"PostgreSQL, {CALLS} calls over {len(ways)} ways in by {CLIENTS} clients to two processes, {KILLS} kills: "
        f"{used.recipients} of {RECIPIENTS_MAX} recipients, {used.spent / 1_000_000:.4f} of {SPEND_MAX} spent, by the "
        f"hook {hook_used.recipients} of {HOOK_RECIPIENTS_MAX} recipients, 0 beyond the list; {not_sent} recipients "
        f"wait for approval or were canceled, 0 sent; answers {dict(answers)}",
    )
