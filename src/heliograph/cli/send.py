"""`heliograph send`: sends one message through a running service."""

import json
from urllib.error import HTTPError

import click

from heliograph.cli.service_client import ServiceClient, error_text, with_service

PATH_BY_CHANNEL = {"email": "/v1/emails", "sms": "/v1/sms", "whatsapp": "/v1/whatsapp"}


@click.command()
@with_service
@click.argument("channel", type=click.Choice(list(PATH_BY_CHANNEL)))
@click.option("--to", multiple=True, required=True, help="Recipient; can be repeated for email.")
@click.option("--template", "template_id", metavar="TPL", help="Template id, tpl_….")
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="Template variable; can be repeated.")
@click.option("--from", "from_", metavar="ADDRESS", help="The sender (email).")
@click.option("--subject", help="Subject (email without a template).")
@click.option("--text", help="Plain text (email without a template).")
@click.option("--html", help="HTML (email without a template).")
def send(
    service: ServiceClient,
    channel: str,
    to: tuple[str, ...],
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
    content = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
    try:
        click.echo(service.call("POST", PATH_BY_CHANNEL[channel], content))
    except HTTPError as error:
        raise click.ClickException(error_text(error)) from None


def _parse_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--var {text!r}: expected NAME=VALUE.")
    return name, value
