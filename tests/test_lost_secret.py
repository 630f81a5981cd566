"""The service's secret was changed: what was sealed before does not open, and all that need it say so."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from heliograph.app import make_carrier, make_domains, make_pair, make_tools, signing_keys, webhook_secrets
from heliograph.bootstrap import WrongSecret, check_secret, make_secrets
from heliograph.carrier_failover import Handover
from heliograph.carriers.contract import Carrier, Carriers, NotReady, Parcel
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.circuit import MISSES_TO_OPEN
from heliograph.domain.delivery.outcome import Deferred, Outcome
from heliograph.domain.setup import records
from heliograph.domain.setup.carrier_kinds import sealed
from heliograph.domain.setup.plan import plan
from heliograph.domain.setup.setup_file import read_setup_file
from heliograph.domain.setup.snapshot import Setup, to_row, updated
from heliograph.encryption import CannotOpen, Sealer
from heliograph.manage.secret import replace as replace_secret
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.webhooks.policy.webhook import rotated, sealed_secret
from tests.clocks import TestClock
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

BEFORE, AFTER = Sealer(bytes(32)), Sealer(bytes([1] * 32))
NOW = 1_800_000_000_000
OLD, NEW = "whsec_" + "A" * 32, "whsec_" + "B" * 32
HOOK = records.Webhook(id="whk_1", team="team_a", url="https://a.test", secret=sealed_secret(BEFORE, "whk_1", OLD))
PARCEL = Parcel(message_id="sms_1", address="+14155550100", content=b"{}", attempt=0)
TWILIO = """
[[carriers]]
id = "twilio"
channel = "sms"
kind = "twilio"
account_sid = "AC00000000000000000000000000000000"
auth_token = "hunter2"
from = "+15005550006"
"""


def test_the_log_has_each_place_once() -> None:
    sealer = Sealer(bytes([2] * 32))
    with capture_logs() as logs:
        for place in ("one", "one", "two", "one"):
            with pytest.raises(CannotOpen):
                sealer.open(BEFORE.seal(b"x", place), place)
        with pytest.raises(CannotOpen):
            sealer.open("v1.A", "what was never sealed")
    assert [line["context"] for line in logs] == ["one", "two"]


async def test_a_carrier_puts_everything_off_and_says_why(store: Store, settings: Settings, clock: TestClock) -> None:
    options = sealed({"auth_token": "hunter2"}, lambda plain, field: BEFORE.seal(plain, f"carrier/twilio/{field}"))
    record = records.CarrierRecord(id="twilio", channel="sms", kind="twilio", options=options)
    secrets = make_secrets(settings)
    tools = make_tools(settings, secrets, store, clock, make_domains(settings, secrets, store, clock))
    handover = Handover(store, Carriers(lambda record: make_carrier(record, tools)), clock)
    await handover.carriers.keep([record])  # as a duty does every second
    outcome = await handover.ask(record, PARCEL)
    assert isinstance(outcome, Deferred) and outcome.unreachable  # the next carrier is asked
    assert "Apply the setup file with them again" in outcome.detail["text"]
    assert (await handover.carriers.get(record)).read_callback(None) is None  # type: ignore[arg-type]
    await handover.carriers.close()
    await tools.web.close()


def test_applying_the_file_again_seals_its_secrets_anew() -> None:
    file, setup = read_setup_file(TWILIO, {}, runnable=[("sms", "twilio")]), Setup()
    for vault, rows in ((BEFORE, 1), (AFTER, 1), (AFTER, 0)):
        made = plan(file, setup, 1, str, str, vault, (), make_secret=str, make_pair=make_pair, now=NOW)
        assert len(made.rows) == rows
        setup = updated(setup, made.rows, setup.version + 1)
    (carrier,) = setup.carriers
    text = carrier.options["auth_token"]["sealed"]
    assert msgspec.json.decode(AFTER.open(text, "carrier/twilio/auth_token")) == "hunter2"


def test_a_webhook_is_mended_by_rotating_it() -> None:
    with pytest.raises(ValueError, match="Rotate it"):
        webhook_secrets(AFTER, HOOK, NOW)
    mended = rotated(HOOK, NEW, NOW, AFTER)
    assert (webhook_secrets(AFTER, mended, NOW).secrets, mended.old_secret, mended.old_until) == ([NEW], None, 0)
    rotating = replace(mended, old_secret=BEFORE.seal(OLD.encode(), "webhook/whk_1/old"), old_until=NOW + 1)
    assert webhook_secrets(AFTER, rotating, NOW).secrets == [NEW]


async def test_mails_are_not_sent_unsigned_and_the_carrier_is_not_blamed(store: Store, clock: TestClock) -> None:
    domain = records.Domain(id="dom_a", team="team_a", name="a.test", brand="A", verified=True, approved=True)
    key = records.DkimKey(
        id="dom_a/h1",
        team="team_a",
        domain="dom_a",
        selector="h1",
        algorithm="ed25519-sha256",
        sealed=BEFORE.seal(b"pem", "dkim/dom_a/h1"),
        public="",
    )
    rows = [
        to_row("team", "team_a", records.TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        to_row("domain", "dom_a", domain, "team_a"),
        to_row("dkim_key", key.id, key, "team_a"),
    ]
    await set_up(store, rows=rows)
    keys_of = signing_keys(store, AFTER)
    assert [found.private for found in signing_keys(store, BEFORE)("a.test")] == [b"pem"]

    class Signing(Carrier):
        async def hand_over(self, parcel: Parcel) -> Outcome:
            keys_of("a.test")
            raise AssertionError("unsigned")

    handover = Handover(store, Carriers(lambda _: Signing()), clock)
    carrier = records.CarrierRecord(id="mx", channel="email", kind="mx")
    for _ in range(MISSES_TO_OPEN + 1):
        outcome: Any = await handover.ask(carrier, PARCEL)
        assert isinstance(outcome, Deferred) and not outcome.unreachable
        assert "Rotate them" in outcome.detail["text"]
    assert store.circuits.current == {}
    with pytest.raises(NotReady):
        keys_of("a.test")


# -- the database knows its secret ---------------------------------------------------------------------------------

ANOTHER = bytes([7] * 32)


async def test_a_database_goes_by_the_secret_that_it_met_first(store: Store, settings: Settings) -> None:
    await check_secret(store, make_secrets(settings))
    await check_secret(store, make_secrets(settings))
    with pytest.raises(WrongSecret, match="HELIOGRAPH_SECRET is not the master secret"):
        await check_secret(store, make_secrets(replace(settings, secret=ANOTHER)))
    (settings.data / "secret").unlink()
    with pytest.raises(WrongSecret, match="the master secret is gone.*heliograph secret replace"):
        await check_secret(store, make_secrets(settings))
    assert not (settings.data / "secret").exists()  # none was made in its place


async def test_another_secret_is_taken_when_told_so(store: Store, settings: Settings) -> None:
    await check_secret(store, make_secrets(settings))
    another = replace(settings, secret=ANOTHER)
    assert [await replace_secret(store, COMMAND_LINE, make_secrets(another).digest) for _ in range(2)] == [True, False]
    await check_secret(store, make_secrets(another))
    with pytest.raises(WrongSecret):
        await check_secret(store, make_secrets(settings))
    lines = await store.audit.lines(None)
    assert [line.action for line in lines] == ["secret.replace"]


async def test_a_database_of_an_older_version_takes_the_secret_that_is_here(store: Store, settings: Settings) -> None:
    """It knows no secret yet, and holds what one has sealed."""
    rows = [
        to_row("team", "team_a", records.TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        to_row("webhook", "whk_1", HOOK, "team_a"),
    ]
    await set_up(store, rows=rows)
    with pytest.raises(WrongSecret, match="gone"):
        await check_secret(store, make_secrets(settings))
    await check_secret(store, make_secrets(replace(settings, secret=ANOTHER)))
    with pytest.raises(WrongSecret):
        await check_secret(store, make_secrets(replace(settings, secret=bytes(32))))
