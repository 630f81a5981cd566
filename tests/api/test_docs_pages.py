"""/docs: a page for each endpoint, code and guide, with the content of the routes and examples that run."""

import ast
import asyncio
import functools
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Coroutine, Iterator
from html import unescape
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import jsonschema_rs
import msgspec
import pytest

from heliograph.api import examples, guides, openapi
from heliograph.api.documents import document_routes
from heliograph.api.examples import request_examples, response_example
from heliograph.api.pages import TEXT_RESULTS_MAX, Docs
from heliograph.api.routes import V1
from heliograph.domain.refusals import all_refusals
from heliograph.domain.setup.keys import make_token
from heliograph.web.html import colour_values
from heliograph.web.request import Request, Response
from heliograph.web.route import Call, Route
from heliograph.web.snippets import DOCS_LANGUAGES
from heliograph_client import Heliograph
from tests.npm import miss
from tests.service import TOKENS, Service
from tests.test_docs import DEMO, ROOT

BASE = "http://127.0.0.1:8700"
DOCUMENT = openapi.openapi_document(V1, BASE)
DOCS = Docs(V1, DOCUMENT)
CODES = [refusal.code for refusal in all_refusals()]
ENDPOINTS = [f"/docs/api/{openapi.operation_id(route)}" for route in V1]
PATHS = [
    *("/docs", "/docs/errors"),
    *ENDPOINTS,
    *(f"/docs/errors/{code}" for code in CODES),
    *(f"/docs/guides/{name}" for name in guides.GUIDE_NAMES),
]
SAMPLE_PATHS = ["/docs", "/docs/errors", "/docs/api/post_emails", "/docs/errors/invalid_email", "/docs/guides/webhooks"]


@functools.cache
def pages() -> dict[str, str]:
    """Return the pages. A function, so that collecting tests does not build them in each worker."""
    return {path: DOCS.page(path) or "" for path in PATHS}


def route_id(route: Route) -> str:
    return f"{route.method} {route.path}"


def visible_text(html: str) -> str:
    """Return the text that a reader sees."""
    text = re.sub(r"<wbr>|<[^>]*>", lambda tag: "" if tag[0] == "<wbr>" else " ", html)
    return unescape(re.sub(r"\s+", " ", text))


# -- the pages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", V1, ids=route_id)
def test_an_endpoint_has_a_page_with_its_fields_and_codes(route: Route) -> None:
    text = visible_text(pages()[f"/docs/api/{openapi.operation_id(route)}"])
    assert f"{route.method} {route.path}" in text
    for parameter in DOCUMENT["paths"][route.path][route.method.lower()]["parameters"]:
        assert parameter["name"] in text
    for refusals in openapi.refusals_of(route).values():
        for refusal in refusals:
            assert refusal.code in text


def test_a_field_shows_type_limits_and_required() -> None:
    text = visible_text(pages()["/docs/api/post_emails"])
    assert re.search(r"\bto string or list of strings required\b", text)
    assert "Cc addresses, up to 50." in text and "up to 50. At most 50." not in text
    assert "At most 500 characters." in visible_text(pages()["/docs/api/post_webhooks"])
    assert "attachments[].content string required" in text
    assert "limit integer Maximum number of items. 1 to 100. Default: 20 ." in visible_text(
        pages()["/docs/api/get_emails"]
    )


@pytest.mark.parametrize(
    ("path", "first", "others"),
    [
        ("post_emails", ["to", "from", "subject", "html", "text", "template_id", "variables"], ["tags", "cc", "bcc"]),
        ("post_sms", ["to", "template_id", "variables"], ["tags", "priority"]),
        ("post_emails_batch", ["messages"], ["mode"]),
        ("post_templates", ["channel", "subject", "html"], ["name"]),
        ("post_webhooks", ["url", "events"], ["description"]),
    ],
)
def test_required_fields_come_first(path: str, first: list[str], others: list[str]) -> None:
    page = pages()[f"/docs/api/{path}"]
    body, _, rest = page[page.index("<h2>Body</h2>") :].partition("<h2>Optional</h2>")
    field_names = re.findall(r'id="field-([^"]+)"', body)
    assert field_names[: len(first)] == first
    assert all(f'id="field-{name}"' in rest for name in others)


def test_long_descriptions_are_collapsed() -> None:
    page = pages()["/docs/api/get_emails"]
    assert "<details><summary>Maximum number of items.</summary>1 to 100. Default: <code>20</code>.</details>" in page


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ('{"a": "b<", "n": 1.5}', "{&#34;a&#34;: <span>&#34;b&lt;&#34;</span>, &#34;n&#34;: <span>1.5</span>}"),
        ("-H 'X: y' ok2 True", "-H &#39;X: y&#39; ok2 <span>True</span>"),
        (r'"a\"b" : null', "&#34;a\\&#34;b&#34; : <span>null</span>"),
    ],
)
def test_values_are_highlighted(code: str, shown: str) -> None:
    assert colour_values(code) == shown


@pytest.mark.parametrize("code", CODES)
def test_an_error_code_has_a_page(code: str) -> None:
    refusal = next(refusal_type for refusal_type in all_refusals() if refusal_type.code == code)
    page_text = re.sub(r"\W", "", visible_text(pages()[f"/docs/errors/{code}"]))
    assert all(re.sub(r"\W", "", sentence) in page_text for sentence in (refusal.meaning(), refusal.fix))
    assert f'id="{code}"' in pages()["/docs/errors"]  # target of doc_url


def test_llms_txt_lists_every_guide_and_endpoint() -> None:
    links = set(re.findall(rf"\]\({BASE}(/[^)]+)\)", DOCS.llms_txt()))
    assert links == {*PATHS, "/openapi.json"} - {"/docs", *(f"/docs/errors/{code}" for code in CODES)}


def test_every_link_has_a_target() -> None:
    for path, page in pages().items():
        for target in re.findall(r'href="([^"]+)"', page):
            page_path, _, part = target.partition("#")
            if target.startswith(("https://", "/dashboard", "/openapi.json", "/docs?", "/docs/search")):
                continue
            if target.removeprefix("/docs/screens/") in guides.PICTURES:
                continue
            assert not page_path or page_path in pages(), (path, target)
            if part:
                assert f'id="{part}"' in pages()[page_path or path], (path, target)


@pytest.mark.parametrize("path", SAMPLE_PATHS)
def test_a_page_has_no_external_resources_and_ordered_headings(path: str) -> None:
    page = pages()[path]
    assert not re.findall(r'src="(?!/)', page) and "<style" not in page and " style=" not in page
    main = page[page.index("<main") :]
    levels = [int(level) for level in re.findall(r"<h([1-6])", main)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = re.findall(r' id="(.+?)"', page)
    assert len(set(ids)) == len(ids)
    assert 'href="/dashboard"' in page and "/dashboard/static/style.css" in page


def test_text_is_escaped() -> None:
    route = msgspec.structs.replace(V1[0], summary="<b>bold</b>")
    docs = Docs([route], openapi.openapi_document([route], BASE))
    assert "<b>" not in (docs.page("/docs") or "") + (docs.page(ENDPOINTS[0]) or "") + docs.search_page("<b>")


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("send an email", "/docs/api/post_emails"),
        ("idempotency", "/docs/guides/idempotency"),
        ("recipient_suppressed", "/docs/errors/recipient_suppressed"),
        ("SIGNATURE", "/docs/guides/webhooks"),
        ("/v1/webhooks replay", "/docs/api/post_webhooks_id_replay"),
        ("webhook", "/docs/api/post_webhooks"),
        ("scheduled_at", "/docs/api/post_emails#field-scheduled_at"),
        ("template_id", "/docs/api/post_emails#field-template_id"),
    ],
)
def test_search_finds_pages(words: str, first: str) -> None:
    assert first in [hit.url for hit in DOCS.search(words)][:3]
    assert first in DOCS.search_page(words)


def test_search_lists_endpoints_and_fields_first() -> None:
    kinds = [hit.kind for hit in DOCS.search("email")]  # a field has this name
    assert kinds[0] == "Field" and set(kinds[1:8]) == {"API"}
    assert [hit.kind for hit in DOCS.search("template")][-1] not in ("API", "Field")


def test_search_leads_to_section_of_guide_and_marks_words() -> None:
    by_text = [hit for hit in DOCS.search("bounce") if hit.kind == "Guide" and "bounce" not in hit.about]
    assert 0 < len(by_text) <= TEXT_RESULTS_MAX
    assert all("#" in hit.url and "bounce" in hit.excerpt.lower() for hit in by_text)
    page = DOCS.search_page("<b> &amp")
    assert "<b>" not in page
    assert "<mark>bounce</mark>" in DOCS.search_page("bounce")


def test_search_without_results_shows_a_message() -> None:
    assert DOCS.search("zebra") == []
    assert "No results contain" in DOCS.search_page("zebra")
    assert "No error code matches" in DOCS.errors("zebra") and 'id="invalid_email"' not in DOCS.errors("zebra")
    assert 'id="invalid_email"' in DOCS.errors("address email")


# -- the guides --------------------------------------------------------------------------------------------


def test_the_wheel_has_the_guides_and_their_pictures() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    files = [f"{name}.md" for name in guides.GUIDE_NAMES] + [f"screens/{name}" for name in guides.PICTURES]
    assert wheel["force-include"] == {f"docs/{file}": f"heliograph/api/guides/{file}" for file in sorted(files)}


PICTURE_BYTES_MAX = 120_000


def test_pictures_of_the_guides_are_small_and_described() -> None:
    images = [image for html in pages().values() for image in re.findall("<img[^>]*>", html)]
    shown = [image for image in images if "icon.svg" not in image]
    assert len(shown) == len(guides.PICTURES)
    assert [image for image in shown if not re.search(r'src="/docs/screens/[^"]+" alt="[^"]{20,}"', image)] == []
    for name in guides.PICTURES:
        assert f'src="/docs/screens/{name}"' in "".join(shown)
        assert (guides.FOLDER / "screens" / name).stat().st_size < PICTURE_BYTES_MAX


EDITOR_PICTURE = '<p><img src="/docs/screens/template-editor.png" alt="The editor" /></p>'


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("A `code_word`.", "<p>A <code>code_<wbr>word</code>.</p>"),
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
        ("<!-- not run by a test -->\nText.", "<p>Text.</p>"),
        ("[Webhooks](webhooks.md#verifying)", '<p><a href="/docs/guides/webhooks#verifying">Webhooks</a></p>'),
        ("[ADR](adr/0001-no-framework.md)", "<p>ADR</p>"),
        ("![The editor](screens/template-editor.png)", EDITOR_PICTURE),
        ("[x](javascript:alert)", "<p>[x](javascript:alert)</p>"),
    ],
)
def test_markdown_is_rendered_as_html(markdown: str, html: str) -> None:
    assert guides.to_html(markdown)[0].strip() == html


def test_code_blocks_have_a_label_and_table_cells_the_name_of_their_column() -> None:
    blocks, _ = guides.to_html('```sh\ncurl x\n```\n\n```json\n{"id": 1}\n```\n\n```\nplain\n```\n')
    assert (
        blocks.count('class="code-block copyable block"') == 2
        and '<div class="code-block"><p class="label">Response</p>' in blocks
    )
    assert '<p class="label">Shell</p><pre tabindex="0"><code>curl x' in blocks and blocks.count('class="label"') == 2
    table, _ = guides.to_html("| A | [`B`](x.md) |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n")
    assert re.findall("<td.*?>", table) == ["<td>", '<td data-label="B">'] * 2


@pytest.mark.parametrize(
    ("name", "neighbours"),
    [
        (guides.GUIDE_NAMES[0], ["Next"]),
        (guides.GUIDE_NAMES[1], ["Previous", "Next"]),
        (guides.GUIDE_NAMES[-1], ["Previous"]),
    ],
)
def test_guide_links_to_the_previous_and_next_guide(name: str, neighbours: list[str]) -> None:
    part = pages()[f"/docs/guides/{name}"].partition('class="docs-next"')[2].partition("</nav>")[0]
    assert re.findall(r">(Previous|Next)<", part) == neighbours


# -- the routes that answer them ---------------------------------------------------------------------------


def get_page(path: str, query: bytes = b"") -> Response:
    routes = document_routes(V1)
    route = next(route for route in routes if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route.path), path))
    request = Request("GET", path, [], query_string=query)
    call = Call(cast(Any, SimpleNamespace(base_url=BASE)), cast(Any, None), route, request, {}, None)
    first = asyncio.run(cast(Coroutine[Any, Any, Response], route.call(call)))
    repeated = asyncio.run(cast(Coroutine[Any, Any, Response], route.call(call)))
    assert (first is repeated) == (not query and first.status == 200)  # cached, except for searches
    return first


@pytest.mark.parametrize("path", SAMPLE_PATHS)
def test_a_page_is_served_and_may_load_our_own_files_alone(path: str) -> None:
    response = get_page(path)
    assert (response.status, response.content_type) == (200, b"text/html; charset=utf-8")
    assert response.body.decode() == pages()[path]
    policy = dict(response.headers)[b"content-security-policy"]
    assert policy.startswith(b"default-src 'none'; style-src 'self'; script-src 'self'") and b"unsafe" not in policy
    assert dict(response.headers)[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize("path", ["/docs/api/nothing", "/docs/errors/nothing", "/docs/guides/../secret"])
def test_an_unknown_page_returns_404_with_navigation(path: str) -> None:
    response = get_page(path) if path.count("/") == 3 else get_page("/docs/guides/secret")
    assert response.status == 404 and b"Page not found" in response.body


@pytest.mark.parametrize(("old", "new"), [("dashboard", b"accounts"), ("test-recipients", b"testing")])
def test_a_moved_guide_redirects_to_its_new_page(old: str, new: bytes) -> None:
    response = get_page(f"/docs/guides/{old}")
    assert (response.status, response.headers) == (301, [(b"location", b"/docs/guides/" + new)])


def test_pictures_of_the_guides_are_served() -> None:
    routes = document_routes(V1)
    [route] = [route for route in routes if route.path == "/docs/screens/{name}"]
    for name, status in ((guides.PICTURES[0], 200), ("nothing.png", 404)):
        request = Request("GET", f"/docs/screens/{name}", [], query_string=b"")
        call = Call(cast(Any, SimpleNamespace(base_url=BASE)), cast(Any, None), route, request, {}, None)
        response = asyncio.run(cast(Coroutine[Any, Any, Response], route.call(call)))
        assert response.status == status
        assert response.body.startswith(b"\x89PNG") is (response.content_type == b"image/png") is (status == 200)


def test_search_pages_are_served() -> None:
    assert b"post_emails" in get_page("/docs", b"q=send+an+email").body
    assert b"invalid_email" in get_page("/docs/errors", b"q=invalid_email").body


# -- the examples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", V1, ids=route_id)
def test_the_example_of_an_answer_fits_its_schema(route: Route) -> None:
    for kind in filter(None, (route.answer, route.preview)):
        resolved_schema = {"$ref": f"#/components/schemas/{kind.__name__}", "components": DOCUMENT["components"]}
        example = response_example(route, kind, DOCUMENT["components"]["schemas"])
        assert [
            error.message for error in jsonschema_rs.Draft202012Validator(resolved_schema).iter_errors(example)
        ] == []


def test_the_answer_to_the_example_without_a_sender_is_of_a_sandbox_team() -> None:
    (route,) = (route for route in V1 if route.name == "POST /v1/emails")
    for kind in (route.answer, route.preview):
        answer = response_example(route, kind, DOCUMENT["components"]["schemas"])
        assert (answer["from"], answer["sandbox"]) == ("hello@sandbox.heliograph.test", True)
    assert "from" not in (route.example or {})


def test_examples_are_on_the_fields_alone() -> None:
    """Examples are defined with the fields, and per route only in `example_values`."""
    names = {name for schema in DOCUMENT["components"]["schemas"].values() for name in schema.get("properties", {})}
    tree = ast.parse(inspect.getsource(examples))
    keys = {
        key.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    assert (names & keys) - examples.EMPTY_BY_TYPE.keys() == {"id", "to", "recipient", "address", "type"}


SENDS = [route for route in V1 if route.idempotent and "{" not in route.path]
TOKEN, SANDBOX = make_token(bytes(range(64))), TOKENS["SANDBOX"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service with the demo's teams."""
    folder = tmp_path_factory.mktemp("demo")
    os.environ["LIVE"] = TOKEN
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data") as running:
        running.apply(DEMO)
        running.start()
        yield running
    del os.environ["LIVE"]


def run(language: str, code: str, key: str = TOKEN) -> str:
    command = {
        "curl": ["sh", "-c", code],
        **{name: [sys.executable, "-c", code] for name in ("python", "urllib")},
        "node": ["node", "--input-type=module"],
    }
    program = {"curl": "curl", "node": "node"}.get(language)
    if program and shutil.which(program) is None:
        miss(f"the examples for {language}", f"{program} is not installed")
    process = subprocess.run(
        command[language],
        input=code if language == "node" else None,
        env={**os.environ, "HELIOGRAPH_KEY": key, "PYTHONPATH": str(ROOT / "clients/python/src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.slow
@pytest.mark.parametrize("language", DOCS_LANGUAGES)
@pytest.mark.parametrize("route", SENDS, ids=route_id)
def test_an_example_runs_unchanged_on_the_demo(demo: Service, route: Route, language: str) -> None:
    base = f"http://127.0.0.1:{demo.ports[0]}"
    operation = DOCUMENT["paths"][route.path]["post"]
    key = SANDBOX if route.path.startswith("/v1/emails") else TOKEN  # only the live team has these templates
    for _ in range(1 + (language == "curl")):  # curl's example can be run repeatedly
        printed = run(language, request_examples(route, base, operation)[language], key)
    example = response_example(route, route.answer, DOCUMENT["components"]["schemas"])
    for name in example:
        assert name in printed
    if language == "curl":
        answer = json.loads(printed)
        assert answer.keys() == example.keys()
        same = ("status", "to") if route.preview else ("object",)  # a batch
        assert {name: answer[name] for name in same} == {name: example[name] for name in same}
    elif language != "python":
        assert printed.startswith("202 ")


class Sent(Exception):
    """Raised to end a snippet at its request."""


def sent_by_client(code: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, Any]:
    """Return method, path and body of the request that a snippet sends with heliograph-client."""
    requests = []

    def record(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        raise Sent

    client = httpx2.Client(transport=httpx2.MockTransport(record))
    monkeypatch.setattr("heliograph_client.Heliograph", functools.partial(Heliograph, "hk_x", http_client=client))
    with pytest.raises(Sent):
        exec(code, {})
    return requests[0].method, requests[0].url.path, json.loads(requests[0].content or "null")


WITHOUT_CLIENT = ("/v1/teams", "/v1/events/schema", "/v1/errors", "/v1/causes", "/healthz", "/readyz")


@pytest.mark.parametrize("route", V1, ids=route_id)
def test_python_example_sends_the_request_with_our_client(route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    examples = request_examples(route, "http://service.test", operation)
    if "urllib" not in examples:
        is_known = route.path.startswith(WITHOUT_CLIENT) or route.path.endswith("{attachment}")
        assert is_known or (route.method, route.path) == ("POST", "/v1/test-clock")
        return
    url = re.search(r"http://service\.test(\S+?)['\s]", examples["curl"] + " ")
    assert url
    method, path, body = sent_by_client(examples["python"], monkeypatch)
    assert (method, path) == (route.method, url[1])
    assert (body or {}).items() >= (route.example or {}).items()  # for a batch, the client also sends the default mode


def test_other_examples_run_too(demo: Service) -> None:
    """Run the examples that need no id of an existing record."""
    base = f"http://127.0.0.1:{demo.ports[0]}"
    for route in V1:
        if "{" in route.path and route.path not in ("/v1/templates/{id}/render", "/v1/domains/{id}"):
            continue
        if route.idempotent or (route.method, route.path) == ("POST", "/v1/webhooks"):
            continue
        # needs a sandbox team, a platform key, or a team with categories
        if route.path in ("/v1/inbox", "/v1/test-clock", "/v1/unsubscribes") or route.scopes == ("operate",):
            continue
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        answer = json.loads(run("curl", request_examples(route, base, operation)["curl"]))
        assert "error" not in answer, answer
        example = response_example(route, route.answer, DOCUMENT["components"]["schemas"])
        assert answer.keys() == example.keys()
