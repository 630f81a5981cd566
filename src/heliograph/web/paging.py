"""Pagination: the query parameters `limit` and `after`, and the page response with `has_more`."""

import re
from typing import Any

import msgspec

from heliograph.domain.field_docs import HasMore, ObjectName
from heliograph.domain.ids import PREFIXES, id_pattern, parse_timestamp
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.text import parse_int, quoted
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response

PAGE_SIZE = 20
PAGE_MAX = 100

LIMIT = QueryParam(
    "limit", "Maximum number of items.", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_SIZE}
)


# `limit` of lists that are complete by default
OPTIONAL_LIMIT = QueryParam(
    "limit", "Maximum number of items. Default: all.", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}
)


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list; subclasses add the items as `data`."""

    object: ObjectName = "list"
    has_more: HasMore


def after_param(kind: str) -> QueryParam:
    return QueryParam("after", "The last id of the previous page.", {"type": "string", "pattern": id_pattern(kind)})


def page_response(items: list[Any], limit: int) -> Response:
    """Return a page response. `items` has one item more than `limit` if there is another page."""
    return json_response({"object": "list", "has_more": len(items) > limit, "data": items[:limit]})


def read_limit(query: dict[str, str], default: int = PAGE_SIZE) -> int:
    if "limit" not in query:
        return default
    limit = parse_int(query["limit"], 3)
    if limit is None or not 1 <= limit <= PAGE_MAX:
        raise InvalidRequest(
            f"limit must be a number from 1 to {PAGE_MAX}, not {query['limit'][:80]!r}.", param="limit"
        )
    return limit


def read_after(query: dict[str, str], kind: str) -> str | None:
    return read_id(query, "after", kind)


def read_id(query: dict[str, str], name: str, kind: str) -> str | None:
    """Return an id from the query; None if absent.

    The id need not exist. An invalid one is refused, because comparing with it would match no record or all records.
    """
    id_ = query.get(name)
    if id_ is not None and re.fullmatch(id_pattern(kind), id_) is None:
        raise InvalidRequest(f"{name} must be an id that begins with {PREFIXES[kind]}, not {quoted(id_)}.", param=name)
    return id_


def read_time(name: str, text: str) -> int:
    timestamp = parse_timestamp(text)
    if timestamp is None:
        raise InvalidRequest(f"{name} must be a time such as 2026-11-15T09:30:00.000Z.", param=name)
    return timestamp
