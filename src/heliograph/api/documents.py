"""Documents about the API, generated from its routes: error list, OpenAPI, docs pages."""

from functools import cache
from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.api.guides import FOLDER, MOVED_GUIDES, PICTURES
from heliograph.api.openapi import openapi_document
from heliograph.api.pages import Docs
from heliograph.domain.field_docs import Records, describe
from heliograph.domain.refusals import InvalidRequest
from heliograph.runtime.threads import READ_POOL
from heliograph.texts.explain import ExplanationRecord, all_causes
from heliograph.web.errors import error_list
from heliograph.web.paging import ListPage, page_response, read_limit
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, Route, json_response

HTML = b"text/html; charset=utf-8"
SEARCH_MAX = 200  # maximum characters of a search query
CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
]


class ErrorEntry(msgspec.Struct, frozen=True, kw_only=True):
    code: Annotated[str, describe("The error code.", example="recipient_suppressed")]
    status: Annotated[int, describe("HTTP status of the response.", example=403)]
    type: Annotated[str, describe("Error type.", example="permission_error")]
    meaning: Annotated[str, describe("What is wrong.", example="A recipient is on the suppression list.")]
    fix: Annotated[str, describe("How to fix it.", example="Remove these recipients from the request.")]


AFTER = QueryParam("after", "The last code or cause of the previous page.")


class ErrorList(ListPage, frozen=True, kw_only=True):
    data: Records[ErrorEntry]


class CauseList(ListPage, frozen=True, kw_only=True):
    data: Records[ExplanationRecord]


async def list_causes(call: Call) -> Response:
    return _list_page(call, {explanation.cause: explanation for explanation in all_causes()})


async def list_errors(call: Call) -> Response:
    return _list_page(call, {entry["code"]: entry for entry in error_list()})


def _list_page(call: Call, items: dict[str, Any]) -> Response:
    """Return a page of `items` by their keys; all items if there is no `limit` parameter."""
    query, names = call.query(), list(items)
    after = query.get("after")
    if after is not None and after not in items:
        raise InvalidRequest("after must be the last code or cause of the previous page.", param="after")
    remaining_names = names[names.index(after) + 1 :] if after else names
    return page_response([items[name] for name in remaining_names], read_limit(query, len(names)))


def document_routes(routes: list[Route]) -> list[Route]:
    """Return routes for the OpenAPI document and the docs pages, which describe `routes`.

    Each document is built at its first request and cached, except for search results.
    """

    @cache
    def openapi(base_url: str) -> Response:
        return json_response(openapi_document(routes, base_url))

    @cache
    def docs(base_url: str) -> Docs:
        return Docs(routes, openapi_document(routes, base_url))

    page_cache: dict[tuple[str, str], Response] = {}

    async def show_openapi(call: Call) -> Response:
        base_url = call.context.base_url
        return openapi(base_url) if openapi.cache_info().currsize else await READ_POOL.run(openapi, base_url)

    async def show(call: Call) -> Response:
        base_url, path = call.context.base_url, call.request.path
        site = docs(base_url) if docs.cache_info().currsize else await READ_POOL.run(docs, base_url)
        search_text = call.request.unchecked_query().get("q", "")[:SEARCH_MAX]
        if search_text.strip():
            return _html_response(site.errors(search_text) if path == "/docs/errors" else site.search_page(search_text))
        key = base_url, path
        if key not in page_cache:
            html = await READ_POOL.run(site.page, path)
            if html is None and (moved := MOVED_GUIDES.get(path.removeprefix("/docs/guides/"))):
                return Response(301, b"", [(b"location", f"/docs/guides/{moved}".encode())])
            if html is None:
                return _html_response(site.not_found(), 404)
            page_cache[key] = _html_response(html)
        return page_cache[key]

    async def show_picture(call: Call) -> Response:
        name = call.request.path.rpartition("/")[2]
        if name not in PICTURES:
            return _html_response(docs(call.context.base_url).not_found(), 404)
        body = await READ_POOL.run((FOLDER / "screens" / name).read_bytes)
        return Response(200, body, [(b"x-content-type-options", b"nosniff")], b"image/png")

    async def show_llms_txt(call: Call) -> Response:
        text = await READ_POOL.run(docs(call.context.base_url).llms_txt)
        return Response(200, text.encode(), [], b"text/plain; charset=utf-8")

    summaries = {
        "/docs": "API documentation",
        "/docs/api/{name}": "Endpoint documentation",
        "/docs/guides/{name}": "A guide",
        "/docs/errors": "Error code documentation",
        "/docs/errors/{name}": "Documentation of an error code",
    }
    return [
        Route(method="GET", path="/openapi.json", summary="The OpenAPI document", call=show_openapi),
        Route(method="GET", path="/llms.txt", summary="Index of the docs for language models", call=show_llms_txt),
        Route(method="GET", path="/docs/screens/{name}", summary="A picture in a guide", call=show_picture),
        *(Route(method="GET", path=path, summary=summary, call=show) for path, summary in summaries.items()),
    ]


def _html_response(html: str, status: int = 200) -> Response:
    return Response(status, html.encode(), PAGE_HEADERS, HTML)
