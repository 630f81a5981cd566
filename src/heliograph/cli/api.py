"""`heliograph api`: sends one request to the API of a running service and prints the response."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlencode, urlsplit

import click
import msgspec

from heliograph.cli.service_client import ServiceClient, error_text, with_service

METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
FIELD = re.compile(r"([^\[\]=]+)((?:\[[^\[\]=]+\])*(?:\[\])?)=(.*)", re.S)  # name, [key]…, value
# The query parameter `after` of the next page is the value of the first of these fields that the last item has.
CURSOR_FIELDS = ("event_id", "id", "email", "address", "code", "cause", "version")
PAGE = 100  # records per request
CLIENT_ERROR_EXIT_CODE, OTHER_EXIT_CODE = 4, 5


@click.command()
@with_service
@click.argument("method", type=click.Choice(METHODS, case_sensitive=False))
@click.argument("path")
@click.option(
    "-f",
    "--field",
    "fields",
    multiple=True,
    metavar="NAME=VALUE",
    help="A field of the body, or of the query of a GET, as text. NAME[]=VALUE appends to a list, NAME[KEY]=VALUE "
    "sets a field of an object.",
)
@click.option(
    "-F",
    "--json-field",
    "json_fields",
    multiple=True,
    metavar="NAME=JSON",
    help="A field whose value is JSON, such as true, 5 or [1, 2], or the text of a file: NAME=@FILE.",
)
@click.option("--input", "file", type=click.File("rb"), metavar="FILE", help="Send this file as the body; - is stdin.")
@click.option("--paginate", is_flag=True, help="GET all pages of a list and print them as one list.")
def api(
    service: ServiceClient,
    method: str,
    path: str,
    fields: tuple[str, ...],
    json_fields: tuple[str, ...],
    file: Any,
    paginate: bool,
) -> None:
    """Send a request to the API of a running service and print the response, JSON indented.

    The exit code is 0 for a 2xx response, 4 for a 4xx, 5 for any other status, and 1 if the service is unreachable.

    \b
    heliograph api GET /v1/emails -f status=bounced --paginate
    heliograph api POST /v1/suppressions -f email=ada@example.com
    heliograph api PATCH /v1/webhooks/whk_01JCQ8Z6V3M2N7T0K4H9R5B1XA -F enabled=false -f 'events[]=email.*'
    """
    if not path.startswith("/"):
        raise click.UsageError(f"{path!r}: expected a path such as /v1/emails.")
    if file and (fields or json_fields):
        raise click.UsageError("--input cannot be combined with -f and -F.")
    values: dict[str, Any] = {}
    for text in fields:
        _set_field(values, text, lambda value: value)
    for text in json_fields:
        _set_field(values, text, _parse_json)
    if method != "GET":
        if paginate:
            raise click.UsageError("--paginate is for GET.")
        body = file.read() if file else json.dumps(values).encode() if values else None
        click.echo(_format(_call(service, method, path, body)), nl=False)
        return
    url = urlsplit(path)
    query = dict(parse_qsl(url.query, keep_blank_values=True)) | values
    content = _get_all(service, url.path, query) if paginate else _get(service, url.path, query)
    click.echo(_format(content), nl=False)


def _set_field(values: dict[str, Any], text: str, parse: Callable[[str], Any]) -> None:
    match = FIELD.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{text!r}: expected NAME=VALUE.")
    keys, value, target = [match[1], *re.findall(r"\[(.*?)\]", match[2])], parse(match[3]), values
    try:
        for key, next_key in pairwise(keys):
            target = target.setdefault(key, {} if next_key else [])
        if keys[-1]:
            target[keys[-1]] = value
        else:
            cast(list[Any], target).append(value)
    except (AttributeError, TypeError):
        raise click.UsageError(f"{text!r} does not fit the fields before it.") from None


def _parse_json(text: str) -> Any:
    try:
        return Path(text[1:]).read_text("utf-8") if text.startswith("@") else json.loads(text)
    except OSError as error:
        raise click.ClickException(f"{text[1:]} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise click.UsageError(f"{text!r} is not JSON or UTF-8 text. For text: -f.") from None


def _get(service: ServiceClient, path: str, query: dict[str, Any]) -> bytes:
    return _call(service, "GET", f"{path}?{urlencode(query, doseq=True)}" if query else path, None)


def _get_all(service: ServiceClient, path: str, query: dict[str, Any]) -> bytes:
    data: list[Any] = []
    query = {"limit": PAGE} | query
    while True:
        try:
            page = json.loads(_get(service, path, query))
            data += page["data"]
            if not page["has_more"]:
                return json.dumps({"object": "list", "data": data}, ensure_ascii=False).encode()
            after = next(data[-1][name] for name in CURSOR_FIELDS if name in data[-1])
        except (ValueError, LookupError, TypeError, StopIteration):
            raise click.ClickException(f"--paginate: {path} is not a list with pages.") from None
        query = {**query, "after": after}


def _call(service: ServiceClient, method: str, path: str, body: bytes | None) -> bytes:
    """Return the body of the response. For an error response, print it and exit with the code of its status."""
    try:
        return service.call(method, path, body)
    except HTTPError as error:
        content = error.read()
        click.echo(_format(content), nl=False)
        click.secho(f"heliograph: {error_text(error, content)}", fg="red", err=True)
        raise SystemExit(CLIENT_ERROR_EXIT_CODE if 400 <= error.code < 500 else OTHER_EXIT_CODE) from None


def _format(content: bytes) -> bytes:
    """Return JSON indented, and other content unchanged."""
    try:
        return msgspec.json.format(content, indent=2) + b"\n" if content else b""
    except msgspec.DecodeError:
        return content
