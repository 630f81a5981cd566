"""The documents that describe the API: error list, OpenAPI, the docs pages. All made from the routes."""

from collections.abc import Callable
from functools import cache
from typing import Annotated

import msgspec

from heliograph.api.errors import error_list
from heliograph.api.openapi import openapi_document
from heliograph.api.pages import docs_page, errors_page
from heliograph.api.route import Call, Route, answer
from heliograph.rules.field_docs import ObjectName, says
from heliograph.web.request import Response

HTML = b"text/html; charset=utf-8"
CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
]


class ErrorEntry(msgspec.Struct, frozen=True, kw_only=True):
    code: Annotated[str, says("The code.")]
    status: Annotated[int, says("Its HTTP status.")]
    type: Annotated[str, says("Its kind.")]
    meaning: Annotated[str, says("What is wrong.")]
    fix: Annotated[str, says("What to do about it.")]


class ErrorList(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "list"
    has_more: Annotated[bool, says("Always `false`.")] = False
    data: Annotated[list[ErrorEntry], says("Every code.")]


async def list_errors(call: Call) -> Response:
    return answer(ErrorList(data=msgspec.convert(error_list(), list[ErrorEntry])))


def document_routes(routes: list[Route]) -> list[Route]:
    """OpenAPI and the pages that describe `routes`, each built when it is first asked for."""

    @cache
    def openapi(base_url: str) -> Response:
        return answer(openapi_document(routes, base_url))

    @cache
    def docs(base_url: str) -> Response:
        return _page(docs_page(routes, openapi_document(routes, base_url)))

    @cache
    def errors(base_url: str) -> Response:
        return _page(errors_page())

    return [
        _route("/openapi.json", "The OpenAPI document", openapi),
        _route("/docs", "The API in words", docs),
        _route("/docs/errors", "The error codes in words", errors),
    ]


def _page(html: str) -> Response:
    return Response(200, html.encode(), PAGE_HEADERS, HTML)


def _route(path: str, summary: str, built: Callable[[str], Response]) -> Route:
    async def endpoint(call: Call) -> Response:
        return built(call.context.base_url)

    return Route(method="GET", path=path, summary=summary, call=endpoint)
