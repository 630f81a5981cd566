"""The three edges on one store, without processes: pages, routes and commands; and a watch over their transactions."""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
import pytest

from heliograph.bootstrap import open_store
from heliograph.carriers.email import dns_check
from heliograph.dashboard import totp
from heliograph.dashboard.page_request import COOKIE
from heliograph.dashboard.views.passkeys import COOKIE as PASSKEY
from heliograph.domain.audit.audit_chain import REWRITTEN
from heliograph.domain.setup.domain_records import Record, Verdict
from heliograph.manage import erase
from heliograph.settings import Settings
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.engine.sqlite import SqliteDatabase, SqliteTx
from tests.accounts.house import House
from tests.clocks import TestClock
from tests.make_request import asked, body_of
from tests.service import TOKENS, Service
from tests.storage.conftest import Sql, asking

Fault = Literal["", "entry", "commit"]
FAULTS: tuple[Fault, ...] = ("entry", "commit")
Values = dict[str, str]
Dump = dict[str, str]  # table → all that it holds

# What is no change of anybody's: counters and throttles, what the service notes of its own work, being signed in.
UNWATCHED = {
    "counter",
    "wrong_try",
    "key_use",
    "request_log",
    "happening",
    "familiar",
    "machine_clock",
    "fact",
    "session",
} | {
    "decision",
    "domain_check",
}
COLUMNS = (
    "SELECT m.name, p.name FROM sqlite_schema m JOIN pragma_table_info(m.name) p WHERE m.type = 'table'",
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'",
)
USED = ("person", "totp_step")  # the last code that was taken, right before a change that needed one
FORM = "application/x-www-form-urlencoded"
CLIENT = "192.0.2.1"
BOUNDARY = "----file"


class Entry(msgspec.Struct, frozen=True):
    actor: str
    action: str
    team: str | None
    address: str


class Said(msgspec.Struct, frozen=True):
    """What an edge answered."""

    ok: bool
    body: str
    place: str = ""  # of a redirect

    @property
    def json(self) -> Any:
        assert self.ok, self.body
        return json.loads(self.body)


class Watch:
    """Sees which tables each transaction changes; a fault ends those that write to the audit log."""

    def __init__(self, statement: str) -> None:
        self._statement = statement
        self._on = False
        self._fault: Fault = ""
        self.changed: list[set[str]] = []  # by the transactions that were committed and changed anything

    @contextmanager
    def over(self, fault: Fault = "") -> Iterator[None]:
        self._on, self._fault, self.changed = True, fault, []
        try:
            yield
        finally:
            self._on = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for kind in (SqliteDatabase, PostgresDatabase):
                patch.setattr(kind, "write", self._around(kind.write))
            yield

    def _around(self, write: Any) -> Any:
        async def watched(database: Any, story: Any) -> Any:
            if not self._on:
                return await write(database, story)
            changed: set[str] = set()

            async def inside(tx: Any) -> Any:
                before = await self._dump(tx)
                result = await story(_Tx(tx, self._fault))
                after = await self._dump(tx)
                changed.clear()  # a story may run again after a conflict
                changed.update(table for table in before if before[table] != after[table])
                if self._fault == "commit" and "audit" in changed:
                    raise StoreUnavailable("killed before the commit")
                return result

            result = await write(database, inside)
            if changed:
                self.changed.append(changed)
            return result

        return watched

    async def _dump(self, tx: Any) -> Dump:
        return dict(tx._execute(self._statement) if isinstance(tx, SqliteTx) else await tx._fetch(self._statement))


class _Tx:
    def __init__(self, tx: Any, fault: Fault) -> None:
        self.hints = tx.hints
        self.afterwards = tx.afterwards
        self._tx = tx
        self._fault = fault

    async def run(self, query: str, **params: Any) -> Any:
        if self._fault == "entry" and query == "insert_audit" and params["entries"]:
            raise StoreUnavailable("killed before the audit entry")
        return await self._tx.run(query, **params)

    async def ask(self, **queries: Any) -> Any:
        return await self._tx.ask(**queries)

    async def write(self, tables: Any) -> None:
        await self._tx.write(tables)


async def dump_statement(sql: Sql, sqlite: bool) -> str:
    """Reads every table as one text."""
    tables: dict[str, list[str]] = {}
    for table, column in await sql(COLUMNS[not sqlite]):
        if (table, column) != USED:
            tables.setdefault(table, []).append(f'"{column}"')

    def text(columns: Sequence[str]) -> str:
        if sqlite:
            return f"group_concat({' || char(9) || '.join(f'quote({column})' for column in columns)}, char(10))"
        row = f"ROW({', '.join(columns)})::text"
        return f"string_agg({row}, chr(10) ORDER BY {row})"

    return " UNION ALL ".join(f"SELECT '{table}', (SELECT {text(own)} FROM {table})" for table, own in tables.items())


class World:
    """The teams of tests/setup.toml, an owner and an operator; whatever is made is made through an edge."""

    def __init__(self, house: House, service: Service, sql: Sql, watch: Watch, statement: str) -> None:
        self.house, self.service, self.sql, self.watch = house, service, sql, watch
        self._statement = statement
        self._numbers = count(1)
        self.people: dict[str, tuple[str, str]] = {}  # name → id, cookie
        self.questions: dict[str, str] = {}  # name → the cookie of a question that a device has answered

    def number(self) -> str:
        return str(next(self._numbers))

    async def dump(self) -> Dump:
        return dict(await self.sql(self._statement))

    async def last_entry(self) -> int:
        ((key,),) = await self.sql("SELECT coalesce(max(key), 0) FROM audit")
        return int(key)

    async def entries(self, after: int) -> list[Entry]:
        """Without those that explain other entries' new texts."""
        rows = await self.sql(f"SELECT person, action, team, address FROM audit WHERE key > {after} ORDER BY key")
        return [Entry(*row) for row in rows if row[1] != REWRITTEN]

    # -- the edges ------------------------------------------------------------------------------------------------

    def command(self, *arguments: str) -> Said:
        done = self.service.run(*arguments)
        return Said(done.returncode == 0, done.stdout if done.returncode == 0 else done.stderr)

    async def done(self, *arguments: str) -> str:
        """Of a command that must succeed; the store follows."""
        said = self.command(*arguments)
        assert said.ok, said.body
        await self.house.store.setup.refresh()
        return said.body

    async def apply(self, text: str) -> None:
        file = self.service.data / "more.toml"
        file.write_text(text)
        await self.done("apply", str(file))

    async def call(self, method: str, path: str, body: Any = None, key: str = "ACME") -> Said:
        if path.startswith("/compat/twilio/"):
            basic = base64.b64encode(f"AC1:{TOKENS[key]}".encode()).decode()
            headers = {"authorization": f"Basic {basic}", "content-type": FORM}
            return await self._ask(method, path, headers, urlencode(body or {}).encode())
        headers = {"authorization": f"Bearer {TOKENS[key]}", "content-type": "application/json"}
        headers["x-postmark-server-token"] = TOKENS[key]
        return await self._ask(method, path, headers, b"" if body is None else json.dumps(body).encode())

    async def get(self, path: str, who: str) -> str:
        return (await self._ask("GET", path, {"cookie": f"{COOKIE}={self.people[who][1]}"}, b"")).body

    async def post(self, path: str, form: Mapping[str, str], who: str = "", file: str = "") -> Said:
        cookie = self.people[who][1] if who else ""
        session = await self.house.store.sessions.find(cookie) if cookie else None
        fields = dict(form) | ({"csrf": session.csrf} if session else {})
        question = f"; {PASSKEY}={self.questions[who]}" if who in self.questions else ""
        headers = {"cookie": f"{COOKIE}={cookie}{question}", "content-type": FORM}
        if not file:
            return await self._ask("POST", path, headers, urlencode(fields).encode())
        headers["content-type"] = f"multipart/form-data; boundary={BOUNDARY}"
        parts = [f'name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
        parts.append(f'name="file"; filename="file.csv"\r\nContent-Type: text/csv\r\n\r\n{file}')
        body = "".join(f"--{BOUNDARY}\r\nContent-Disposition: form-data; {part}\r\n" for part in parts)
        return await self._ask("POST", path, headers, f"{body}--{BOUNDARY}--\r\n".encode())

    async def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Said:
        answer = await self.house.front(asked(method, path, headers, body, CLIENT))
        answered = {name.decode(): value.decode() for name, value in answer.headers}
        status, text = answer.status, (await body_of(answer)).decode()
        return Said(status < 400, text if status < 400 else f"{status} {text}", answered.get("location", ""))

    # -- people ---------------------------------------------------------------------------------------------------

    async def person(self, **roles: Any) -> str:
        """Somebody who is signed in; answers the name, which is also the beginning of the address."""
        name = f"p{self.number()}"
        browser = await self.house.person(f"{name}@example.com", **roles)
        self.people[name] = await self.house.id_of(f"{name}@example.com"), browser.cookies[COOKIE]
        return name

    def code(self, secret: str) -> str:
        """Of an authenticator; every time a new one."""
        self.house.clock.forward(totp.STEP_MS)
        return totp.code_at(base64.b32decode(secret), self.house.clock.now() // totp.STEP_MS)


@asynccontextmanager
async def opened(url: str, folder: Path, *, has_people: bool = True) -> AsyncIterator[World]:
    service, clock = Service(url, folder / "data"), TestClock()
    service.apply()
    settings = Settings(database=url, data=folder / "data")
    with cheap():
        async with open_store(settings, clock, "seat/0") as store, asking(settings) as sql:
            statement = await dump_statement(sql, url.startswith("sqlite"))
            watch = Watch(statement)
            with watch.installed():
                world = World(House(store, clock), service, sql, watch, statement)
                if has_people:
                    world.people["owner"] = world.people[await world.person(team_acme="owner", team_sandbox="owner")]
                    world.people["operator"] = world.people[await world.person(operator=True)]
                yield world


@contextmanager
def cheap() -> Iterator[None]:
    """An erasure without the time that it takes, and a DNS in which everything is right."""

    async def found(records: Sequence[Record], _: Any) -> list[tuple[Record, Verdict]]:
        return [(record, Verdict(ok=True)) for record in records]

    async def itself(domain: str, _: Any) -> str:
        return domain

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dns_check, "check", found)
        patch.setattr(dns_check, "zone_of", itself)
        patch.setattr(erase, "SETTLE_S", 0)
        yield


Make = Callable[[World], Awaitable[Values]]
