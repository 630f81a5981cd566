"""The dashboard on a real store in this process, with fake browsers that keep cookies and have their own IP address."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api.app import Api
from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carrier, Carriers, OutboundMessage
from heliograph.compat.adapters import ADAPTERS
from heliograph.dashboard.app import Dashboard
from heliograph.dashboard.page_request import SESSION_COOKIE, PageTools
from heliograph.dashboard.totp import TIME_STEP_MS, code_at
from heliograph.domain.accounts.people import Link, invite
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.setup import records
from heliograph.domain.setup.snapshot import to_row
from heliograph.encryption import Cipher
from heliograph.storage.people import Invitation
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from heliograph.web.budget import ByteBudget
from heliograph.web.dispatcher import Dispatcher
from tests.clocks import TestClock
from tests.make_request import body_of, make_request, no_eml
from tests.setup_helpers import set_up
from tests.storage.samples import ENTRY
from tests.storage.test_idempotency import make_context, make_management

PASSWORD = "correct horse battery"
TEAMS = ("team_a", "team_b")
BASE = "https://mail.example.com"
LINK = re.compile(rf"{BASE}(/dashboard/link/\w+)")


class Response(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def location(self) -> str:
        return self.headers.get("location", "")

    @property
    def link(self) -> str:
        """Return the path of the only account link on the page; empty if there is none."""
        links = set(LINK.findall(self.body))
        assert len(links) <= 1, links
        return links.pop() if links else ""


class MailRecorder(Carrier):
    """Carrier that records every mail and returns a configurable outcome."""

    def __init__(self) -> None:
        self.mails: list[EmailContent] = []
        self.says: Outcome = Accepted(carrier_id="1")

    async def send_message(self, message: OutboundMessage) -> Outcome:
        self.mails.append(msgspec.json.decode(message.content, type=EmailContent))
        return self.says


class Instance:
    def __init__(self, store: Store, clock: TestClock) -> None:
        self.store, self.clock, self.post = store, clock, MailRecorder()
        self.sealer = sealer = Cipher(bytes(32))
        context = msgspec.structs.replace(
            make_context(store, clock),
            failover=CarrierFailover(store, Carriers(lambda _: self.post), clock),
            base_url=BASE,
        )
        budget = ByteBudget()
        self.people = store.people
        management = make_management(context)
        self._tools = PageTools(
            context=context,
            management=management,
            encrypt=sealer.encrypt,
            decrypt=sealer.decrypt,
            render_eml=no_eml,
        )
        self._api = Api(context, management, Admission(context, RateLimits()), budget, ADAPTERS)
        self.start()

    def start(self, **tools: Any) -> None:
        """Restart the dashboard with different `PageTools` fields."""
        dashboard = Dashboard(msgspec.structs.replace(self._tools, **tools), ByteBudget())
        self.front = Dispatcher(self._api, dashboard, ["127.0.0.1"])

    async def set_up(self) -> None:
        teams = [records.TeamRecord(ref=ref, id=id_, name=f"The {id_}") for ref, id_ in enumerate(TEAMS, 11)]
        rows = [to_row("team", team.id, team, team.id) for team in teams]
        new = [NewTeam(team.ref, 0) for team in teams]
        await set_up(self.store, rows=rows, new_teams=new)

    async def send_mail(self) -> None:
        """Add a real mail carrier, so that mail is no longer simulated."""
        row = to_row("carrier", "relay", records.CarrierRecord(id="relay", channel="email", kind="smtp"), None)
        await set_up(self.store, rows=[row])

    async def person(self, email: str, *, operator: bool = False, **roles: str) -> "Browser":
        """Create a user who has accepted these roles, and return a browser in which the user is signed in."""
        invitation = await self.invite(email, **roles | ({"": "operator"} if operator else {}))
        browser = self.browser()
        assert (await browser.post(f"/dashboard/link/{invitation.token}", password=PASSWORD)).status == 303
        return browser

    async def invite(self, email: str, **roles: str) -> Invitation:
        """Invite a user like the command line does; an empty team id means an operator role."""
        link = Link("", "invite", proven=1)
        return await self.people.change_by_email(email, email, roles, lambda item: invite(item, roles, link, ENTRY))

    async def id_of(self, email: str) -> str:
        person = await self.people.find(email)
        assert person
        return person.id

    async def send_sign_in_form(self, email: str) -> dict[str, str]:
        """Return the form that enables TOTP, without the password."""
        secret, id_ = bytes(20), await self.id_of(email)
        return {
            "sealed": self.sealer.encrypt(secret, f"totp/{id_}"),
            "code": code_at(secret, self.clock.now() // TIME_STEP_MS),
        }

    def browser(self, address: str = "192.0.2.1") -> "Browser":
        return Browser(self, address)


class Browser:
    def __init__(self, house: Instance, address: str) -> None:
        self.house, self.address = house, address
        self.cookies: dict[str, str] = {}

    async def get(self, path: str) -> Response:
        return await self._ask("GET", path, None)

    async def post(self, path: str, **form: str) -> Response:
        who = await self.house.store.sessions.find(self.cookies.get(SESSION_COOKIE, ""))
        return await self._ask("POST", path, form | ({"csrf": who.csrf} if who else {}))

    async def sign_in(self, email: str, password: str = PASSWORD) -> Response:
        return await self.post("/dashboard/sign-in", email=email, password=password)

    async def can_see(self, path: str) -> bool:
        return (await self.get(path)).status == 200

    async def _ask(self, method: str, path: str, form: Mapping[str, str] | None) -> Response:
        headers = {
            "host": "mail.example.com",
            "x-forwarded-for": f"198.51.100.99, {self.address}",  # the first address may be set by the client
            "cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            "content-type": "application/x-www-form-urlencoded",
        }
        answer = await self.house.front(make_request(method, path, headers, urlencode(form or {}).encode()))
        pairs = [(name.decode(), value.decode()) for name, value in answer.headers]
        for name, value in pairs:
            if name == "set-cookie":
                cookie, _, rest = value.partition(";")
                key, _, cookie_value = cookie.partition("=")
                self.cookies[key] = "" if "Max-Age=0" in rest else cookie_value
        return Response(answer.status, dict(pairs), (await body_of(answer)).decode(errors="replace"))
