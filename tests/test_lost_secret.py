"""After a change of the master secret, older secrets cannot be decrypted, and every user of one reports that."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from heliograph.app import (
    make_carrier,
    make_carrier_dependencies,
    make_domains,
    make_key_pair,
    signing_keys,
    webhook_secrets,
)
from heliograph.bootstrap import WrongSecret, check_secret, make_secrets
from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carrier, Carriers, NotReady, OutboundMessage
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.circuit import FAILURES_TO_OPEN
from heliograph.domain.delivery.outcome import Deferred, Outcome
from heliograph.domain.setup import records
from heliograph.domain.setup.carrier_kinds import encrypt_secrets
from heliograph.domain.setup.plan import plan
from heliograph.domain.setup.setup_file import parse_setup_file
from heliograph.domain.setup.snapshot import Setup, apply_rows, to_row
from heliograph.encryption import Cipher, DecryptionError
from heliograph.manage.secret import replace as replace_secret
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.webhooks.policy.webhook import encrypt_secret, rotate_secret
from tests.clocks import TestClock
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

BEFORE, AFTER = Cipher(bytes(32)), Cipher(bytes([1] * 32))
NOW = 1_800_000_000_000
OLD, NEW = "whsec_" + "A" * 32, "whsec_" + "B" * 32
HOOK = records.Webhook(id="whk_1", team="team_a", url="https://a.test", secret=encrypt_secret(BEFORE, "whk_1", OLD))
PARCEL = OutboundMessage(message_id="sms_1", address="+14155550100", content=b"{}", attempt=0)
TWILIO = """
[[carriers]]
id = "twilio"
channel = "sms"
kind = "twilio"
account_sid = "AC00000000000000000000000000000000"
auth_token = "hunter2"
from = "+15005550006"
"""


def test_undecryptable_secret_is_logged_once_per_context() -> None:
    sealer = Cipher(bytes([2] * 32))
    with capture_logs() as logs:
        for place in ("one", "one", "two", "one"):
            with pytest.raises(DecryptionError):
                sealer.decrypt(BEFORE.encrypt(b"x", place), place)
        with pytest.raises(DecryptionError):
            sealer.decrypt("v1.A", "what was never sealed")
    assert [line["context"] for line in logs] == ["one", "two"]


async def test_carrier_with_an_undecryptable_secret_defers_every_message_with_the_reason(
    store: Store, settings: Settings, clock: TestClock
) -> None:
    options = encrypt_secrets(
        {"auth_token": "hunter2"}, lambda plain, field: BEFORE.encrypt(plain, f"carrier/twilio/{field}")
    )
    record = records.CarrierRecord(id="twilio", channel="sms", kind="twilio", options=options)
    secrets = make_secrets(settings)
    dependencies = make_carrier_dependencies(
        settings, secrets, store, clock, make_domains(settings, secrets, store, clock)
    )
    failover = CarrierFailover(store, Carriers(lambda record: make_carrier(record, dependencies)), clock)
    await failover.carriers.sync([record])  # as a background job does every second
    outcome = await failover.send(record, PARCEL)
    assert isinstance(outcome, Deferred) and outcome.unreachable  # the next carrier is tried
    assert "Apply the setup file with them again" in outcome.detail["text"]
    assert (await failover.carriers.get(record)).parse_callback(None) is None  # type: ignore[arg-type]
    await failover.carriers.close()
    await dependencies.http.close()


def test_applying_the_setup_file_again_encrypts_its_secrets_with_the_new_key() -> None:
    file, setup = parse_setup_file(TWILIO, {}, supported=[("sms", "twilio")]), Setup()
    for vault, rows in ((BEFORE, 1), (AFTER, 1), (AFTER, 0)):
        created = plan(file, setup, 1, str, str, vault, (), make_secret=str, make_pair=make_key_pair, now=NOW)
        assert len(created.rows) == rows
        setup = apply_rows(setup, created.rows, setup.version + 1)
    (carrier,) = setup.carriers
    text = carrier.options["auth_token"]["sealed"]
    assert msgspec.json.decode(AFTER.decrypt(text, "carrier/twilio/auth_token")) == "hunter2"


def test_lost_webhook_secret_is_fixed_by_rotation() -> None:
    with pytest.raises(ValueError, match="Rotate it"):
        webhook_secrets(AFTER, HOOK, NOW)
    rotated = rotate_secret(HOOK, NEW, NOW, AFTER)
    assert (webhook_secrets(AFTER, rotated, NOW).secrets, rotated.old_secret, rotated.old_until) == ([NEW], None, 0)
    rotating = replace(rotated, old_secret=BEFORE.encrypt(OLD.encode(), "webhook/whk_1/old"), old_until=NOW + 1)
    assert webhook_secrets(AFTER, rotating, NOW).secrets == [NEW]


async def test_mails_are_not_sent_unsigned_and_the_carrier_is_not_blamed(store: Store, clock: TestClock) -> None:
    domain = records.Domain(id="dom_a", team="team_a", name="a.test", brand="A", verified=True, approved=True)
    key = records.DkimKey(
        id="dom_a/h1",
        team="team_a",
        domain="dom_a",
        selector="h1",
        algorithm="ed25519-sha256",
        sealed=BEFORE.encrypt(b"pem", "dkim/dom_a/h1"),
        public="",
    )
    rows = [
        to_row("team", "team_a", records.TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        to_row("domain", "dom_a", domain, "team_a"),
        to_row("dkim_key", key.id, key, "team_a"),
    ]
    await set_up(store, rows=rows)
    keys_of = signing_keys(store, AFTER)
    assert [result.private for result in signing_keys(store, BEFORE)("a.test")] == [b"pem"]

    class Signing(Carrier):
        async def send_message(self, message: OutboundMessage) -> Outcome:
            keys_of("a.test")
            raise AssertionError("unsigned")

    failover = CarrierFailover(store, Carriers(lambda _: Signing()), clock)
    carrier = records.CarrierRecord(id="mx", channel="email", kind="mx")
    for _ in range(FAILURES_TO_OPEN + 1):
        outcome: Any = await failover.send(carrier, PARCEL)
        assert isinstance(outcome, Deferred) and not outcome.unreachable
        assert "Rotate them" in outcome.detail["text"]
    assert store.circuits.current == {}
    with pytest.raises(NotReady):
        keys_of("a.test")


# -- the database knows its secret ---------------------------------------------------------------------------------

ANOTHER = bytes([7] * 32)


async def test_database_registers_the_first_master_secret(store: Store, settings: Settings) -> None:
    await check_secret(store, make_secrets(settings))
    await check_secret(store, make_secrets(settings))
    with pytest.raises(WrongSecret, match="HELIOGRAPH_SECRET is not the master secret"):
        await check_secret(store, make_secrets(replace(settings, secret=ANOTHER)))
    (settings.data / "secret").unlink()
    with pytest.raises(WrongSecret, match="the master secret is missing.*heliograph secret replace"):
        await check_secret(store, make_secrets(settings))
    assert not (settings.data / "secret").exists()  # no new secret was created


async def test_different_master_secret_is_accepted_with_the_option(store: Store, settings: Settings) -> None:
    await check_secret(store, make_secrets(settings))
    another = replace(settings, secret=ANOTHER)
    assert [await replace_secret(store, COMMAND_LINE, make_secrets(another).digest) for _ in range(2)] == [True, False]
    await check_secret(store, make_secrets(another))
    with pytest.raises(WrongSecret):
        await check_secret(store, make_secrets(settings))
    lines = await store.audit.list_rows(None)
    assert [line.action for line in lines] == ["secret.replace"]


async def test_database_without_a_registered_secret_registers_the_local_one(store: Store, settings: Settings) -> None:
    """Such a database has no registered secret, but contains encrypted data."""
    rows = [
        to_row("team", "team_a", records.TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        to_row("webhook", "whk_1", HOOK, "team_a"),
    ]
    await set_up(store, rows=rows)
    with pytest.raises(WrongSecret, match="missing"):
        await check_secret(store, make_secrets(settings))
    await check_secret(store, make_secrets(replace(settings, secret=ANOTHER)))
    with pytest.raises(WrongSecret):
        await check_secret(store, make_secrets(replace(settings, secret=bytes(32))))
