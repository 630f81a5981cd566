"""The documents that describe the API, generated from the routes: error list, OpenAPI, docs pages."""

from functools import cache
from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.api.openapi import openapi_document
from heliograph.api.pages import Docs
from heliograph.domain.field_docs import Records, says
from heliograph.domain.refusals import InvalidRequest
from heliograph.runtime.threads import LOOKING
from heliograph.texts.explain import ExplanationRecord, all_causes
from heliograph.web.errors import error_list
from heliograph.web.paging import Listed, page, read_limit
from heliograph.web.request import Response
from heliograph.web.route import Query, Route, answer

HTML = b"text/html; charset=utf-8"
WORDS_MAX = 200  # maximum characters of a search query
CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
]


class ErrorEntry(msgspec.Struct, frozen=True, kw_only=True):
    code: Annotated[str, says("The code.", example="recipient_suppressed")]
    status: Annotated[int, says("Its HTTP status.", example=403)]
    type: Annotated[str, says("Its kind.", example="permission_error")]
    meaning: Annotated[str, says("What is wrong.", example="A recipient is on the suppression list.")]
    fix: Annotated[str, says("What to do about it.", example="Remove these recipients from the request.")]


LISTED_AFTER = Query("after", "The last code or cause of the previous page.")


class ErrorList(Listed, frozen=True, kw_only=True):
    data: Records[ErrorEntry]


class CauseList(Listed, frozen=True, kw_only=True):
    data: Records[ExplanationRecord]


async def list_causes(call: Call) -> Response:
    return _pages(call, {one.cause: one for one in all_causes()})


async def list_errors(call: Call) -> Response:
    return _pages(call, {one["code"]: one for one in error_list()})


def _pages(call: Call, found: dict[str, Any]) -> Response:
    """Return the values of `found` as a list; its names serve as `after`. Without `limit`, all are returned."""
    query, names = call.query(), list(found)
    after = query.get("after")
    if after is not None and after not in found:
        raise InvalidRequest("after is what the page before ended with.", param="after")
    rest = names[names.index(after) + 1 :] if after else names
    return page([found[name] for name in rest], read_limit(query, len(names)))


def document_routes(routes: list[Route]) -> list[Route]:
    """Return the routes of the OpenAPI document and the docs pages that describe `routes`.

    Each document is built at its first request and cached, except search results.
    """

    @cache
    def openapi(base_url: str) -> Response:
        return answer(openapi_document(routes, base_url))

    @cache
    def docs(base_url: str) -> Docs:
        return Docs(routes, openapi_document(routes, base_url))

    kept: dict[tuple[str, str], Response] = {}

    async def show_openapi(call: Call) -> Response:
        base_url = call.context.base_url
        return openapi(base_url) if openapi.cache_info().currsize else await LOOKING.run(openapi, base_url)

    async def show(call: Call) -> Response:
        base_url, path = call.context.base_url, call.request.path
        site = docs(base_url) if docs.cache_info().currsize else await LOOKING.run(docs, base_url)
        words = call.request.loose_query().get("q", "")[:WORDS_MAX]
        if words.strip():
            return _page(site.errors(words) if path == "/docs/errors" else site.found(words))
        key = base_url, path
        if key not in kept:
            html = await LOOKING.run(site.page, path)
            if html is None:
                return _page(site.missing(), 404)
            kept[key] = _page(html)
        return kept[key]

    pages = {
        "/docs": "The API in words",
        "/docs/api/{name}": "An endpoint in words",
        "/docs/guides/{name}": "A guide",
        "/docs/errors": "The error codes in words",
        "/docs/errors/{name}": "An error code in words",
    }
    return [
        Route(method="GET", path="/openapi.json", summary="The OpenAPI document", call=show_openapi),
        *(Route(method="GET", path=path, summary=summary, call=show) for path, summary in pages.items()),
    ]


def _page(html: str, status: int = 200) -> Response:
    return Response(status, html.encode(), PAGE_HEADERS, HTML)
