"""`heliograph send`: sends one message through a running service."""

import json
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import click

from heliograph.domain.setup.keys import parse_token

PATH_BY_CHANNEL = {"email": "/v1/emails", "sms": "/v1/sms", "whatsapp": "/v1/whatsapp"}
TIMEOUT_S = 30
URL_VARIABLE, KEY_VARIABLE = (
    "HELIOGRAPH_URL",
    "HELIOGRAPH_KEY",
)  # environment variables, the same as for client libraries
LOCAL_URL = "http://127.0.0.1:8700"


class NoRedirect(HTTPRedirectHandler):
    """Rejects redirects, which would send the API key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


# Ignores proxy settings of the environment, because the service is the operator's own.
open_url = build_opener(ProxyHandler({}), NoRedirect()).open


@click.command()
@click.argument("channel", type=click.Choice(list(PATH_BY_CHANNEL)))
@click.option("--to", multiple=True, required=True, help="Recipient; can be repeated for email.")
@click.option(
    "--key",
    required=True,
    envvar=KEY_VARIABLE,
    show_envvar=True,
    metavar="TOKEN",
    help="The API key, or @FILE that contains it.",
)
@click.option(
    "--url",
    default=LOCAL_URL,
    envvar=URL_VARIABLE,
    show_envvar=True,
    show_default=True,
    help="URL of the running service.",
)
@click.option("--template", "template_id", metavar="TPL", help="Template id, tpl_….")
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="Template variable; can be repeated.")
@click.option("--from", "from_", metavar="ADDRESS", help="The sender (email).")
@click.option("--subject", help="Subject (email without a template).")
@click.option("--text", help="Plain text (email without a template).")
@click.option("--html", help="HTML (email without a template).")
def send(
    channel: str,
    to: tuple[str, ...],
    key: str,
    url: str,
    variables: tuple[str, ...],
    from_: str | None,
    **fields: str | None,
) -> None:
    """Send one message through a running service and print the response.

    \b
    heliograph send email --key @key.txt --from hello@acme.test --to you@example.com \\
        --subject Hello --text "It works."
    heliograph send sms --key @key.txt --to +15005550006 --template tpl_otp --var code=1234
    """
    if channel != "email" and len(to) > 1:
        raise click.UsageError(f"--to: {channel} has exactly one recipient.")
    body = {
        "to": list(to) if len(to) > 1 else to[0],
        "from": from_,
        "variables": dict(_parse_variable(assignment) for assignment in variables) or None,
        **fields,
    }
    click.echo(post(url.rstrip("/") + PATH_BY_CHANNEL[channel], read_token(key), body))


def _parse_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--var {text!r}: expected NAME=VALUE.")
    return name, value


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


def post(url: str, token: str, body: Mapping[str, Any]) -> str:
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url {url!r}: expected http:// or https://.")
    request = Request(
        url,
        json.dumps({name: value for name, value in body.items() if value is not None}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with open_url(request, timeout=TIMEOUT_S) as response:
            return str(response.read().decode())
    except HTTPError as error:
        raise click.ClickException(error_text(error)) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise click.ClickException(f"{url} cannot be reached: {reason}. Is the service running?") from None


def error_text(response: HTTPError) -> str:
    try:
        error = json.loads(response.read())["error"]
        return f"{response.code} {error['code']}: {error['message']}"
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return f"{response.code} {response.reason}: {response.url} is not a Heliograph service"
