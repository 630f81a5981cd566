"""Forms: session, role and size are checked before the body is read; then the body is parsed in one pass."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.dashboard import app
from heliograph.dashboard.app import Dashboard
from heliograph.dashboard.page_request import PageTools
from heliograph.dashboard.pages import IMPORT_FORM_MAX, PAGES
from heliograph.domain.limits import BODY_MAX, MIB
from heliograph.domain.refusals import InvalidRequest, UnsupportedMediaType
from heliograph.storage.sessions import SignedInSession
from heliograph.web.budget import ByteBudget
from heliograph.web.forms import PARTS_MAX, check_content_type, read_form
from heliograph.web.request import Request

FORM = "application/x-www-form-urlencoded"
FILES = "multipart/form-data; boundary=line"
DISPOSITION = b"Content-Disposition: form-data; name="


def parts(*each: bytes, end: bytes = b"--line--\r\n") -> bytes:
    return b"".join(b"--line\r\n" + part + b"\r\n" for part in each) + end


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "fields", "files"),
    [
        (FORM, b"a=1&b=&c=%C3%A9+x&a=2", {"a": "2", "b": "", "c": "é x"}, {}),
        ("", b"a=1", {"a": "1"}, {}),
        (FILES, parts(DISPOSITION + b'"a"\r\n\r\n1\r\n2'), {"a": "1\r\n2"}, {}),
        (FILES, parts(DISPOSITION + b'"\xc3\xa9"; x="a;b"\r\n\r\n\xc3\xa9'), {"é": "é"}, {}),
        (FILES, parts(DISPOSITION + b'f; filename="a.csv"\r\nContent-Type: text/csv\r\n\r\n\0\r\n--lin'), {},
         {"f": b"\0\r\n--lin"}),
        (FILES, parts(DISPOSITION + b'f; filename=""\r\n\r\n', DISPOSITION + b"a\r\n\r\nx"), {"a": "x"}, {"f": b""}),
        (FILES, parts(b"Content-Type: text/plain\r\n\r\nnameless"), {"": "nameless"}, {}),
    ],
)  # fmt: skip
def test_form_of_a_browser_is_parsed(kind: str, body: bytes, fields: dict[str, str], files: dict[str, bytes]) -> None:
    assert read_form(kind, body) == (fields, files)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, b"a=%FF"),
        (FORM, "a=é".encode()),
        (FORM, b"a=%00"),
        (FORM, b"&".join(b"a=1" for _ in range(4001))),
        (FILES, parts(DISPOSITION + b"a\r\n\r\n1", end=b"--lin")),
        (FILES, b""),
        (FILES, b"nothing of the kind"),
        (FILES, parts(DISPOSITION + b"a\r\n\r\n\0")),
        (FILES, parts(*[DISPOSITION + b"a\r\n\r\n1"] * (PARTS_MAX + 1))),
        (FILES, parts(DISPOSITION + b'"' + b"a" * 2000 + b'"\r\n\r\n1')),
        (FILES, parts(b"X-A: 1\r\n" * 9 + DISPOSITION + b"a\r\n\r\n1")),
        ("multipart/form-data", parts(DISPOSITION + b"a\r\n\r\n1")),
    ],
    ids=[
        *("not UTF-8", "not ASCII", "a null", "too many fields", "cut off", "empty", "no parts", "a null in a part"),
        *("too many parts", "a long header", "many headers", "no boundary"),
    ],
)
def test_form_malformed_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_form(kind, body)


@pytest.mark.parametrize(("kind", "files"), [("", False), (FORM, False), (FORM + ";a=b", True), (FILES, True)])
def test_form_content_types_of_pages_are_accepted(kind: str, files: bool) -> None:
    check_content_type(kind, files)


@pytest.mark.parametrize(
    ("kind", "files"),
    [(FILES, False), ("text/plain", True), ("multipart/mixed; boundary=x", True), (FILES + ";" * 200, True)],
)
def test_form_other_content_types_are_refused(kind: str, files: bool) -> None:
    with pytest.raises(UnsupportedMediaType):
        check_content_type(kind, files)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "parts": lambda n: parts(*[DISPOSITION + b"a\r\n\r\n"] * 90) + b"--line\r\n" * n,
    "line breaks": lambda n: parts(DISPOSITION + b"a\r\n\r\n" + b"\r\n" * n),
    "nearly boundaries": lambda n: parts(DISPOSITION + b"a\r\n\r\n" + b"\r\n--lin" * n),
    "headers": lambda n: parts(b"a: b\r\n" * n + b"\r\n"),
    "a folded header": lambda n: parts(DISPOSITION + b"a" + b";\r\n a" * n + b"\r\n\r\n1"),
    "no end": lambda n: parts(DISPOSITION + b"a\r\n\r\n" + b"x" * n, end=b""),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_form_parsing_time_is_linear_in_the_body(shape: str) -> None:
    def cost(n: int) -> float:
        body, began = HOSTILE[shape](n), time.thread_time()
        try:
            read_form(FILES, body)
        except InvalidRequest:
            pass
        return time.thread_time() - began

    assert min(cost(80_000) for _ in range(3)) < 8 * max(min(cost(20_000) for _ in range(3)), 0.001)


# -- before the body -----------------------------------------------------------------------------------------------


class Sessions:
    """Sessions whose token is the user's name."""

    async def find(self, token: str) -> SignedInSession | None:
        return ADA if token == "ada" else None


class People:
    """Ada has one role, in the team."""

    def __init__(self, role: str) -> None:
        self.role = role

    async def get_roles(self, person: str) -> dict[str, str]:
        return {"team_acme": self.role}


ADA = SignedInSession("ses_1", "token", 0, "per_ada", "ada@example.com", "Ada", operator=0)


class Sent:
    """A POST whose body arrives only if given."""

    def __init__(self, path: str, *, cookie: str = "", length: int = 0, kind: str = FORM, body: bytes = b"") -> None:
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % (length or len(body)))]
        headers.append((b"cookie", f"heliograph_session={cookie}".encode()))
        self.request = Request("POST", path, headers, raw_path=path.encode(), need_more=self.want)
        self.body = body
        self.asked = False
        self.status = 0
        self.task: asyncio.Task[Any] | None = None

    def want(self) -> None:
        self.asked = True
        if self.body:
            self.request.feed(self.body)
            self.request.end()
        else:
            self.request.hang_up()


@pytest.fixture(autouse=True)
def _no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing_to_say(_: Dashboard, answer: Any, visit: Any) -> Any:
        return answer

    monkeypatch.setattr(app, "render", lambda template, values, reader: b"")
    monkeypatch.setattr(Dashboard, "_add_alerts", nothing_to_say)


def post(sent: Sent, role: str = "owner") -> Sent:
    team = SimpleNamespace(record=SimpleNamespace(id="team_acme", ref=1))
    setup = SimpleNamespace(teams={"team_acme": team})
    context = SimpleNamespace(
        clock=SimpleNamespace(new_id=lambda prefix: prefix + "1", now=lambda: 0, team_now=lambda team: 0),
        base_url="",
        store=SimpleNamespace(setup=SimpleNamespace(current=setup), people=People(role), sessions=Sessions()),
    )
    tools = cast(PageTools, SimpleNamespace(context=context))

    async def call() -> None:
        sent.task = asyncio.current_task()
        sent.status = (await Dashboard(tools, ByteBudget())(sent.request)).status

    asyncio.run(call())
    return sent


IMPORT = "/dashboard/teams/team_acme/suppressions/import"


@pytest.mark.parametrize(
    ("path", "options", "role", "status"),
    [
        (IMPORT, {"length": MIB}, "owner", 303),
        (IMPORT, {"length": MIB, "cookie": "mallory"}, "owner", 303),
        (IMPORT, {"length": MIB, "cookie": "ada"}, "viewer", 403),
        (IMPORT, {"length": IMPORT_FORM_MAX + 1, "cookie": "ada", "kind": FILES}, "owner", 413),
        (IMPORT, {"length": MIB, "cookie": "ada", "kind": "text/csv"}, "owner", 415),
        ("/dashboard/teams/team_acme/suppressions", {"length": BODY_MAX + 1, "cookie": "ada"}, "owner", 413),
        ("/dashboard/teams/team_acme/suppressions", {"length": 9, "cookie": "ada", "kind": FILES}, "owner", 415),
        ("/dashboard/sign-in", {"length": BODY_MAX + 1}, "owner", 413),
        ("/dashboard/sign-in", {"length": 60_000, "kind": FILES}, "owner", 415),
        ("/dashboard/link/anything", {"length": 60_000, "kind": FILES}, "owner", 415),
        ("/dashboard/nowhere", {"length": 9}, "owner", 404),
    ],
)
def test_first_response_is_sent_without_a_body(path: str, options: dict[str, Any], role: str, status: int) -> None:
    sent = post(Sent(path, **options), role)
    assert (sent.status, sent.asked) == (status, False)


def test_body_larger_than_its_content_length_is_refused() -> None:
    sent = Sent("/dashboard/teams/team_acme/suppressions", cookie="ada", length=1, body=b"a" * (BODY_MAX + 1))
    assert post(sent).status == 413


def test_request_task_is_named_after_the_route() -> None:
    sent = post(Sent(IMPORT, cookie="ada"), "viewer")
    assert sent.task and sent.task.get_name() == "POST " + IMPORT.replace("team_acme", "{team}")


def test_only_the_import_form_accepts_files() -> None:
    assert [route.path for route in PAGES if route.accepts_files] == [IMPORT.replace("team_acme", "{team}")]
    assert all(route.form_max == BODY_MAX for route in PAGES if route.required_role in ("anyone", "person", "viewer"))
