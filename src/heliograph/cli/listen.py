"""`heliograph listen`: polls a running service for events and forwards them to a local program."""

import threading
from collections.abc import Iterator
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

import click
import msgspec

from heliograph.cli.service_client import TIMEOUT_S, ServiceClient, error_text, open_url, with_service
from heliograph.domain.limits import SECOND_MS
from heliograph.runtime.clock import Clock
from heliograph.webhooks.policy import signature
from heliograph.webhooks.policy.webhook import SECRET_PREFIX, secret_size
from heliograph.webhooks.policy.webhook_url import parse_target

POLL_S = 1.0
RETRY_MAX_S = 30.0  # maximum delay between retries while the service is unreachable
FORWARD_TIMEOUT_S = 15.0  # the same as the timeout of a webhook delivery
PAGE = 100  # events per request

wait = threading.Event().wait  # waits for a number of seconds


class FeedPage(msgspec.Struct, frozen=True):
    has_more: bool
    data: list[msgspec.Raw]  # unparsed event bodies, forwarded byte for byte


class FeedEvent(msgspec.Struct, frozen=True):
    id: str
    type: str
    created_at: str


class ServiceUnreachable(Exception):
    """Raised if the service is temporarily unreachable; the message is the reason."""


@click.command()
@with_service
@click.option(
    "--forward", required=True, metavar="URL", help="URL to forward events to, such as http://127.0.0.1:3000/hook."
)
@click.option("--secret", metavar="WHSEC", help="Signing secret. Default: a generated secret, which is printed.")
@click.option("--after", metavar="EVT_ID", help="Start after this event. Default: only new events.")
def listen(service: ServiceClient, forward: str, secret: str | None, after: str | None) -> None:
    """Forward a team's events to a local program, signed like webhooks, until Ctrl-C.

    Events are polled, so this machine does not need to be reachable. Each event is forwarded once, in order: no
    redirects, no proxy, no retries. If the service is unreachable, the command keeps retrying.

    \b
    heliograph listen --forward http://127.0.0.1:3000/hook --key @key.txt
    """
    try:
        target = parse_target(forward).url
    except ValueError as error:
        raise click.UsageError(f"--forward: {error}.") from None
    if secret is not None and not secret_size(secret):
        raise click.UsageError(f"--secret: expected {SECRET_PREFIX} followed by base64.")
    clock = Clock()
    feed = Feed(service, after)
    click.echo(f"Forwarding events of {service.url} to {target}. Stop with Ctrl-C.")
    if secret is None:
        secret = signature.make_secret(clock.random_bytes(signature.ENTROPY_MIN))
        click.echo(f"Signed with {secret} (use --secret to keep it next time).")
    try:
        for event, body in feed.events():
            click.echo(f"{event.created_at}  {event.id}  {event.type} → {_forward(target, secret, event, body, clock)}")
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


class Feed:
    """A client of GET /v1/events that continues after the last event received."""

    def __init__(self, service: ServiceClient, after: str | None) -> None:
        self._url = f"{service.url}/v1/events"
        self._headers = {"Authorization": f"Bearer {service.token}"}
        self._after = after  # event id; "" starts with the oldest event, None with the next one

    def events(self) -> Iterator[tuple[FeedEvent, bytes]]:
        """Yield each event with its raw body. Blocks while there are none or the service is unreachable."""
        delay_s = 0.0
        while True:
            try:
                page = self._next_page()
            except ServiceUnreachable as reason:
                if not delay_s:
                    click.echo(f"{self._url} cannot be reached: {reason}. Retrying …", err=True)
                delay_s = min(max(2 * delay_s, POLL_S), RETRY_MAX_S)
                wait(delay_s)
                continue
            if delay_s:
                click.echo(f"{self._url} is reachable again", err=True)
                delay_s = 0.0
            for body in map(bytes, page.data):
                event = msgspec.json.decode(body, type=FeedEvent)
                yield event, body
                self._after = event.id
            if not page.has_more:
                wait(POLL_S)

    def _next_page(self) -> FeedPage:
        if self._after is None:
            newest_events = self._get("?order=newest&limit=1").data
            self._after = msgspec.json.decode(newest_events[0], type=FeedEvent).id if newest_events else ""
        return self._get(f"?limit={PAGE}" + (f"&after={quote(self._after)}" if self._after else ""))

    def _get(self, query: str) -> FeedPage:
        try:
            with open_url(Request(self._url + query, headers=self._headers), timeout=TIMEOUT_S) as response:
                return msgspec.json.decode(response.read(), type=FeedPage)
        except HTTPError as error:
            if error.code == 429 or error.code >= 500:
                raise ServiceUnreachable(f"{error.code} {error.reason}") from None
            raise click.ClickException(error_text(error)) from None
        except (OSError, HTTPException) as error:
            raise ServiceUnreachable(_reason(error)) from None


def _forward(target: str, secret: str, event: FeedEvent, body: bytes, clock: Clock) -> str:
    """Forward a signed event; return a line with the response status or error, and the duration."""
    started_ms = clock.now()
    signature_headers = signature.signature_headers([secret], event.id, started_ms // SECOND_MS, body)
    request = Request(
        target, body, {"Content-Type": "application/json", "User-Agent": "Heliograph-Listen/1", **signature_headers}
    )
    try:
        with open_url(request, timeout=FORWARD_TIMEOUT_S) as response:
            result = str(response.status)
    except HTTPError as error:
        error.close()
        result = str(error.code)
    except (OSError, HTTPException) as error:
        result = f"no response ({_reason(error)})"
    return f"{result} in {clock.now() - started_ms} ms"


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error or type(error).__name__)
