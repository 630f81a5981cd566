"""The dashboard on a real store, in this process: browsers that keep cookies, each at an address of its own."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api.app import Api
from heliograph.carrier_failover import Handover
from heliograph.carriers.contract import Carrier, Carriers, Parcel
from heliograph.compat.adapters import SURFACES
from heliograph.dashboard.app import Dashboard
from heliograph.dashboard.page_request import COOKIE, PageTools
from heliograph.dashboard.totp import STEP_MS, code_at
from heliograph.domain.accounts.people import Link, offer
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.setup import records
from heliograph.domain.setup.snapshot import to_row
from heliograph.encryption import Sealer
from heliograph.storage.people import Offered
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from heliograph.web.budget import ByteBudget
from heliograph.web.dispatcher import Front
from tests.clocks import TestClock
from tests.make_request import asked, body_of, no_eml
from tests.setup_helpers import set_up
from tests.storage.samples import ENTRY
from tests.storage.test_idempotency import make_context, make_management

PASSWORD = "correct horse battery"
TEAMS = ("team_a", "team_b")
BASE = "https://mail.example.com"
LINK = re.compile(rf"{BASE}(/dashboard/link/\w+)")


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def place(self) -> str:
        return self.headers.get("location", "")

    @property
    def link(self) -> str:
        """The path of the only link on the page; empty: there is none."""
        found = set(LINK.findall(self.body))
        assert len(found) <= 1, found
        return found.pop() if found else ""


class Post(Carrier):
    """Takes every mail; answers what it is told to."""

    def __init__(self) -> None:
        self.mails: list[EmailContent] = []
        self.says: Outcome = Accepted(carrier_id="1")

    async def hand_over(self, parcel: Parcel) -> Outcome:
        self.mails.append(msgspec.json.decode(parcel.content, type=EmailContent))
        return self.says


class House:
    def __init__(self, store: Store, clock: TestClock) -> None:
        self.store, self.clock, self.post = store, clock, Post()
        self.sealer = sealer = Sealer(bytes(32))
        context = msgspec.structs.replace(
            make_context(store, clock),
            handover=Handover(store, Carriers(lambda _: self.post), clock),
            base_url=BASE,
        )
        budget = ByteBudget()
        self.people = store.people
        management = make_management(context)
        self._tools = PageTools(
            context=context,
            management=management,
            seal=sealer.seal,
            unseal=sealer.open,
            eml=no_eml,
        )
        self._api = Api(context, management, Admission(context, RateLimits()), budget, SURFACES)
        self.open()

    def open(self, **tools: Any) -> None:
        """With other tools than the usual."""
        dashboard = Dashboard(msgspec.structs.replace(self._tools, **tools), ByteBudget())
        self.front = Front(self._api, dashboard, ["127.0.0.1"])

    async def set_up(self) -> None:
        teams = [records.TeamRecord(ref=ref, id=id_, name=f"The {id_}") for ref, id_ in enumerate(TEAMS, 11)]
        rows = [to_row("team", team.id, team, team.id) for team in teams]
        new = [NewTeam(team.ref, 0) for team in teams]
        await set_up(self.store, rows=rows, new_teams=new)

    async def send_mail(self) -> None:
        """From now on there is a carrier that takes mail for real."""
        row = to_row("carrier", "relay", records.CarrierRecord(id="relay", channel="email", kind="smtp"), None)
        await set_up(self.store, rows=[row])

    async def person(self, email: str, *, operator: bool = False, **roles: str) -> "Browser":
        """Somebody who accepted these roles by an operator's link; answers the browser, signed in."""
        made = await self.offer(email, **roles | ({"": "operator"} if operator else {}))
        browser = self.browser()
        assert (await browser.post(f"/dashboard/link/{made.token}", password=PASSWORD)).status == 303
        return browser

    async def offer(self, email: str, **roles: str) -> Offered:
        """As the command line invites; an empty team: to run the instance."""
        link = Link("", "invite", proven=1)
        return await self.people.offer(email, email, roles, lambda one: offer(one, roles, link, ENTRY))

    async def id_of(self, email: str) -> str:
        person = await self.people.find(email)
        assert person
        return person.id

    async def code_form(self, email: str) -> dict[str, str]:
        """What turns the code at sign-in on, but for the password."""
        secret, id_ = bytes(20), await self.id_of(email)
        return {"sealed": self.sealer.seal(secret, f"totp/{id_}"), "code": code_at(secret, self.clock.now() // STEP_MS)}

    def browser(self, address: str = "192.0.2.1") -> "Browser":
        return Browser(self, address)


class Browser:
    def __init__(self, house: House, address: str) -> None:
        self.house, self.address = house, address
        self.cookies: dict[str, str] = {}

    async def get(self, path: str) -> Answer:
        return await self._ask("GET", path, None)

    async def post(self, path: str, **form: str) -> Answer:
        who = await self.house.store.sessions.find(self.cookies.get(COOKIE, ""))
        return await self._ask("POST", path, form | ({"csrf": who.csrf} if who else {}))

    async def sign_in(self, email: str, password: str = PASSWORD) -> Answer:
        return await self.post("/dashboard/sign-in", email=email, password=password)

    async def sees(self, path: str) -> bool:
        return (await self.get(path)).status == 200

    async def _ask(self, method: str, path: str, form: Mapping[str, str] | None) -> Answer:
        headers = {
            "host": "mail.example.com",
            "x-forwarded-for": f"198.51.100.99, {self.address}",  # the first is what a client may write itself
            "cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            "content-type": "application/x-www-form-urlencoded",
        }
        answer = await self.house.front(asked(method, path, headers, urlencode(form or {}).encode()))
        pairs = [(name.decode(), value.decode()) for name, value in answer.headers]
        for name, value in pairs:
            if name == "set-cookie":
                cookie, _, rest = value.partition(";")
                key, _, kept = cookie.partition("=")
                self.cookies[key] = "" if "Max-Age=0" in rest else kept
        return Answer(answer.status, dict(pairs), (await body_of(answer)).decode(errors="replace"))
