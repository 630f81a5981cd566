"""`heliograph listen`: polls a running service for events and forwards them to a local program."""

import threading
from collections.abc import Iterator
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

import click
import msgspec

from heliograph.cli.send import KEY, LOCAL, TIMEOUT_S, URL, open_url, read_token, refusal_of
from heliograph.domain.limits import SECOND_MS
from heliograph.runtime.clock import Clock
from heliograph.webhooks.policy import signature
from heliograph.webhooks.policy.webhook import SECRET_PREFIX, secret_size
from heliograph.webhooks.policy.webhook_url import parse_target

POLL_S = 1.0
AWAY_MAX_S = 30.0  # maximum retry delay while the service is unreachable
FORWARD_S = 15.0  # request timeout, the same as for webhooks
PAGE = 100

wait = threading.Event().wait  # takes seconds


class FeedPage(msgspec.Struct, frozen=True):
    has_more: bool
    data: list[msgspec.Raw]  # event bodies, unparsed, so that they are forwarded byte for byte


class HeardEvent(msgspec.Struct, frozen=True):
    id: str
    type: str
    created_at: str


class Away(Exception):
    """The service is temporarily unreachable; the message is the reason."""


@click.command()
@click.option(
    "--forward", required=True, metavar="URL", help="Where to forward to, such as http://127.0.0.1:3000/hook."
)
@click.option(
    "--key",
    required=True,
    envvar=KEY,
    show_envvar=True,
    metavar="TOKEN",
    help="An API key with the scope manage, or @FILE that holds it.",
)
@click.option("--url", default=LOCAL, envvar=URL, show_envvar=True, show_default=True, help="The running service.")
@click.option("--secret", metavar="WHSEC", help="What to sign with. Default: one is made and printed.")
@click.option("--after", metavar="EVT_ID", help="Start after this event. Default: with what happens from now on.")
def listen(forward: str, key: str, url: str, secret: str | None, after: str | None) -> None:
    """Forward a team's events to a program on this machine, signed as webhooks are, until Ctrl-C.

    The events are pulled, so nothing must be able to reach this machine. Each is forwarded once, in order, to the
    address as written: no redirects, no proxy, no retries. A service that is away is waited for.

    \b
    heliograph listen --forward http://127.0.0.1:3000/hook --key @key.txt
    """
    try:
        target = parse_target(forward).url
    except ValueError as error:
        raise click.UsageError(f"--forward: {error}.") from None
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url {url!r}: expected http:// or https://.")
    if secret is not None and not secret_size(secret):
        raise click.UsageError(f"--secret: expected {SECRET_PREFIX} and base64 after it.")
    clock = Clock()
    feed = Feed(url.rstrip("/"), read_token(key), after)
    click.echo(f"Forwarding events of {url} to {target}. Stop with Ctrl-C.")
    if secret is None:
        secret = signature.make_secret(clock.entropy(signature.ENTROPY_MIN))
        click.echo(f"Signed with {secret} (--secret keeps it for the next time).")
    try:
        for event, body in feed.events():
            click.echo(
                f"{event.created_at}  {event.id}  {event.type} → {_forwarded(target, secret, event, body, clock)}"
            )
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


class Feed:
    """A client of GET /v1/events that continues after the last event received."""

    def __init__(self, url: str, token: str, after: str | None) -> None:
        self._url = f"{url}/v1/events"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._after = after  # event id; "" starts at the oldest event, None after the newest

    def events(self) -> Iterator[tuple[HeardEvent, bytes]]:
        """Yield each event with its raw body; block while there are none or the service is unreachable."""
        pause = 0.0
        while True:
            try:
                page = self._next()
            except Away as reason:
                if not pause:
                    click.echo(f"{self._url} cannot be reached: {reason}. Trying again …", err=True)
                pause = min(max(2 * pause, POLL_S), AWAY_MAX_S)
                wait(pause)
                continue
            if pause:
                click.echo(f"{self._url} answers again", err=True)
                pause = 0.0
            for body in map(bytes, page.data):
                event = msgspec.json.decode(body, type=HeardEvent)
                yield event, body
                self._after = event.id
            if not page.has_more:
                wait(POLL_S)

    def _next(self) -> FeedPage:
        if self._after is None:
            newest = self._get("?order=newest&limit=1").data
            self._after = msgspec.json.decode(newest[0], type=HeardEvent).id if newest else ""
        return self._get(f"?limit={PAGE}" + (f"&after={quote(self._after)}" if self._after else ""))

    def _get(self, query: str) -> FeedPage:
        try:
            with open_url(Request(self._url + query, headers=self._headers), timeout=TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read(), type=FeedPage)
        except HTTPError as error:
            if error.code == 429 or error.code >= 500:
                raise Away(f"{error.code} {error.reason}") from None
            raise click.ClickException(refusal_of(error)) from None
        except (OSError, HTTPException) as error:
            raise Away(_reason(error)) from None


def _forwarded(target: str, secret: str, event: HeardEvent, body: bytes, clock: Clock) -> str:
    """Forward a signed event to `target`; return the response status or error, and the duration, as text."""
    start = clock.now()
    signed = signature.headers([secret], event.id, start // SECOND_MS, body)
    request = Request(target, body, {"Content-Type": "application/json", "User-Agent": "Heliograph-Listen/1", **signed})
    try:
        with open_url(request, timeout=FORWARD_S) as answer:
            became = str(answer.status)
    except HTTPError as error:
        error.close()
        became = str(error.code)
    except (OSError, HTTPException) as error:
        became = f"no answer ({_reason(error)})"
    return f"{became} in {clock.now() - start} ms"


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error or type(error).__name__)
