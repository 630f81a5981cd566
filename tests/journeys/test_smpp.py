"""SMS over SMPP with real processes: the service, and one or two scripted SMSCs."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import pytest

from tests.journeys.peers import Peer
from tests.journeys.phones import assert_charged, carrier, credit, ends, price, request, send, texting
from tests.service import Service, until

SMSC = "tests.carriers.smsc"
LONG = "A" * 200  # two parts

# An SMSC's behaviour, its country, a number there; the message's result, and whether it is charged.
CASES = {
    "receipt": (["--receipts", "delivered"], "GB", "+447700900123", "delivered", True),
    "bad receipt": (["--receipts", "failed"], "FR", "+33612345678", "failed", True),  # the carrier accepted the message
    "no receipt": (["--receipts", "none"], "ES", "+34612345678", "sent", True),
    "receipt twice": (["--receipts", "twice"], "IT", "+393123456789", "delivered", True),
    "older receipt last": (["--receipts", "reordered"], "NL", "+31612345678", "delivered", True),
    "failed, then delivered": (["--receipts", "late"], "SE", "+46701234567", "delivered", True),
    "receipt before the answer": (["--early"], "AT", "+436641234567", "delivered", True),
    "refused": (["--submit", "refuse"], "PL", "+48512345678", "failed", False),
    "throttled": (["--submit", "throttle,accept"], "BE", "+32470123456", "delivered", True),
    "silent, asked once more": (["--submit", "hang,accept"], "DK", "+4520123456", "delivered", True),
    "hung up, asked once more": (["--submit", "drop,accept"], "FI", "+358412345678", "delivered", True),
}
PHONE = CASES["receipt"][2]

SECRET = "canary-password"


def smpp(place: int, port: int, country: str = "*") -> str:
    login = {"system_id": "acme", "password": SECRET, "source_addr": "Default"}
    return carrier(place, "sms", "smpp", country, host="127.0.0.1", port=port, **login)


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ExitStack() as stack:
        peers = [(stack.enter_context(Peer(SMSC, *options)), country) for options, country, *_ in CASES.values()]
        folder = tmp_path_factory.mktemp("everywhere")
        carriers = [smpp(place, peer.port, country) for place, (peer, country) in enumerate(peers)]
        yield stack.enter_context(texting(folder, *carriers))


@pytest.mark.parametrize("case", CASES)
def test_smsc_response_and_receipt_decide_the_message_status(everywhere: Service, case: str) -> None:
    _, country, phone, status, charged = CASES[case]
    before = credit(everywhere)
    message = ends(everywhere, send(everywhere, phone), status)
    assert_charged(everywhere, before, price("sms", country) if charged else "0")
    senders = {event["detail"]["sender"] for event in message["events"] if event["type"] == "sms.sent"}
    assert senders == ({"ACME" if country == "GB" else "Default"} if charged else set())


def test_receipts_of_parts_and_receipts_sent_during_downtime_are_recorded(tmp_path: Path) -> None:
    """The SMSC stores undelivered receipts; after a restart, we still know its message ids."""
    with Peer(SMSC, "--receipts", "delivered") as smsc, texting(tmp_path, smpp(0, smsc.port)) as service:
        ids = [send(service, PHONE, parcel=LONG) for _ in range(5)]
        until(lambda: len(smsc.all("submit")) == 10)
        service.kill()
        service.start()
        for id_ in ids:
            ends(service, id_, "delivered")


def test_second_carrier_is_used_until_the_first_is_reachable_again(tmp_path: Path) -> None:
    with (
        Peer(SMSC) as first,
        Peer(SMSC) as second,
        texting(tmp_path, smpp(0, first.port), smpp(1, second.port)) as service,
    ):
        until(lambda: first.all("bound"))
        port = first.port
        first.stop()
        ids = [send(service, PHONE) for _ in range(8)]
        for id_ in ids:
            ends(service, id_, "delivered")
        shown = service.run("carriers", "--json").stdout
        assert '"out of reach"' in shown
        assert SECRET not in shown
        assert 'heliograph_carrier_reachable{carrier="smpp-0",channel="sms"} 0' in service.get("/metrics").raw.decode()
        first.start(port)

        def first_is_asked() -> bool:
            time.sleep(0.5)
            ids.append(send(service, PHONE))
            ends(service, ids[-1], "delivered")
            return bool(first.all("submit"))

        until(first_is_asked)
        assert len(first.all("submit") + second.all("submit")) == len(ids)


def test_unreachable_carriers_refuse_new_messages_and_send_queued_ones_later(tmp_path: Path) -> None:
    with (
        Peer(SMSC) as first,
        Peer(SMSC) as second,
        texting(tmp_path, smpp(0, first.port), smpp(1, second.port)) as service,
    ):
        ports = first.port, second.port
        first.stop()
        second.stop()
        ids: list[str] = []

        def refused() -> bool:
            answer = service.post("/v1/sms", request(PHONE))
            if answer.status == 202:
                ids.append(answer.json["id"])
            return answer.status == 503 and answer.code == "no_carrier_available"

        until(refused)
        assert ids
        assert {service.get(f"/v1/sms/{id_}").json["status"] for id_ in ids} == {"sending"}
        second.start(ports[1])
        for id_ in ids:
            ends(service, id_, "delivered")
        assert len(second.all("submit")) == len(ids)
        assert credit(service) == Decimal("25") - len(ids) * Decimal(price("sms", "GB"))


VALIDITY = """
[[teams]]
id = "team_acme"
[[teams.templates]]
id = "tpl_sms"
validity_minutes = 90
"""


def test_validity_of_code_and_template_is_sent_and_password_is_nowhere_in_plain_text(
    tmp_path: Path,
) -> None:
    with Peer(SMSC) as smsc, texting(tmp_path, smpp(0, smsc.port)) as service:
        ends(service, send(service, PHONE), "delivered")
        assert service.post("/v1/verify", {"to": PHONE}).json["status"] == "pending"
        (tmp_path / "validity.toml").write_text(VALIDITY)
        service.apply(tmp_path / "validity.toml")
        until(lambda: ends(service, send(service, PHONE), "delivered") and smsc.all("validity")[-1])
        told = smsc.all("validity")
        assert (told[:2], told[-1]) == (["", "000000001000000R"], "000000013000000R")
        service.stop()
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "carriers.toml":
            assert SECRET.encode() not in file.read_bytes(), file
