"""heliograph-client with a running service; only lost and invalid responses are simulated."""

import asyncio
import inspect
import json
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import islice
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx2
import pytest
from clients.parts_for_python import generated

from heliograph.api.openapi import openapi_document
from heliograph.api.routes import V1
from heliograph.domain.events import EVENT_TYPES
from heliograph.web.errors import error_list
from heliograph_client import AsyncHeliograph, Heliograph, HeliographError, NoAnswer, codes, errors, params, results
from heliograph_client import events as event_types
from heliograph_client._request import Resource
from tests.service import TOKENS, Service, until

ROOT = Path(__file__).parents[2] / "clients" / "python"
EMAIL: Any = {
    "to": "delivered@simulator.test",
    "from_": "hello@demo.test",
    "subject": "Hello",
    "text": "It works.",
}
SCHEMAS = openapi_document(V1, "")["components"]["schemas"]
LINES_MAX = 900  # that are not empty; what is generated comes to it
UNKEYED = ("/v1/errors", "/v1/causes", "/v1/events/schema", "/healthz", "/readyz")  # have no method

Answers = Callable[[httpx2.Request], httpx2.Response]


def scripted_client(*answers: httpx2.Response | Exception, requests: list[httpx2.Request] | None = None) -> Heliograph:
    """Return a client that gets these responses."""
    remaining = iter(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        if requests is not None:
            requests.append(request)
        result = next(remaining)
        if isinstance(result, Exception):
            raise result
        return result

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return Heliograph("hk_x", url="http://service.test", http_client=http)


def refused(status: int, code: str = "x", **headers: str) -> httpx2.Response:
    raw_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, json={"error": {"code": code, "message": "no", "type": ""}}, headers=raw_headers)


ACCEPTED = httpx2.Response(202, json={"id": "eml_1"})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the delays between retries, without sleeping."""
    recorded: list[float] = []
    monkeypatch.setattr(time, "sleep", recorded.append)
    return recorded


# -- against the service ---------------------------------------------------------------------------------------


def test_an_email_from_send_to_timeline(client: Heliograph) -> None:
    sent = client.emails.send(**EMAIL, tags={"order": "4711"}, metadata={"n": 1})
    assert (sent.id[:4], sent.to, sent.from_, sent.status) == ("eml_", EMAIL["to"], "hello@demo.test", "sending")
    email = until(lambda: (m := client.emails.get(sent.id)).status == "delivered" and m)
    assert (email.tags, email.metadata, len(email.events)) == ({"order": "4711"}, {"n": 1}, 2)
    assert sent.id in [item.id for item in client.emails.list(tag="order:4711")]


def test_bytes_and_datetimes_are_encoded(client: Heliograph) -> None:
    file: params.Attachment = {"filename": "a.txt", "content": b"hello"}
    later = datetime.now(UTC) + timedelta(hours=1)
    sent = client.emails.send(**EMAIL, attachments=[file], scheduled_at=later)
    assert (sent.attachments_count, sent.status) == (1, "queued")
    moved = client.emails.reschedule(sent.id, scheduled_at=later + timedelta(hours=1))
    assert moved.scheduled_at and moved.scheduled_at > later.isoformat()
    assert client.emails.cancel(sent.id).status == "failed"
    with pytest.raises(codes.AlreadySending):
        client.emails.cancel(sent.id)


def test_phone_messages_and_codes_are_sent_and_checked(client: Heliograph) -> None:
    for channel in (client.sms, client.whatsapp):
        template = f"tpl_demo_{channel._name}"
        body: params.PhoneParams = {"to": "+15005550006", "template_id": template, "variables": {"parcel": "4711"}}
        sent = channel.send(**body)
        assert channel.get(sent.id).to == "+15005550006"
        assert "4711" in channel.preview(**body).body
    verification = client.verify.start(to="+15005550006")
    assert client.verify.check(verification.id, code="111111").remaining_attempts == 4
    assert client.verify.check(verification.id, code="000000").status == "verified"
    assert client.verify.get(verification.id).status == "verified"


def test_batch_returns_ids_and_errors_in_order(client: Heliograph) -> None:
    invalid: Any = {**EMAIL, "to": "nobody"}
    sent = client.emails.send_batch([EMAIL, invalid], mode="permissive")
    assert sent.ids[0] and sent.ids[1] is None
    assert isinstance(sent.errors[1], codes.InvalidEmail) and sent.errors[1].param == "messages[1].to"
    assert until(lambda: client.batches.get(sent.id).counts == {"delivered": 1})
    with pytest.raises(codes.InvalidEmail):
        client.emails.send_batch([EMAIL, invalid])


def test_lists_iterate_over_pages(client: Heliograph) -> None:
    created = {client.suppressions.create(email=f"page-{n}@example.com").email for n in range(5)}
    assert created <= {item.email for item in client.suppressions.list(limit=2)}
    ids = [client.emails.send(**EMAIL).id for _ in range(5)]
    assert [item.id for item in islice(client.emails.list(limit=2), 5)] == ids[::-1]
    client.suppressions.delete("page-0@example.com")
    with pytest.raises(codes.SuppressionNotFound):
        client.suppressions.get("page-0@example.com")


def test_the_feed_is_followed_from_a_checkpoint(client: Heliograph) -> None:
    first = client.emails.send(**EMAIL).id
    delivered = next(
        e for e in client.events.follow(poll_s=0.05) if e.type == "email.delivered" and e.data["id"] == first
    )
    second = client.emails.send(**EMAIL).id
    after = client.events.follow(after=delivered.id, poll_s=0.05)
    assert next(event for event in after if event.type == "email.sent").data["id"] == second


def test_webhooks_and_keys_are_managed(client: Heliograph) -> None:
    hook = client.webhooks.create(url="https://example.com/hooks", events=["email.*"])
    assert hook.secret.startswith("whsec_")
    assert client.webhooks.update(hook.id, enabled=False).enabled is False
    assert hook.id in [webhook.id for webhook in client.webhooks.list()]
    assert list(client.webhooks.deliveries(hook.id)) == []
    assert client.webhooks.delete(hook.id).deleted
    key = client.keys.create(name="made by a test", scopes=["send"])
    assert Heliograph(key.token).me().scopes == ["send"]
    client.keys.delete(key.id)
    with pytest.raises(codes.InvalidApiKey) as refusal:
        Heliograph(key.token).me()
    assert isinstance(refusal.value, errors.AuthenticationError) and refusal.value.status == 401
    assert [webhook.name for webhook in client.domains.list()] == ["demo.test"]


def test_inbox_wait_returns_the_message_or_none(environment: None) -> None:
    with Heliograph(TOKENS["SANDBOX"]) as client:
        client.emails.send(to="you@example.com", subject="Code", text="Your code is 246810.")
        entry = client.inbox.wait(to="you@example.com", timeout=20)
        assert entry and (entry.code, entry.links) == ("246810", [])
        assert client.inbox.wait(to="nobody@example.com", timeout=0) is None


def test_errors_have_the_services_message(client: Heliograph) -> None:
    client.suppressions.create(email="gone@example.com")
    with pytest.raises(codes.RecipientSuppressed) as refusal:
        client.emails.send(to="gone@example.com", from_="hello@demo.test", subject="Hello", text="Hi")
    error = refusal.value
    assert isinstance(error, errors.PermissionDenied) and error.addresses == ["gone@example.com"]
    assert (error.status, error.code, error.param) == (403, "recipient_suppressed", "to")
    assert error.request_id.startswith("req_") and error.doc_url.endswith("#recipient_suppressed")
    assert str(error) == error.raw["message"]


def test_the_async_client_does_the_same(environment: None) -> None:
    async def use() -> None:
        async with AsyncHeliograph() as client:
            assert (await client.me()).team["id"] == "team_demo"
            sent = [(await client.emails.send(**EMAIL)).id for _ in range(3)]
            emails = []
            async for email in client.emails.list(limit=2):
                emails.append(email.id)
                if len(emails) == 3:
                    break
            assert emails == sent[::-1]
            with pytest.raises(codes.MessageNotFound):
                await client.emails.get("eml_none")
            async for event in client.events.follow(poll_s=0.05):
                if event.type == "email.delivered" and event.data["id"] == sent[-1]:
                    break

    asyncio.run(use())


def test_a_lost_response_is_retried_with_the_same_key(environment: None, demo: Service, pauses: list[float]) -> None:
    class Lossy(httpx2.HTTPTransport):
        """Drops the first response after the service has sent it."""

        def __init__(self) -> None:
            super().__init__()
            self.answers: list[httpx2.Response] = []

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            answer = super().handle_request(request)
            answer.read()
            self.answers.append(answer)
            if len(self.answers) == 1:
                raise httpx2.ReadError("lost", request=request)
            return answer

    lossy = Lossy()
    with Heliograph(http_client=httpx2.Client(transport=lossy)) as client:
        sent = client.emails.send(**EMAIL)
    first, second = lossy.answers
    assert (second.headers["Idempotency-Replayed"], second.content) == ("true", first.content)
    assert sent.id == first.json()["id"] and len(pauses) == 1


# -- rules of retrying ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (refused(503, Heliograph_Should_Retry="true"), True),
        (refused(409, "idempotency_request_in_progress", Heliograph_Should_Retry="true"), True),
        (refused(409, "idempotency_key_reused", Heliograph_Should_Retry="false"), False),
        (refused(503, Heliograph_Should_Retry="false"), False),
        (refused(400, Heliograph_Should_Retry="false"), False),
        *[(httpx2.Response(status, text="a proxy"), True) for status in (408, 429, 500, 502, 504)],
        *[(httpx2.Response(status, text="a proxy"), False) for status in (400, 404, 409, 413)],
        (refused(429, Retry_After="120"), True),
        (refused(429, Retry_After="121"), False),
        (httpx2.ReadTimeout("late"), True),
        (httpx2.ConnectError("nobody"), True),
    ],
)
def test_client_retries_retryable_responses(pauses: list[float], answer: Any, again: bool) -> None:
    client = scripted_client(answer, ACCEPTED)
    if again:
        assert client.emails.send(**EMAIL).id == "eml_1"
    else:
        with pytest.raises(errors.ApiError) as refusal:
            client.emails.send(**EMAIL)
        assert refusal.value.status == answer.status_code
    assert len(pauses) == again


def test_pauses_double_to_eight_seconds_with_jitter(pauses: list[float]) -> None:
    requests: list[httpx2.Request] = []
    client = scripted_client(*[httpx2.Response(500)] * 7, ACCEPTED, requests=requests)
    client._max_retries = 7
    client.emails.send(**EMAIL)
    for pause, longest in zip(pauses, (0.5, 1, 2, 4, 8, 8, 8), strict=True):
        assert 0.75 * longest <= pause <= longest
    assert len({request.headers["Idempotency-Key"] for request in requests}) == 1


def test_retry_after_is_respected(pauses: list[float]) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    client = scripted_client(refused(429, Retry_After="7"), refused(503, Retry_After=at), ACCEPTED)
    client.emails.send(**EMAIL)
    assert pauses[0] == 7 and 50 < pauses[1] <= 60


def test_a_request_is_retried_at_most_twice(pauses: list[float]) -> None:
    with pytest.raises(errors.ServerError, match="a proxy"):
        scripted_client(*[httpx2.Response(502, text="a proxy")] * 3).emails.send(**EMAIL)
    with pytest.raises(NoAnswer, match="POST /v1/emails"):
        scripted_client(*[httpx2.ReadTimeout("late")] * 3).emails.send(**EMAIL)
    assert len(pauses) == 4


def test_a_file_is_returned_as_bytes() -> None:
    client = scripted_client(*[httpx2.Response(200, content=b"\0From: a")] * 2)
    assert client.received.raw("rcv_1") == client.received.attachment("rcv_1", "0") == b"\0From: a"


def test_requests_that_are_not_idempotent_are_not_retried(pauses: list[float]) -> None:
    """A resource created by a request whose response was lost would never be returned."""
    with pytest.raises(NoAnswer):
        scripted_client(httpx2.ReadTimeout("late")).keys.create(name="x")
    assert scripted_client(httpx2.ConnectError("nobody"), ACCEPTED).keys.create(name="x").id == "eml_1"
    assert scripted_client(httpx2.ReadTimeout("late"), ACCEPTED).keys.delete("x").id == "eml_1"


def test_each_send_has_a_key_of_its_own_unless_one_is_given() -> None:
    requests: list[httpx2.Request] = []
    client = scripted_client(ACCEPTED, ACCEPTED, ACCEPTED, ACCEPTED, requests=requests)
    for key in (None, None, "receipt-4711"):
        client.emails.send(**EMAIL, idempotency_key=key)
    client.emails.preview(**EMAIL)
    first, second, explicit, none = [request.headers.get("Idempotency-Key") for request in requests]
    assert first != second and (explicit, none) == ("receipt-4711", None)


# -- what it is made of -----------------------------------------------------------------------------------------


def test_results_are_frozen_and_keep_unknown_fields() -> None:
    result = results.Email({"id": "eml_1", "from": "a@b.test", "surprise": [1]})
    assert (result.from_, result.surprise, result.raw["from"]) == ("a@b.test", [1], "a@b.test")
    with pytest.raises(AttributeError, match="frozen"):
        result.id = "eml_2"
    with pytest.raises(AttributeError, match="no cc"):
        _ = result.cc
    assert pickle.loads(pickle.dumps(result)) == result and hash(result) and "surprise" in repr(result)


def test_a_key_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOGRAPH_KEY", raising=False)
    with pytest.raises(HeliographError, match="HELIOGRAPH_KEY"):
        Heliograph(url="http://service.test")


@pytest.mark.parametrize("key", ["hg_live_…", "hg_live_a\n", "hg_live_\x7f"])
def test_a_key_invalid_in_a_header_is_refused(key: str) -> None:
    with pytest.raises(HeliographError, match="copy it again"):
        Heliograph(key, url="http://service.test")


def test_every_code_has_a_class_of_its_kind() -> None:
    for entry in error_list():
        error = errors.to_error(entry, entry["status"])
        assert type(error).__module__ == "heliograph_client.codes" and isinstance(error, errors.KINDS[entry["type"]])
    assert type(errors.to_error({"code": "new", "type": "conflict_error"}, 409)) is errors.ConflictError
    assert type(errors.to_error({}, 502)) is errors.ServerError


def test_every_route_has_a_method() -> None:
    requests: list[httpx2.Request] = []
    client = scripted_client(*[httpx2.Response(200, json={"data": [], "has_more": False})] * 100, requests=requests)
    client.me()
    for resource in vars(client).values():
        for name in dir(resource) if isinstance(resource, Resource) else ():
            if not name.startswith("_") and name != "follow":
                returned = getattr(resource, name)(**_needed(getattr(type(resource), name)._build))
                list(returned) if isinstance(returned, Iterator) else None
    called_routes = {(request.method, re.sub("/x(?=/|$)", "/{}", request.url.path)) for request in requests}
    of_teams = [route for route in V1 if not route.path.startswith("/v1/teams")]  # those are for platform keys
    routes = {(route.method, re.sub(r"{\w+}", "{}", route.path)) for route in of_teams}
    assert called_routes == routes - {("GET", path) for path in UNKEYED}


def _needed(build: Callable[..., Any]) -> dict[str, Any]:
    _, *parameters = inspect.signature(build).parameters.values()
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    return {parameter.name: [{}] if parameter.name == "messages" else "x" for parameter in required}


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (params.EmailParams, "EmailRequest"),
        (params.PhoneParams, "PhoneRequest"),
        (params.VerifyParams, "VerifyRequest"),
        (params.WebhookParams, "WebhookRequest"),
        (params.WebhookChanges, "WebhookChange"),
        (params.KeyParams, "KeyRequest"),
        (params.TemplateParams, "TemplateRequest"),
        (params.TemplateChanges, "TemplateChange"),
        (params.LayoutParams, "LayoutRequest"),
        (params.Attachment, "Attachment"),
        (results.Verification, "VerificationRecord"),
        (results.InboxMessage, "InboxView"),
        (results.Event, "PublishedEvent"),
        (results.Batch, "BatchRecord"),
        (results.Check, "CheckRecord"),
    ],
)
def test_fields_match_the_openapi_document(given: Any, schema: str) -> None:
    client_fields = {name.removesuffix("_") for name in get_type_hints(given)} - {"raw"}
    api_fields = SCHEMAS[schema]["properties"].keys() - {"object"}
    assert (
        client_fields == api_fields if given.__module__ == "heliograph_client.params" else client_fields <= api_fields
    )


def test_handwritten_code_is_small() -> None:
    """The framework integrations do not count (compat.md has separate rows for them)."""
    adapters = {"django.py", "fastapi.py", "flask.py", "pytest_plugin.py"}
    files = [file for file in (ROOT / "src").rglob("*.py") if file not in generated() and file.name not in adapters]
    assert len([line for file in files for line in file.read_text("utf-8").splitlines() if line]) < LINES_MAX


def test_every_event_type_has_a_python_type() -> None:
    types = [events.__annotations__ for events in get_args(event_types.WebhookEvent)]
    assert [event["type"].__forward_arg__ for event in types] == [f"Literal[{name!r}]" for name in EVENT_TYPES]
    assert get_args(event_types.EventType) == EVENT_TYPES


def test_the_readme_installs_the_client_from_a_checkout(tmp_path: Path) -> None:
    (line,) = re.findall("^pip install (.+)$", (ROOT / "README.md").read_text("utf-8"), re.M)
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "install", *options, line]
    subprocess.run(command, check=True, cwd=ROOT.parents[1])
    assert (tmp_path / "heliograph_client" / "py.typed").exists()


def test_the_readme_runs(environment: None, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert len(blocks) > 5
    namespace: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["id"]
