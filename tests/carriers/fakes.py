"""Carriers' HTTP APIs that follow a script: Twilio, Meta's Cloud API, and a generic provider.

In a test: `async with TwilioFake("accept,hang") as fake`. As a process of its own, for the whole service:
`python -m tests.carriers.fakes twilio --port 9001 --script accept,refuse:21211`, or `with running("twilio", …)`.

A script has one step per request; the last one repeats:

  accept         accept and respond, then send the receipts in `receipts`, in that order (which may repeat or swap)
  early          the same, but send the receipts before the response
  refuse:CODE    the carrier's own error with this code
  defer:STATUS   an HTTP status without a body; 429 and 503 with Retry-After: 1
  hang           never respond; nothing is sent        swallow   never respond, but the message is sent
  drop           disconnect before the response; unsent   cut    disconnect during the response; the message is sent

Over HTTP: GET /taken (messages that would reach phones), GET /told (responses of our callback), POST /script.
"""

import argparse
import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

import aiohttp
from aiohttp import web

from tests.forks import Forked

SECRET = "the-carriers-own-secret"
ACCOUNT = "AC00000000000000000000000000000001"
NUMBER = "1122334455667"  # Meta's phone_number_id

SentMessage = dict[str, Any]  # id, to, sender, text; parameters and message_id where there are such


def to_text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)


class FakeCarrier:
    """Base class of the fake carriers; subclasses implement the carrier's request and callback formats."""

    path = "/"

    def __init__(
        self,
        script: str = "accept",
        *,
        receipts: str = "",
        secret: str = SECRET,
        callback: str = "",
        port: int = 0,
        callback_pause_s: float = 0.0,
    ) -> None:
        self.steps = script.split(",")
        self.receipts = [state for state in receipts.split(",") if state]
        self.secret, self.callback, self.port, self.pause_s = secret, callback, port, callback_pause_s
        self.requests: list[tuple[str, dict[str, str], bytes]] = []  # method and path, headers, body
        self.received: list[SentMessage] = []
        self.callback_statuses: list[int] = []
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/taken", self._list_received)
        app.router.add_get("/told", self._list_callback_statuses)
        app.router.add_post("/script", self._set_script)
        app.router.add_route("*", self.path, self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()

    async def wait_for_callbacks(self) -> None:
        """Wait until every receipt has been sent."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    # -- what subclasses know ------------------------------------------------------------------------------

    def denied_response(self, headers: dict[str, str]) -> tuple[int, Any] | None:
        return None

    def parse_request(self, headers: dict[str, str], body: bytes) -> SentMessage:
        raise NotImplementedError

    def accepted_response(self, sent: SentMessage) -> tuple[int, Any]:
        raise NotImplementedError

    def refused_response(self, code: str) -> tuple[int, Any]:
        raise NotImplementedError

    def receipt(self, sent: SentMessage, state: str) -> tuple[str, dict[str, str], bytes]:
        """Return URL, headers (with the signature) and body of a receipt."""
        raise NotImplementedError

    def list_response(self, query: dict[str, str]) -> tuple[int, Any]:
        return 405, ""

    # -- the play ------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((f"{request.method} {request.raw_path}", headers, body))
        if denial := self.denied_response(headers):
            return await self._answer(request, *denial)
        if request.method == "GET" and not request.query.get("text"):
            return await self._answer(request, *self.list_response(dict(request.query)))
        step, _, argument = (self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]).partition(":")
        match step:
            case "accept" | "early" | "swallow" | "cut":
                return await self._accept(request, step, self.parse_request(headers, body))
            case "refuse":
                return await self._answer(request, *self.refused_response(argument))
            case "defer":
                return await self._answer(request, int(argument or 503), "")
            case "hang":
                await asyncio.sleep(3600)
        return self._hang_up(request)

    async def _accept(self, request: web.Request, step: str, sent: SentMessage) -> web.StreamResponse:
        sent["id"] = f"{type(self).__name__}-{next(self._numbers)}"
        self.received.append(sent)
        if step == "early":
            await self._send_callbacks(sent)
        answer = (
            None if step == "swallow" else await self._answer(request, *self.accepted_response(sent), cut=step == "cut")
        )
        if step != "early":
            task = asyncio.create_task(self._send_callbacks(sent))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if answer is None:
            await asyncio.sleep(3600)
        return answer or self._hang_up(request)

    async def _send_callbacks(self, sent: SentMessage) -> None:
        async with aiohttp.ClientSession() as client:
            for state in self.receipts:
                await asyncio.sleep(self.pause_s)
                url, headers, body = self.receipt(sent, state)
                async with client.post(url, data=body, headers=headers) as response:
                    self.callback_statuses.append(response.status)

    async def _answer(self, request: web.Request, status: int, body: Any, cut: bool = False) -> web.StreamResponse:
        octets = to_text(body).encode()
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
        if status in (429, 503):
            response.headers["Retry-After"] = "1"
        response.content_length = len(octets)
        await response.prepare(request)
        await response.write(octets[: len(octets) // 2] if cut else octets)
        return self._hang_up(request, response) if cut else response

    def _hang_up(self, request: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
        if request.transport:
            request.transport.close() if response else request.transport.abort()
        return response or web.Response()

    async def _set_script(self, request: web.Request) -> web.Response:
        self.steps = (await request.text()).split(",")
        return web.Response()

    async def _list_received(self, _: web.Request) -> web.Response:
        return web.json_response(self.received)

    async def _list_callback_statuses(self, _: web.Request) -> web.Response:
        return web.json_response(self.callback_statuses)


class TwilioFake(FakeCarrier):
    path = f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json"

    def denied_response(self, headers: dict[str, str]) -> tuple[int, Any] | None:
        login = "Basic " + base64.b64encode(f"{ACCOUNT}:{self.secret}".encode()).decode()
        return None if headers.get("authorization") == login else (401, {"code": 20003, "message": "Authenticate"})

    def parse_request(self, headers: dict[str, str], body: bytes) -> SentMessage:
        form = dict(parse_qsl(body.decode(), strict_parsing=True))
        service = form.get("MessagingServiceSid")
        return {
            "to": form["To"],
            "sender": service or form["From"],
            "service": service,
            "text": form["Body"],
            "callback": form.get("StatusCallback"),
            "created": formatdate(),
        }

    def accepted_response(self, sent: SentMessage) -> tuple[int, Any]:
        return 201, self._message(sent) | {"status": "queued", "price": None}

    def refused_response(self, code: str) -> tuple[int, Any]:
        return 400, {"code": int(code or 21211), "message": "Refused by the fake", "status": 400}

    def list_response(self, query: dict[str, str]) -> tuple[int, Any]:
        return 200, {"messages": [self._message(sent) for sent in self.received if sent["to"] == query["To"]][::-1]}

    def receipt(self, sent: SentMessage, state: str) -> tuple[str, dict[str, str], bytes]:
        form = {"MessageSid": sent["id"], "MessageStatus": state, "To": sent["to"], "AccountSid": ACCOUNT}
        if state in ("failed", "undelivered"):
            form["ErrorCode"] = "30003"
        url = sent["callback"] or self.callback
        signed = url + "".join(name + form[name] for name in sorted(form))
        signature = base64.b64encode(hmac.new(self.secret.encode(), signed.encode(), hashlib.sha1).digest()).decode()
        headers = {"X-Twilio-Signature": signature, "Content-Type": "application/x-www-form-urlencoded"}
        return url, headers, urlencode(form).encode()

    def _message(self, sent: SentMessage) -> dict[str, Any]:
        state = self.receipts[-1] if self.receipts else "sent"
        return {
            "sid": sent["id"],
            "to": sent["to"],
            "from": None if sent["service"] else sent["sender"],
            "messaging_service_sid": sent["service"],
            "body": sent["text"],
            "status": state,
            "error_code": 30003 if state in ("failed", "undelivered") else None,
            "date_created": sent["created"],
            "price": "-0.00750",
            "price_unit": "USD",
        }


class CloudApiFake(FakeCarrier):
    path = f"/{NUMBER}/messages"

    def denied_response(self, headers: dict[str, str]) -> tuple[int, Any] | None:
        if headers.get("authorization") == f"Bearer {self.secret}":
            return None
        return 401, {"error": {"code": 190, "message": "Invalid OAuth access token", "type": "OAuthException"}}

    def parse_request(self, headers: dict[str, str], body: bytes) -> SentMessage:
        message = json.loads(body)
        parts = message["template"].get("components", [{"parameters": []}])
        return {
            "to": message["to"],
            "sender": NUMBER,
            "text": message["template"]["name"],
            "language": message["template"]["language"]["code"],
            "parameters": [part["text"] for part in parts[0]["parameters"]],
            "message_id": message["biz_opaque_callback_data"],
        }

    def accepted_response(self, sent: SentMessage) -> tuple[int, Any]:
        contacts = [{"input": sent["to"], "wa_id": sent["to"].lstrip("+")}]
        messages = [{"id": sent["id"], "message_status": "accepted"}]
        return 200, {"messaging_product": "whatsapp", "contacts": contacts, "messages": messages}

    def refused_response(self, code: str) -> tuple[int, Any]:
        return 400, {"error": {"code": int(code or 131026), "message": "Refused by the fake", "type": "OAuthException"}}

    def receipt(self, sent: SentMessage, state: str) -> tuple[str, dict[str, str], bytes]:
        status: dict[str, Any] = {"id": sent["id"], "status": state, "timestamp": "1698266945"}
        status["biz_opaque_callback_data"] = sent["message_id"]
        if state == "failed":
            status["errors"] = [{"code": 131026, "title": "Message undeliverable"}]
        value = {"messaging_product": "whatsapp", "statuses": [status]}
        change = {"field": "messages", "value": value}
        body = json.dumps({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}).encode()
        signature = hmac.new(self.secret.encode(), body, hashlib.sha256).hexdigest()
        return self.callback, {"X-Hub-Signature-256": f"sha256={signature}", "Content-Type": "application/json"}, body


class HttpFake(FakeCarrier):
    """Accepts JSON {to, from, text, id, callback}, or the same fields in the query of a GET."""

    path = "/send"

    def parse_request(self, headers: dict[str, str], body: bytes) -> SentMessage:
        request = json.loads(body) if body else dict(parse_qsl(self.requests[-1][0].partition("?")[2]))
        return {
            "to": request["to"],
            "sender": request.get("from"),
            "text": request["text"],
            "message_id": request.get("id"),
            "callback": request.get("callback"),
        }

    def accepted_response(self, sent: SentMessage) -> tuple[int, Any]:
        return 202, {"message_id": sent["id"]}

    def refused_response(self, code: str) -> tuple[int, Any]:
        return int(code or 422), {"error": "Refused by the fake"}

    def receipt(self, sent: SentMessage, state: str) -> tuple[str, dict[str, str], bytes]:
        body = json.dumps({"id": sent["id"], "status": state}).encode()
        signature = hmac.new(self.secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Signature": signature, "Content-Type": "application/json"}
        return sent["callback"] or self.callback, headers, body


class CallbackRecorder:
    """A callback server that records requests: URL, headers (lower-case names) and body."""

    async def __aenter__(self) -> Self:
        self.callbacks: list[dict[str, Any]] = []
        app = web.Application()
        app.router.add_post("/callback", self._record)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/callback"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _record(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.callbacks.append({"url": self.url, "headers": headers, "body": await request.read()})
        return web.Response()


FAKES: dict[str, type[FakeCarrier]] = {"twilio": TwilioFake, "cloud_api": CloudApiFake, "http": HttpFake}


class RunningFake:
    """A fake carrier in another process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def received(self) -> Any:
        return self._get("/taken")

    def callback_statuses(self) -> Any:
        return self._get("/told")

    def script(self, steps: str) -> None:
        urllib.request.urlopen(self.url + "/script", steps.encode(), timeout=60).close()

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def run_fake(kind: str, **options: Any) -> Iterator[RunningFake]:
    """Start a fake carrier in another process, with the options of its command line."""
    arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    process = Forked("from tests.carriers.fakes import main; main()", [kind, *arguments], os.environ)
    with process.stdout:
        try:
            yield RunningFake(process.stdout.readline().strip())
        finally:
            process.kill()
            process.wait()


async def _serve(kind: str, options: dict[str, Any]) -> None:
    async with FAKES[kind](**options) as fake:
        print(fake.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=FAKES)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", default="accept")
    parser.add_argument("--receipts", default="")
    parser.add_argument("--secret", default=SECRET)
    parser.add_argument("--callback", default="")
    parser.add_argument("--callback-pause-s", type=float, default=0.0)
    options = vars(parser.parse_args())
    asyncio.run(_serve(options.pop("kind"), options))


if __name__ == "__main__":
    main()
