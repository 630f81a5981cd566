"""Code examples of a request for curl, Python and Node; the API key is read from HELIOGRAPH_KEY."""

import json
import shlex
from typing import Any

LANGUAGES = {"curl": "curl", "python": "Python", "node": "Node"}
JSON_TYPE = "application/json"


def snippet(language: str, method: str, url: str, body: Any = None, *, with_key: bool = True) -> str:
    """Return code that sends the request. `language`: a key of LANGUAGES; `body`: a JSON value."""
    headers = {} if body is None else {"Content-Type": JSON_TYPE}
    return {"curl": _curl, "python": _python, "node": _node}[language](method, url, body, with_key, headers)


def _curl(method: str, url: str, body: Any, with_key: bool, headers: dict[str, str]) -> str:
    verb = "" if method == ("GET" if body is None else "POST") else f"-X {method} "
    parts = [f"curl -sS {verb}{shlex.quote(url)}"]
    if with_key:
        parts.append('-H "Authorization: Bearer $HELIOGRAPH_KEY"')
    parts += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    if body is not None:
        parts.append(f"-d {shlex.quote(json.dumps(body, ensure_ascii=False, indent=2))}")
    return " \\\n  ".join(parts)


def _python(method: str, url: str, body: Any, with_key: bool, headers: dict[str, str]) -> str:
    """Return Python code that uses only the standard library, so that nothing has to be installed."""
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
    """Return a JSON value as a Python literal: as JSON, but with True, False and None."""
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
