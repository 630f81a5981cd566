"""A valid request per channel, and helpers for tests of several endpoints."""

from typing import Any

from tests.service import Answer, Service, until

Body = dict[str, Any]

EMAIL: Body = {"to": "delivered@simulator.test", "from": "hello@acme.test", "subject": "Hello", "text": "Hi"}
WELCOME: Body = {
    "to": "delivered@simulator.test",
    "from": "hello@acme.test",
    "template_id": "tpl_welcome",
    "variables": {"name": "Ada"},
}
SMS: Body = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "A1"}}
WHATSAPP: Body = {"to": "+15005550006", "template_id": "tpl_whatsapp", "variables": {"parcel": "A1"}}
VERIFY: Body = {"to": "+15005550006"}
SENDS: dict[str, Body] = {"/v1/emails": EMAIL, "/v1/sms": SMS, "/v1/whatsapp": WHATSAPP, "/v1/verify": VERIFY}

UNFINISHED = ("queued", "sending", "sent")


def without(body: Body, *names: str) -> Body:
    return {name: value for name, value in body.items() if name not in names}


def assert_refused(answer: Answer, status: int, code: str, param: str | None = None) -> None:
    """Check an error response; `param` only if given."""
    assert (answer.status, answer.code) == (status, code), answer.raw
    if param is not None:
        assert answer.json["error"]["param"] == param


def settled(service: Service, path: str, key: str = "ACME", status: str | None = None) -> Any:
    """Return the message once it is final, or has the given status."""

    def check() -> Any:
        message = service.get(path, key=key).json
        is_settled = message["status"] == status if status else message["status"] not in UNFINISHED
        return message if is_settled else None

    return until(check)


def send(service: Service, path: str, body: Body, key: str = "ACME", status: str | None = None) -> Any:
    """Send and wait until the message is final."""
    answer = service.post(path, body, key=key)
    assert answer.status == 202, answer.raw
    return settled(service, f"{path}/{answer.json['id']}", key, status)


def idle_me(service: Service, key: str) -> Any:
    """Return the team's account once no credit is on hold."""

    def check() -> Any:
        me = service.get("/v1/me", key=key).json
        return me if me["held"] == "0.0000" else None

    return until(check)
