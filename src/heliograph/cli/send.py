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

PATHS = {"email": "/v1/emails", "sms": "/v1/sms", "whatsapp": "/v1/whatsapp"}
TIMEOUT_S = 30
URL, KEY = "HELIOGRAPH_URL", "HELIOGRAPH_KEY"  # environment variables, the same as for client libraries
LOCAL = "http://127.0.0.1:8700"


class _Stay(HTTPRedirectHandler):
    """Rejects redirects, which would send the API key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


# Ignores proxy settings of the environment, because the service is the operator's own.
open_url = build_opener(ProxyHandler({}), _Stay()).open


@click.command()
@click.argument("channel", type=click.Choice(list(PATHS)))
@click.option("--to", multiple=True, required=True, help="Recipient; for email it can be given several times.")
@click.option(
    "--key", required=True, envvar=KEY, show_envvar=True, metavar="TOKEN", help="The API key, or @FILE that holds it."
)
@click.option("--url", default=LOCAL, envvar=URL, show_envvar=True, show_default=True, help="The running service.")
@click.option("--template", "template_id", metavar="TPL", help="A template's id, tpl_….")
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the template.")
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
    """Send one message through a running service and print its answer.

    \b
    heliograph send email --key @key.txt --from hello@acme.test --to you@example.com \\
        --subject Hello --text "It works."
    heliograph send sms --key @key.txt --to +15005550006 --template tpl_otp --var code=1234
    """
    if channel != "email" and len(to) > 1:
        raise click.UsageError(f"--to: {channel} goes to one phone number.")
    body = {
        "to": list(to) if len(to) > 1 else to[0],
        "from": from_,
        "variables": dict(_pair(given) for given in variables) or None,
        **fields,
    }
    click.echo(post(url.rstrip("/") + PATHS[channel], read_token(key), body))


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals:
        raise click.UsageError(f"--var {given!r}: expected NAME=VALUE.")
    return name, value


def read_token(given: str) -> str:
    if given.startswith("@"):
        try:
            given = Path(given[1:]).read_text().strip()
        except OSError as error:
            raise click.ClickException(f"--key: {given[1:]} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise click.ClickException(f"--key: {given[1:]} is not a text file.") from None
    if parse_token(given) is None:
        raise click.ClickException("--key: this is not a whole token such as hk_…; was it cut off?")
    return given


def post(url: str, token: str, body: Mapping[str, Any]) -> str:
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url {url!r}: expected http:// or https://.")
    request = Request(
        url,
        json.dumps({name: value for name, value in body.items() if value is not None}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with open_url(request, timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        raise click.ClickException(refusal_of(error)) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise click.ClickException(f"{url} cannot be reached: {reason}. Is the service running?") from None


def refusal_of(answer: HTTPError) -> str:
    try:
        error = json.loads(answer.read())["error"]
        return f"{answer.code} {error['code']}: {error['message']}"
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return f"{answer.code} {answer.reason}: {answer.url} is not answered by Heliograph"
