"""A product embeds Heliograph: the commands of docs/platforms.md, and its customer in the portal."""

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from heliograph.dashboard.page_request import PORTAL_COOKIE
from tests.service import Answer, Service, until

GUIDE = Path(__file__).parents[2] / "docs" / "platforms.md"
FORM = "application/x-www-form-urlencoded"
PORTAL = "/dashboard/portal/teams/team_acme2"
EMAIL = {"from": "hello@sandbox.heliograph.test", "to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}


class Guide:
    """Runs the guide's curl commands in order."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._commands = iter(re.findall(r"^```sh\n(curl .*?)^```", GUIDE.read_text(), re.M | re.S))
        created = service.run("key", "create", "--platform", "--name", "billing", "--json")
        self.key: str = json.loads(created.stdout)["token"]

    def run_next(self, method: str, path: str) -> Answer:
        words = shlex.split(next(self._commands).replace("\\\n", ""))
        body = words[words.index("-d") + 1] if "-d" in words else ""
        shown = words[words.index("-X") + 1] if "-X" in words else "POST" if body else "GET"
        (url,) = [word for word in words if word.startswith("http://")]
        assert "Authorization: Bearer $PLATFORM_KEY" in words
        assert (shown, urlsplit(url).path) == (method, path)
        return self._service.ask(shown, path, json.loads(body) if body else None, key=self.key)

    @property
    def is_over(self) -> bool:
        return next(self._commands, None) is None


class Visitor:
    """The browser of the product's customer."""

    def __init__(self, service: Service, cookie: str = "") -> None:
        self._service = service
        self.cookie = cookie

    def get(self, path: str) -> Answer:
        return self._service.get(path, key=None, headers={"Cookie": f"{PORTAL_COOKIE}={self.cookie}"})

    def post(self, path: str, **fields: str) -> Answer:
        headers = {"Cookie": f"{PORTAL_COOKIE}={self.cookie}", "Content-Type": FORM}
        return self._service.post(path, urlencode(fields).encode(), key=None, headers=headers)


def test_product_creates_a_team_and_its_customer_a_webhook(service: Service) -> None:
    guide = Guide(service)
    assert guide.run_next("POST", "/v1/teams").status == 201
    key = guide.run_next("POST", "/v1/teams/team_acme2/keys").json["token"]
    assert guide.run_next("POST", "/v1/teams/team_acme2/credit").json["credit"] == "25.0000"

    link = guide.run_next("POST", "/v1/teams/team_acme2/portal").json["url"]
    path, visitor = urlsplit(link).path, Visitor(service)
    assert "Continue" in visitor.get(path).raw.decode()
    opened = visitor.post(path)
    assert (opened.status, opened.headers["location"]) == (303, f"{PORTAL}/webhooks")
    visitor.cookie = opened.headers["set-cookie"].partition(";")[0].partition("=")[2]
    form = visitor.get(f"{PORTAL}/webhooks/new").raw.decode()
    assert 'href="https://app.example.com/settings" target="_top"' in form
    (csrf,) = set(re.findall(r'name="csrf" value="(\w+)"', form))
    created = visitor.post(f"{PORTAL}/webhooks", csrf=csrf, url="http://127.0.0.1:9/events", all="yes")
    assert created.status in (200, 303), created.raw
    (webhook,) = service.get("/v1/webhooks", key=key).json["data"]
    assert webhook["url"] == "http://127.0.0.1:9/events"
    assert service.post("/v1/emails", EMAIL, key=key).status == 202
    until(lambda: "delivered@simulator.test" in visitor.get(f"{PORTAL}/events").raw.decode())
    assert visitor.get(f"{PORTAL}/keys").status == 404
    entries = service.get("/v1/audit?team=team_acme2", key=guide.key).json["data"]
    assert [entry["action"] for entry in entries] == [
        *("webhook.create", "portal.open", "portal.link", "credit.book", "key.create", "team.create")
    ]
    assert {entry["by"] for entry in entries} == {f"key {guide.key[3:13]}"}

    assert guide.run_next("DELETE", "/v1/teams/team_acme2").json["suspended"]
    assert visitor.get(f"{PORTAL}/webhooks").status == 403
    assert service.post("/v1/emails", EMAIL, key=key).code == "team_suspended"
    assert guide.run_next("POST", "/v1/teams/team_acme2/restore").json["deletes_at"] is None
    assert guide.is_over
    assert service.post("/v1/emails", EMAIL, key=key).status == 202
    assert visitor.get(f"{PORTAL}/webhooks").status == 403
