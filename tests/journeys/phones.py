"""SMS and WhatsApp as a user sends them: helpers shared by the journeys of the phone carriers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.service import PATIENCE_S, Service, until

# The simulator is disabled, and the team has its own sender ID in GB.
SETUP = """
[[carriers]]
id = "sim-sms"
channel = "sms"
kind = "simulator"
enabled = false

[[teams]]
id = "team_acme"
[[teams.sender_ids]]
country = "GB"
value = "ACME"
approved = true
"""
TEMPLATES = {"sms": "tpl_sms", "whatsapp": "tpl_whatsapp"}


def carrier(place: int, channel: str, kind: str, country: str = "", **options: Any) -> str:
    """Return a carrier's table of the setup file.

    Carriers are tried in order; one without countries serves all of them.
    """
    fields = {"id": f"{kind.replace('_', '-')}-{place}", "channel": channel, "kind": kind, "priority": place}
    written = fields | ({"countries": [country]} if country else {}) | options
    return "[[carriers]]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in written.items()) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)


@contextmanager
def texting(folder: Path, *carriers: str, port: int = 0) -> Iterator[Service]:
    """Start the service with these carriers."""
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data") as service:
        service.apply()
        setup = folder / "carriers.toml"
        setup.write_text("".join(carriers) + SETUP)
        service.apply(setup)
        service.start(port=port)
        yield service


def request(to: str, channel: str = "sms", parcel: str = "7") -> dict[str, Any]:
    return {"to": to, "template_id": TEMPLATES[channel], "variables": {"parcel": parcel}}


def send(service: Service, to: str, channel: str = "sms", parcel: str = "7") -> str:
    answer = service.post(f"/v1/{channel}", request(to, channel, parcel))
    assert answer.status == 202, answer.raw
    id_: str = answer.json["id"]
    return id_


def ends(service: Service, id_: str, status: str, seconds: float = PATIENCE_S) -> dict[str, Any]:
    channel = "whatsapp" if id_.startswith("wam_") else "sms"

    def found() -> dict[str, Any] | None:
        message: dict[str, Any] = service.get(f"/v1/{channel}/{id_}").json
        return message if message["status"] == status else None

    message: dict[str, Any] = until(found, seconds)
    return message


def price(channel: str, country: str) -> str:
    """Return the price in tests/setup.toml of a message with one segment."""
    if channel == "whatsapp":
        return "0.0300"
    return "0.0350" if country == "GB" else "0.0450"


def credit(service: Service) -> Decimal:
    """Return the available credit once nothing is on hold."""
    me = service.get("/v1/me").json
    assert me["held"] == "0.0000"
    return Decimal(me["credit"])


def assert_charged(service: Service, before: Decimal, amount: str) -> None:
    assert before - credit(service) == Decimal(amount)
