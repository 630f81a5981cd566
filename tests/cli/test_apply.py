import asyncio
import json
from pathlib import Path

import pytest

from heliograph.bootstrap import open_store
from heliograph.domain.sending.pricing import Account
from heliograph.domain.setup.keys import has_hash, parse_token
from heliograph.domain.setup.records import CarrierRecord
from heliograph.domain.setup.snapshot import Setup
from heliograph.settings import Settings
from heliograph.webhooks.policy.webhook import secret_size
from tests.carriers.providers import CERT

from .conftest import Run

TEAM = '[[teams]]\nid = "team_a"\nname = "A"\ncredit = "2.50"\n[[teams.keys]]\nname = "server"\n'
HOOK = '[[teams.webhooks]]\nurl = "http://127.0.0.1:9/"\n'


async def stored(ref: int = 1) -> tuple[Setup, Account, list[str]]:
    async with open_store(Settings()) as store:
        suppressed = [row.email for row in await store.suppressions.list_page(ref, None, 100)]
        return store.setup.current, await store.ledger.get_account(ref), suppressed


def test_applying_twice_changes_nothing_the_second_time(run: Run, example: str) -> None:
    first = run("apply", example)
    assert first.code == 0
    assert "team team_acme: created\n" in first.out
    assert "token of key server of team_acme, shown only once: hk_" in first.out
    assert "secret of webhook http://127.0.0.1:9000/hooks of team_acme, shown only once: whsec_MfKQ" in first.out
    assert first.err.startswith("note: teams[0].webhooks[0].url: 127.0.0.1 is or resolves to a private")
    after = asyncio.run(stored())
    assert after[1].available == 25_000_000
    assert after[2] == ["gone@example.com"]

    second = run("apply", example)
    assert (second.code, second.out) == (0, "nothing changed\n")
    unchanged = asyncio.run(stored())
    assert (unchanged[0].records, *unchanged[1:]) == (after[0].records, *after[1:])


def test_json_output_has_keys_webhooks_and_changes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEAM + HOOK)
    result = json.loads(run("apply", "a.toml", "--json").out)
    token, secret = result["keys"][0].pop("token"), result["webhooks"][0].pop("secret")
    setup, account, _ = asyncio.run(stored())
    (hook,) = setup.teams["team_a"].webhooks
    assert result == {
        "keys": [{"team": "team_a", "name": "server"}],
        "changed": [
            "team team_a: created",
            "key server of team_a: created",
            "webhook http://127.0.0.1:9/ of team_a: created",
        ],
        "webhooks": [{"team": "team_a", "id": hook.id, "url": "http://127.0.0.1:9/"}],
        "problems": [],
    }
    assert secret_size(secret) == 24
    assert secret not in hook.secret
    assert has_hash(token, setup.callers[parse_token(token) or ""].key.hash)
    assert account.available == 2_500_000
    assert run("apply", "a.toml", "--json").out == '{"keys":[],"changed":[],"webhooks":[],"problems":[]}\n'


def test_files_may_begin_with_a_byte_order_mark(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.toml").write_text(TEAM, "utf-8-sig")
    assert run("template", "lint", "a.toml").err == "no problems\n"
    applied = run("apply", "a.toml")
    assert (applied.code, applied.out.splitlines()[0]) == (0, "team team_a: created")
    (tmp_path / "r.json").write_text('{"per_day": 5}', "utf-8-sig")
    assert run("key", "create", "--team", "team_a", "--name", "r", "--restrictions", "r.json").code == 0


def test_an_allowed_webhook_url_has_no_note(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE", "127.0.0.0/8")
    (tmp_path / "a.toml").write_text(TEAM + HOOK)
    assert (run("apply", "a.toml").code, run("apply", "a.toml").err) == (0, "")


def test_an_invalid_file_changes_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEAM + '[[teams.domains]]\nbrand = "A"\n')
    refused = run("apply", "a.toml")
    expected = "heliograph: a.toml: teams[0].domains[0].name: is missing\n"
    assert (refused.code, refused.out, refused.err) == (1, "", expected)
    assert asyncio.run(_records()) == 0


def test_only_the_given_carrier_fields_change(run: Run, tmp_path: Path) -> None:
    all_fields = (
        'id = "relay"\nchannel = "email"\nkind = "smtp"\nhost = "mail.test"\npassword = "canary"\npriority = 3\n'
    )
    (tmp_path / "a.toml").write_text(f"[[carriers]]\n{all_fields}")
    (tmp_path / "b.toml").write_text('[[carriers]]\nid = "relay"\nenabled = false\nport = 2525\n')
    assert run("apply", "a.toml").out == "carrier relay: created\n"
    before = asyncio.run(_carrier())
    assert run("apply", "b.toml").out == "carrier relay: changed (enabled, options)\n"
    assert run("apply", "b.toml").out == "nothing changed\n"
    after = asyncio.run(_carrier())
    assert (after.enabled, after.priority, after.options) == (False, 3, before.options | {"port": 2525})


RELAY = 'channel = "email"\nkind = "smtp"\nhost = "mail.test"\n'


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ('channel = "sms"\nkind = "http"\nurl = "http://sms.test/"\nbody = "{{who}}"', "{{who}} is not a placeholder"),
        (RELAY + 'provider = "sendgrid"\ncallback_key = "junk"', "callback_key is not the public key"),
        (RELAY + 'provider = "ses"\ncallback_topic = "junk"', "callback_topic 'junk' is not an SNS topic's ARN"),
        (RELAY + 'provider = "ses"\ncallback_cert = "/none.pem"', "callback_cert is neither a certificate"),
    ],
)
def test_a_carrier_that_cannot_be_built_is_refused(run: Run, tmp_path: Path, fields: str, reason: str) -> None:
    (tmp_path / "a.toml").write_text(f'[[carriers]]\nid = "x"\n{fields}')
    for options in ([], ["--plan"]):
        refused = run("apply", "a.toml", *options)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.startswith(f"heliograph: a.toml: carriers[0]: {reason}")
    assert asyncio.run(_records()) == 0


def test_a_carrier_that_can_no_longer_be_built_can_be_disabled(run: Run, tmp_path: Path) -> None:
    certificate = tmp_path / "sns.pem"
    certificate.write_text(CERT)
    (tmp_path / "a.toml").write_text(
        f'[[carriers]]\nid = "x"\n{RELAY}provider = "ses"\ncallback_cert = "{certificate}"\n'
    )
    assert run("apply", "a.toml").out == "carrier x: created\n"
    certificate.unlink()
    (tmp_path / "b.toml").write_text('[[carriers]]\nid = "x"\nenabled = false\n')
    assert run("apply", "b.toml").out == "carrier x: changed (enabled)\n"


async def _carrier() -> CarrierRecord:
    async with open_store(Settings()) as store:
        (carrier,) = store.setup.current.carriers
        return carrier


async def _records() -> int:
    async with open_store(Settings()) as store:
        return len(store.setup.current.records)


def test_the_file_can_come_from_the_standard_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.toml").write_text(TEAM)
    with (tmp_path / "a.toml").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run("apply", "-").out.startswith("team team_a: created\n")


def test_secrets_come_from_the_environment(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = run("key", "mint").out.strip()
    (tmp_path / "a.toml").write_text(TEAM + 'token = { env = "ACME_TOKEN" }')
    assert run("apply", "a.toml").code == 1
    monkeypatch.setenv("ACME_TOKEN", token)
    ended = run("apply", "a.toml", "--json")
    assert json.loads(ended.out)["keys"] == [{"team": "team_a", "name": "server", "token": None}]
    assert token not in ended.out + ended.err
    assert [key["state"] for key in json.loads(run("key", "list", "--json").out)["data"]] == ["works"]


def test_a_token_from_the_environment_is_not_printed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, secret = run("key", "mint").out.strip(), "whsec_" + "A" * 32
    monkeypatch.setenv("ACME_TOKEN", token)
    monkeypatch.setenv("ACME_SECRET", secret)
    hook = '\n[[teams.webhooks]]\nurl = "https://hooks.example.com/"\nsecret = { env = "ACME_SECRET" }'
    (tmp_path / "a.toml").write_text(TEAM + 'token = { env = "ACME_TOKEN" }' + hook)
    ended = run("apply", "a.toml")
    assert ended.code == 0, ended.err
    assert "team team_a: created" in ended.out
    assert token not in ended.out + ended.err and secret not in ended.out + ended.err


def test_delivery_is_paused_and_resumed(run: Run) -> None:
    for command, paused in (("pause", True), ("pause", True), ("resume", False)):
        assert run(command).code == 0
        assert asyncio.run(_paused())[0] is paused
    assert asyncio.run(_paused())[1] == ["delivery.resume", "delivery.pause"]


async def _paused() -> tuple[bool, list[str]]:
    """Return whether delivery is paused, and the audit entries about it, newest first."""
    async with open_store(Settings()) as store:
        return store.setup.current.platform.paused, [line.action for line in await store.audit.list_rows(None)]
