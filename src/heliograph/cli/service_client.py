"""The HTTP client of commands that call a running service: `send`, `listen` and `api`."""

import functools
import json
import os
import tomllib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import click
import msgspec

from heliograph.domain.setup.keys import parse_token

TIMEOUT_S = 30
URL_VARIABLE, KEY_VARIABLE = "HELIOGRAPH_URL", "HELIOGRAPH_KEY"  # as in the client libraries
LOCAL_URL = "http://127.0.0.1:8700"
PROFILES = Path("heliograph") / "profiles.toml"  # below the user's configuration folder
PROFILE_HELP = "Use url and key of the table [NAME] in ~/.config/heliograph/profiles.toml."


class NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, which could send the API key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


# ignores proxy settings of the environment, because the service is the operator's own
open_url = build_opener(ProxyHandler({}), NoRedirect()).open


class ServiceClient(msgspec.Struct, frozen=True):
    url: str  # without a slash at the end
    token: str

    def call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the body of a 2xx response; raise HTTPError for other statuses."""
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": "application/json"} if body else {})
        try:
            with open_url(Request(self.url + path, body, headers, method=method), timeout=TIMEOUT_S) as response:
                return bytes(response.read())
        except HTTPError:
            raise
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            message = f"{self.url}{path} cannot be reached: {reason}. Is the service running?"
            raise click.ClickException(message) from None


def with_service(command: Callable[..., None]) -> Callable[..., None]:
    """Add --key, --url and --profile to a command, and pass it the resulting ServiceClient.

    Flags take precedence over the profile, and the profile over the environment.
    """

    @functools.wraps(command)
    def run(*, key: str | None, url: str | None, profile: str | None, **arguments: Any) -> None:
        values = _read_profile(profile) if profile else {}
        key = key or values.get("key") or os.environ.get(KEY_VARIABLE)
        url = url or values.get("url") or os.environ.get(URL_VARIABLE) or LOCAL_URL
        if not key:
            raise click.UsageError(f"Missing option '--key' (env var: '{KEY_VARIABLE}').")
        if not url.startswith(("http://", "https://")):
            raise click.UsageError(f"--url {url!r}: expected http:// or https://.")
        command(ServiceClient(url.rstrip("/"), read_token(key)), **arguments)

    for option in (
        click.option("--profile", metavar="NAME", help=PROFILE_HELP),
        click.option("--url", help=f"URL of the running service. Default: {LOCAL_URL}. [env: {URL_VARIABLE}]"),
        click.option("--key", metavar="TOKEN", help=f"The API key, or @FILE that contains it. [env: {KEY_VARIABLE}]"),
    ):
        run = option(run)
    return run


def _read_profile(name: str) -> dict[str, str]:
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / PROFILES
    try:
        profiles = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise click.ClickException(f"--profile: {path} cannot be read: {error}.") from None
    values = profiles.get(name)
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise click.ClickException(f"--profile: {path} has no table [{name}] with url and key.")
    return values


def read_token(value: str) -> str:
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text().strip()
        except OSError as error:
            raise click.ClickException(f"--key: {value[1:]} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise click.ClickException(f"--key: {value[1:]} is not a text file.") from None
    if parse_token(value) is None:
        raise click.ClickException("--key: this is not a complete token such as hk_…; was it truncated?")
    return value


def error_text(response: HTTPError, body: bytes | None = None) -> str:
    """Return the response's error as one line. `body`: content of the response, if already read."""
    try:
        error = json.loads(response.read() if body is None else body)["error"]
        return f"{response.code} {error['code']}: {error['message']}"
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return f"{response.code} {response.reason}: {response.url} is not a Heliograph service"
