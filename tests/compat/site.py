"""A real Django site with django-anymail in this process: its webhook views check what our service posts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Any
from wsgiref.simple_server import make_server

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=["anymail"],
        ROOT_URLCONF="anymail.urls",
        SECRET_KEY="tests",
        USE_TZ=True,
    )
    django.setup()

from anymail.signals import inbound, tracking  # Django must be set up first
from django.core.wsgi import get_wsgi_application
from django.test import Client, override_settings


@contextmanager
def anymail(**anymail_settings: Any) -> Iterator[None]:
    """Set these settings of anymail."""
    with override_settings(ANYMAIL=anymail_settings):
        yield


@contextmanager
def listening(signal: Any = tracking, **anymail_settings: Any) -> Iterator[tuple[str, list[Any]]]:
    """Run the site with these settings of anymail on its own address; return the received events."""
    received = list[Any]()

    def receive(event: Any, **_: Any) -> None:
        received.append(event)

    server = make_server("127.0.0.1", 0, get_wsgi_application())
    thread = Thread(target=server.serve_forever)
    signal.connect(receive)
    thread.start()
    try:
        with anymail(**anymail_settings):
            yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        signal.disconnect(receive)


def track(service: str, body: bytes, headers: Mapping[str, str], about: str = "tracking") -> list[Any]:
    """Return what anymail's view for this service makes of a request. `about`: also `inbound`."""
    received, signal = list[Any](), {"tracking": tracking, "inbound": inbound}[about]

    def receive(event: Any, **_: Any) -> None:
        received.append(event)

    signal.connect(receive)
    try:
        content_type = headers["Content-Type"]
        answer = Client().post(f"/{service}/{about}/", body, content_type=content_type, headers=dict(headers))
        assert answer.status_code == 200, answer.content
    finally:
        signal.disconnect(receive)
    return received
