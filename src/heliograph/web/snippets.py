"""Code examples for a request with curl, Python and Node; they read the API key from HELIOGRAPH_KEY."""

import json
import shlex
from keyword import iskeyword
from textwrap import indent
from typing import Any

LANGUAGES = {"curl": "curl", "python": "Python", "node": "Node"}
# `python` uses heliograph-client if it has a method for the request; `urllib` needs only the standard library
DOCS_LANGUAGES = {"curl": "curl", "python": "Python", "urllib": "Python stdlib", "node": "Node"}
JSON_TYPE = "application/json"
# resources of heliograph-client, each an attribute of its client
CLIENT_RESOURCES = frozenset(
    "emails sms whatsapp batches verify templates layouts inbox test_clock received suppressions opt_outs unsubscribes "
    "domains keys webhooks events approvals audit".split()
)
MESSAGE_RESOURCES = ("emails", "sms", "whatsapp")
PAGED_METHODS = (".list", ".versions", ".deliveries")
# method and path of requests below these resources for which the client has no method
WITHOUT_METHOD = (("POST", "test_clock"), ("GET", "events", "schema"))
LINE_MAX = 60  # longer calls have one argument per line


def snippet(language: str, method: str, url: str, body: Any = None, *, with_key: bool = True) -> str:
    """Return code that sends the request. `language`: a key of DOCS_LANGUAGES; `body`: a JSON value."""
    headers = {} if body is None else {"Content-Type": JSON_TYPE}
    if language == "python":
        return client_snippet(method, url, body) or _urllib(method, url, body, with_key, headers)
    return {"curl": _curl, "urllib": _urllib, "node": _node}[language](method, url, body, with_key, headers)


def client_snippet(method: str, url: str, body: Any = None) -> str:
    """Return Python code that uses heliograph-client; empty if the client has no method for the request."""
    base, _, path = url.partition("/v1/")
    first, *rest = path.split("/")
    resource = first.replace("-", "_")
    if path == "me":
        return _client_code(base, "client.me", [])
    if resource not in CLIENT_RESOURCES or (method, resource, *rest) in WITHOUT_METHOD or len(rest) > 2:
        return ""
    fields = dict(body or {})
    arguments = [json.dumps(rest[0])] if rest and rest != ["batch"] else []
    if rest == ["batch"]:
        messages = [{_argument(name): value for name, value in message.items()} for message in fields.pop("messages")]
        arguments = [_python_literal(messages)]
    arguments += [f"{_argument(name)}={_python_literal(value)}" for name, value in fields.items()]
    return _client_code(base, f"client.{resource}.{_client_method(method, resource, rest)}", arguments)


def _client_method(method: str, resource: str, rest: list[str]) -> str:
    """Return the name of heliograph-client's method for an HTTP method and the path after the resource (`rest`)."""
    match method, rest:
        case "POST", ["batch"]:
            return "send_batch"
        case "POST", []:
            return "send" if resource in MESSAGE_RESOURCES else "start" if resource == "verify" else "create"
        case "GET", []:
            return "get" if resource == "test_clock" else "list"
        case "PATCH", [_]:
            return "reschedule" if resource in MESSAGE_RESOURCES else "update"
        case _, [_]:
            return {"GET": "get", "DELETE": "delete"}[method]
    return rest[1]


def _argument(name: str) -> str:
    return f"{name}_" if iskeyword(name) else name


def _client_code(base: str, function: str, arguments: list[str]) -> str:
    call = f"{function}({', '.join(arguments)})"
    if "\n" in call or len(call) > LINE_MAX:
        call = "\n".join([f"{function}(", *(f"{indent(argument, '    ')}," for argument in arguments), ")"])
    lines = ["from heliograph_client import Heliograph  # pip install ./clients/python, in a checkout", ""]
    lines.append(f'client = Heliograph(url="{base}")  # the key is in HELIOGRAPH_KEY')
    if function.endswith(PAGED_METHODS):
        lines += [f"for item in {call}:", "    print(item.raw)"]
    elif function.endswith((".delete", ".raw")):
        lines.append(call)
    else:
        lines += [f"result = {call}", "print(result.raw)"]
    return "\n".join(lines)


def _curl(method: str, url: str, body: Any, with_key: bool, headers: dict[str, str]) -> str:
    verb = "" if method == ("GET" if body is None else "POST") else f"-X {method} "
    parts = [f"curl -sS {verb}{shlex.quote(url)}"]
    if with_key:
        parts.append('-H "Authorization: Bearer $HELIOGRAPH_KEY"')
    parts += [f'-H "{name}: {value}"' for name, value in headers.items()]
    if body is not None:
        # JSON texts have no line breaks, so this indents only between values.
        text = json.dumps(body, ensure_ascii=False, indent=2).replace("\n", "\n  ")
        parts.append(f"-d {shlex.quote(text)}")
    return " \\\n  ".join(parts)


def _urllib(method: str, url: str, body: Any, with_key: bool, headers: dict[str, str]) -> str:
    """Return Python code that needs only the standard library."""
    lines = ["import json", *(["import os"] if with_key else []), "import urllib.request", "", "headers = {"]
    if with_key:
        lines.append('    "Authorization": "Bearer " + os.environ["HELIOGRAPH_KEY"],')
    lines += [*(f'    "{name}": "{value}",' for name, value in headers.items()), "}"]
    if not with_key and not headers:
        lines[-2:] = ["headers = {}"]
    data = ""
    if body is not None:
        lines.append(f"body = {_python_literal(body)}")
        data = ", json.dumps(body).encode()"
    lines += [
        f'request = urllib.request.Request("{url}"{data}, headers=headers, method="{method}")',
        "with urllib.request.urlopen(request) as response:",
        "    print(response.status, json.load(response))",
    ]
    return "\n".join(lines)


def _python_literal(value: Any) -> str:
    """Return a JSON value as a Python literal, with True, False and None."""
    if value is None or isinstance(value, bool):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False, indent=4)
    for json_word, python_word in (("true", "True"), ("false", "False"), ("null", "None")):
        text = text.replace(f": {json_word}", f": {python_word}")
    return text


def _node(method: str, url: str, body: Any, with_key: bool, headers: dict[str, str]) -> str:
    header_lines = [f'    "{name}": "{value}",' for name, value in headers.items()]
    if with_key:
        header_lines.insert(0, "    Authorization: `Bearer ${process.env.HELIOGRAPH_KEY}`,")
    lines = [f'const response = await fetch("{url}", {{']
    if method != "GET":
        lines.append(f'  method: "{method}",')
    if header_lines:
        lines += ["  headers: {", *header_lines, "  },"]
    if body is not None:
        text = json.dumps(body, ensure_ascii=False, indent=2).replace("\n", "\n  ")
        lines.append(f"  body: JSON.stringify({text}),")
    lines += ["});", "console.log(response.status, await response.json());"]
    if len(lines) == 3:
        lines[:2] = [f'const response = await fetch("{url}");']
    return "\n".join(lines)
