"""The three edges (pages, routes, commands) on one store without processes, and a watcher of their transactions."""

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
from heliograph.dashboard.page_request import SESSION_COOKIE
from heliograph.dashboard.views.passkeys import CHALLENGE_COOKIE as PASSKEY
from heliograph.domain.audit.audit_chain import ERASE_ACTION
from heliograph.domain.setup.domain_records import Record, Verdict
from heliograph.manage import erase
from heliograph.settings import Settings
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.engine.sqlite import SqliteDatabase, SqliteTx
from tests.accounts.house import Instance
from tests.clocks import TestClock
from tests.make_request import body_of, make_request
from tests.service import TOKENS, Service
from tests.storage.conftest import Sql, asking

Fault = Literal["", "entry", "commit"]
FAULTS: tuple[Fault, ...] = ("entry", "commit")
Values = dict[str, str]
Dump = dict[str, str]  # table → its content

# Tables without changes by people: counters, rate limits, records of the service's own work, sessions.
UNWATCHED_TABLES = {
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
COLUMN_QUERIES = (
    "SELECT m.name, p.name FROM sqlite_schema m JOIN pragma_table_info(m.name) p WHERE m.type = 'table'",
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'",
)
VOLATILE_COLUMN = ("person", "totp_step")  # step of the last TOTP code, used just before such a change
FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"
CLIENT_ADDRESS = "192.0.2.1"
BOUNDARY = "----file"


class Entry(msgspec.Struct, frozen=True):
    actor: str
    action: str
    team: str | None
    address: str


class EdgeResponse(msgspec.Struct, frozen=True):
    """The response of an edge."""

    ok: bool
    body: str
    redirect_to: str = ""  # target of a redirect

    @property
    def json(self) -> Any:
        assert self.ok, self.body
        return json.loads(self.body)


class TransactionWatcher:
    """Records which tables each transaction changes; a fault can end those that write to the audit log."""

    def __init__(self, statement: str) -> None:
        self._statement = statement
        self._is_recording = False
        self._fault: Fault = ""
        self.changed_tables: list[set[str]] = []  # tables changed by each committed transaction that changed any

    @contextmanager
    def recording(self, fault: Fault = "") -> Iterator[None]:
        self._is_recording, self._fault, self.changed_tables = True, fault, []
        try:
            yield
        finally:
            self._is_recording = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for kind in (SqliteDatabase, PostgresDatabase):
                patch.setattr(kind, "write", self._wrap_write(kind.write))
            yield

    def _wrap_write(self, write: Any) -> Any:
        async def watched(database: Any, transaction: Any) -> Any:
            if not self._is_recording:
                return await write(database, transaction)
            changed: set[str] = set()

            async def run_and_compare(tx: Any) -> Any:
                before = await self._dump(tx)
                result = await transaction(_FaultyTx(tx, self._fault))
                after = await self._dump(tx)
                changed.clear()  # a transaction function may run again after a conflict
                changed.update(table for table in before if before[table] != after[table])
                if self._fault == "commit" and "audit" in changed:
                    raise StoreUnavailable("killed before the commit")
                return result

            result = await write(database, run_and_compare)
            if changed:
                self.changed_tables.append(changed)
            return result

        return watched

    async def _dump(self, tx: Any) -> Dump:
        return dict(tx._execute(self._statement) if isinstance(tx, SqliteTx) else await tx._fetch(self._statement))


class _FaultyTx:
    def __init__(self, tx: Any, fault: Fault) -> None:
        self.wakeups = tx.wakeups
        self.after_commit = tx.after_commit
        self._tx = tx
        self._fault = fault

    async def run(self, query: str, **params: Any) -> Any:
        if self._fault == "entry" and query == "insert_audit" and params["entries"]:
            raise StoreUnavailable("killed before the audit entry")
        return await self._tx.run(query, **params)

    async def run_many(self, **queries: Any) -> Any:
        return await self._tx.run_many(**queries)

    async def write_many(self, tables: Any) -> None:
        await self._tx.write_many(tables)


async def dump_statement(sql: Sql, sqlite: bool) -> str:
    """Return a query that reads every table as one text."""
    tables: dict[str, list[str]] = {}
    for table, column in await sql(COLUMN_QUERIES[not sqlite]):
        if (table, column) != VOLATILE_COLUMN:
            tables.setdefault(table, []).append(f'"{column}"')

    def text(columns: Sequence[str]) -> str:
        if sqlite:
            return f"group_concat({' || char(9) || '.join(f'quote({column})' for column in columns)}, char(10))"
        row = f"ROW({', '.join(columns)})::text"
        return f"string_agg({row}, chr(10) ORDER BY {row})"

    return " UNION ALL ".join(f"SELECT '{table}', (SELECT {text(own)} FROM {table})" for table, own in tables.items())


class Environment:
    """The teams of tests/setup.toml, an owner and an operator; all other objects are created through an edge."""

    def __init__(self, house: Instance, service: Service, sql: Sql, watch: TransactionWatcher, statement: str) -> None:
        self.house, self.service, self.sql, self.watcher = house, service, sql, watch
        self._statement = statement
        self._numbers = count(1)
        self.tokens = TOKENS | {
            "PLATFORM": json.loads(self.command("key", "create", "--platform", "--json").body)["token"]
        }
        self.people: dict[str, tuple[str, str]] = {}  # name → id, cookie
        self.passkey_cookies: dict[str, str] = {}  # name → cookie of a challenge that the device has answered

    def next_number(self) -> str:
        return str(next(self._numbers))

    async def dump(self) -> Dump:
        return dict(await self.sql(self._statement))

    async def last_entry(self) -> int:
        ((key,),) = await self.sql("SELECT coalesce(max(key), 0) FROM audit")
        return int(key)

    async def entries(self, after: int) -> list[Entry]:
        """Return the audit entries, without those that record the new texts of other entries."""
        rows = await self.sql(f"SELECT person, action, team, address FROM audit WHERE key > {after} ORDER BY key")
        return [Entry(*row) for row in rows if row[1] != ERASE_ACTION]

    # -- the edges ------------------------------------------------------------------------------------------------

    def command(self, *arguments: str) -> EdgeResponse:
        done = self.service.run(*arguments)
        return EdgeResponse(done.returncode == 0, done.stdout if done.returncode == 0 else done.stderr)

    async def run_command(self, *arguments: str) -> str:
        """Run a command that must succeed, and refresh the store."""
        response = self.command(*arguments)
        assert response.ok, response.body
        await self.house.store.setup.refresh()
        return response.body

    async def apply_setup(self, text: str) -> None:
        file = self.service.data / "more.toml"
        file.write_text(text)
        await self.run_command("apply", str(file))

    async def call_api(self, method: str, path: str, body: Any = None, key: str = "ACME") -> EdgeResponse:
        if path.startswith("/compat/twilio/"):
            basic = base64.b64encode(f"AC1:{self.tokens[key]}".encode()).decode()
            headers = {"authorization": f"Basic {basic}", "content-type": FORM_CONTENT_TYPE}
            return await self._ask(method, path, headers, urlencode(body or {}).encode())
        headers = {"authorization": f"Bearer {self.tokens[key]}", "content-type": "application/json"}
        headers["x-postmark-server-token"] = self.tokens[key]
        return await self._ask(method, path, headers, b"" if body is None else json.dumps(body).encode())

    async def get_page(self, path: str, who: str) -> str:
        return (await self._ask("GET", path, {"cookie": f"{SESSION_COOKIE}={self.people[who][1]}"}, b"")).body

    async def post_form(self, path: str, form: Mapping[str, str], who: str = "", file: str = "") -> EdgeResponse:
        cookie = self.people[who][1] if who else ""
        session = await self.house.store.sessions.find(cookie) if cookie else None
        fields = dict(form) | ({"csrf": session.csrf} if session else {})
        question = f"; {PASSKEY}={self.passkey_cookies[who]}" if who in self.passkey_cookies else ""
        headers = {"cookie": f"{SESSION_COOKIE}={cookie}{question}", "content-type": FORM_CONTENT_TYPE}
        if not file:
            return await self._ask("POST", path, headers, urlencode(fields).encode())
        headers["content-type"] = f"multipart/form-data; boundary={BOUNDARY}"
        parts = [f'name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
        parts.append(f'name="file"; filename="file.csv"\r\nContent-Type: text/csv\r\n\r\n{file}')
        body = "".join(f"--{BOUNDARY}\r\nContent-Disposition: form-data; {part}\r\n" for part in parts)
        return await self._ask("POST", path, headers, f"{body}--{BOUNDARY}--\r\n".encode())

    async def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> EdgeResponse:
        answer = await self.house.front(make_request(method, path, headers, body, CLIENT_ADDRESS))
        response_headers = {name.decode(): value.decode() for name, value in answer.headers}
        status, text = answer.status, (await body_of(answer)).decode()
        return EdgeResponse(
            status < 400, text if status < 400 else f"{status} {text}", response_headers.get("location", "")
        )

    # -- people ---------------------------------------------------------------------------------------------------

    async def make_person(self, **roles: Any) -> str:
        """Create a signed-in user; return the name, which is also the local part of the address."""
        name = f"p{self.next_number()}"
        browser = await self.house.person(f"{name}@example.com", **roles)
        self.people[name] = await self.house.id_of(f"{name}@example.com"), browser.cookies[SESSION_COOKIE]
        return name

    def totp_code(self, secret: str) -> str:
        """Return an authenticator's code, a new one each time."""
        self.house.clock.forward(totp.TIME_STEP_MS)
        return totp.code_at(base64.b32decode(secret), self.house.clock.now() // totp.TIME_STEP_MS)


@asynccontextmanager
async def open_environment(url: str, folder: Path, *, has_people: bool = True) -> AsyncIterator[Environment]:
    service, clock = Service(url, folder / "data"), TestClock()
    service.apply()
    settings = Settings(database=url, data=folder / "data")
    with fast_erasure_and_dns():
        async with open_store(settings, clock, "seat/0") as store, asking(settings) as sql:
            statement = await dump_statement(sql, url.startswith("sqlite"))
            watch = TransactionWatcher(statement)
            with watch.installed():
                world = Environment(Instance(store, clock), service, sql, watch, statement)
                if has_people:
                    world.people["owner"] = world.people[
                        await world.make_person(team_acme="owner", team_sandbox="owner")
                    ]
                    world.people["operator"] = world.people[await world.make_person(operator=True)]
                yield world


@contextmanager
def fast_erasure_and_dns() -> Iterator[None]:
    """Make erasure fast, and DNS answers correct."""

    async def all_records_found(records: Sequence[Record], _: Any) -> list[tuple[Record, Verdict]]:
        return [(record, Verdict(ok=True)) for record in records]

    async def same_domain(domain: str, _: Any) -> str:
        return domain

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dns_check, "check_records", all_records_found)
        patch.setattr(dns_check, "zone_of", same_domain)
        patch.setattr(erase, "SETTLE_S", 0)
        yield


MakeValues = Callable[[Environment], Awaitable[Values]]
