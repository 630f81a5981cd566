"""Rotation of the master secret: all encrypted data is re-encrypted, and tokens derived from kept keys stay valid."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.bootstrap import check_secret, make_secrets, open_store
from heliograph.cli.secret import make_rotation
from heliograph.data_folder import Secrets
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup import records
from heliograph.domain.setup.carrier_kinds import encrypt_secrets
from heliograph.domain.setup.snapshot import to_row
from heliograph.encryption import DecryptionError
from heliograph.manage import secret as managing
from heliograph.manage.secret import replace as replace_secret
from heliograph.manage.secret import rotate
from heliograph.settings import Settings
from heliograph.storage import master_secret
from heliograph.storage.notices import ChatWebhook
from heliograph.storage.store import Store
from heliograph.webhooks.policy.webhook import encrypt_secret
from tests.manage.edges import dump_statement
from tests.setup_helpers import set_up
from tests.storage.conftest import asking
from tests.storage.samples import ENTRY, settle

pytestmark = pytest.mark.anyio

SOURCE = Path(__file__).parents[1] / "src/heliograph"
KEPT_KEYS = ("code_key", "envelope_key", "ownership_key", "erasure_key")
# Prefixes of contexts, and where their ciphertexts are; those of cookies and unconfirmed codes are not in the database.
PLACES = {"webhook", "dkim", "carrier", "totp", "chat", "keys", "hook"}
TEXT = re.compile(r"v1\.[A-Za-z0-9_-]{38,}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managing, "SETTLE_S", 0.0)
    monkeypatch.setattr(master_secret, "BATCH", 2)


@pytest.fixture
async def plain(store: Store, settings: Settings) -> dict[str, bytes]:
    """Store one secret of each kind; return context → plaintext."""
    secrets = make_secrets(settings, store)
    await check_secret(store, secrets)
    encrypt = secrets.cipher.encrypt
    hooks = [
        records.Webhook(id=f"whk_{n}", team="team_a", url="https://a.test", secret="") for n in range(3)
    ]  # fmt: skip
    hooks = [replace(hook, secret=encrypt_secret(secrets.cipher, hook.id, f"whsec_{hook.id}")) for hook in hooks]
    hooks[0] = replace(hooks[0], old_secret=encrypt(b"whsec_old", "webhook/whk_0/old"), old_until=1 << 60)
    key = records.DkimKey(
        id="dom_a/h1", team="team_a", domain="dom_a", selector="h1", algorithm="ed25519-sha256",
        sealed=encrypt(b"pem", "dkim/dom_a/h1"), public="",
    )  # fmt: skip
    options = encrypt_secrets(
        {"auth_token": "hunter2", "from": "+1500"}, lambda p, field: encrypt(p, f"carrier/twilio/{field}")
    )
    carrier = records.CarrierRecord(id="twilio", channel="sms", kind="twilio", options=options)
    hook = records.Key(
        id="abcdefghij", team="team_a", name="h", hash="", secret=encrypt(b"v1,whsec_", "hook/abcdefghij")
    )
    rows = [
        to_row("key", hook.id, hook, "team_a"),
        to_row("team", "team_a", records.TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        *(to_row("webhook", hook.id, hook, "team_a") for hook in hooks),
        to_row("dkim_key", key.id, key, "team_a"),
        to_row("carrier", "twilio", carrier, None),
    ]
    await set_up(store, rows=rows)
    person = await settle(store.people, "ada@example.com", "Ada", {})
    await store.people.set_totp(person.id, encrypt(b"totp", f"totp/{person.id}"), ["a"], 1, ENTRY)
    await store.notices.set_chat_webhook(
        ChatWebhook("team_a", encrypt(b"https://chat", "chat/team_a"), "chat", 1), ENTRY
    )
    return {
        **{f"webhook/whk_{n}": f"whsec_whk_{n}".encode() for n in range(3)},
        "webhook/whk_0/old": b"whsec_old",
        "dkim/dom_a/h1": b"pem",
        "hook/abcdefghij": b"v1,whsec_",
        "carrier/twilio/auth_token": b'"hunter2"',
        f"totp/{person.id}": b"totp",
        "chat/team_a": b"https://chat",
    }


async def rotated(store: Store, settings: Settings, tell: Any = lambda *_: None) -> tuple[int, Secrets]:
    before = make_secrets(settings, store)
    await store.secret_store.read()
    before.use_digest(store.secret_store.last_known.digest, store.secret_store.last_known.kept_keys)
    after = before.make_next()
    count = await rotate(store, COMMAND_LINE, make_rotation(before, after), tell)
    assert after.count_outdated(await store.secret_store.read_encrypted_texts()) == 0
    after.finish_rotation()
    return count, after


async def assert_all_is_under(store: Store, settings: Settings, secrets: Secrets, plain: dict[str, bytes]) -> None:
    alone = Secrets(settings.data / "elsewhere", secrets._master)
    texts = await store.secret_store.read_encrypted_texts()
    opened = {context: alone.cipher.decrypt(text, context) for context, text in texts.items()}
    assert {context: text for context, text in opened.items() if context != master_secret.KEPT_KEYS_CONTEXT} == plain
    async with asking(settings) as sql:
        rows = await sql(await dump_statement(sql, settings.database.startswith("sqlite")))
    result = set(TEXT.findall(str(rows)))
    assert result == set(texts.values()), "a sealed text that rotation does not know"


async def test_rotation_reencrypts_every_secret(store: Store, settings: Settings, plain: dict[str, bytes]) -> None:
    before = make_secrets(settings, store)
    events: list[tuple[int, int]] = []
    count, after = await rotated(store, settings, lambda *given: events.append(given))
    assert (count, events[-1][0]) == (len(plain), events[-1][1])
    await assert_all_is_under(store, settings, after, plain)
    assert before.digest != after.digest
    entries = [
        (line.action, line.detail) for line in await store.audit.list_rows(None) if line.action == "secret.rotate"
    ]
    assert entries == [("secret.rotate", f"done, re-encrypted: {count}"), ("secret.rotate", "begun")]
    assert (settings.data / "secret").stat().st_mode & 0o777 == 0o600
    assert not (settings.data / "secret.new").exists()


async def test_rotation_keeps_tokens_derived_from_old_keys_valid(
    store: Store, settings: Settings, plain: dict[str, bytes]
) -> None:
    """Codes, envelope addresses, DNS records and hashes of erased addresses stay valid, also after two rotations."""
    before = make_secrets(settings, store)
    keys, name = (
        {name: getattr(before, name) for name in KEPT_KEYS},
        store.suppressions.erased_name_of(1, "a@b.test"),
    )
    for _ in range(2):
        await rotated(store, settings)
        async with open_store(settings, store.clock, "seat/2") as fresh:
            after = make_secrets(settings, fresh)
            await check_secret(fresh, after)
            assert {name: getattr(after, name) for name in KEPT_KEYS} == keys
            assert fresh.suppressions.erased_name_of(1, "a@b.test") == name
    assert after.digest != before.digest


async def test_rotation_is_followed_by_a_running_process(
    store: Store, settings: Settings, plain: dict[str, bytes]
) -> None:
    running = make_secrets(settings, store)
    running.cipher.encrypt(b"x", "totp/x")
    await rotated(store, settings)
    texts = await store.secret_store.read_encrypted_texts()
    assert running.cipher.decrypt(texts["dkim/dom_a/h1"], "dkim/dom_a/h1") == b"pem"  # before it has followed
    late = running.cipher.encrypt(b"late", "totp/x")
    known = await store.secret_store.read()
    assert running.use_digest(known.digest, known.kept_keys)
    assert running.cipher.decrypt(late, "totp/x") == b"late"
    assert running.cipher.key_index(running.cipher.encrypt(b"new", "totp/x"), "totp/x") == 0
    assert running.digest == known.digest


async def test_rotation_interrupted_is_resumed(store: Store, settings: Settings, plain: dict[str, bytes]) -> None:
    def break_off(looked: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await rotated(store, settings, break_off)
    between = make_secrets(settings)
    await check_secret(store, between)  # a process that starts now
    known = await store.secret_store.read()
    assert between.use_digest(known.digest, known.kept_keys)
    counted = between.count_by_secret(await store.secret_store.read_encrypted_texts())
    assert sorted(counted.values())[0] > 0 and sum(counted.values()) == len(plain) + 1
    for context, text in (await store.secret_store.read_encrypted_texts()).items():
        between.cipher.decrypt(text, context)
    count, after = await rotated(store, settings)
    assert 0 < count < len(plain)
    assert after.digest == between.digest
    await assert_all_is_under(store, settings, after, plain)


async def test_rotation_keeps_concurrent_changes(store: Store, settings: Settings, plain: dict[str, bytes]) -> None:
    before = make_secrets(settings, store)
    after = before.make_next()
    turn = make_rotation(before, after)
    rows = [("team_a", "v1.another", "v1.fresh")]
    changed = await store.database.write(lambda tx: tx.run("reencrypt_chat_hooks", rows=rows))
    assert changed == []
    assert (await store.secret_store.read_encrypted_texts())["chat/team_a"] != "v1.fresh"
    assert turn.reencrypt("v1.AAAA", "chat/team_a") is None  # text that cannot be decrypted is unchanged


async def test_rotation_with_secrets_from_settings_uses_the_new_one(store: Store, settings: Settings) -> None:
    """Both secrets are configured: the database decides which one is current.

    After the rotation only the new one is needed.
    """
    old, new = bytes([3] * 32), bytes([4] * 32)
    await check_secret(store, make_secrets(replace(settings, secret=old)))
    both = replace(settings, secret=new, secret_old=old)
    secrets = make_secrets(both, store)
    await check_secret(store, secrets)
    await store.secret_store.read()
    secrets = make_secrets(both, store)
    assert secrets.digest == make_secrets(replace(settings, secret=old)).digest
    await rotated(store, both)
    await check_secret(store, make_secrets(replace(settings, secret=new)))
    assert not (settings.data / "secret").exists()
    again = make_secrets(both, store)
    assert await rotate(store, COMMAND_LINE, make_rotation(again, again.make_next()), print) == 0


async def test_replacing_the_master_secret_deletes_old_keys(
    store: Store, settings: Settings, plain: dict[str, bytes]
) -> None:
    await rotated(store, settings)
    other = make_secrets(replace(settings, secret=bytes([9] * 32)))
    assert await replace_secret(store, COMMAND_LINE, other.digest)
    known = await store.secret_store.read()
    assert known.kept_keys is None and other.use_digest(known.digest, known.kept_keys)
    with pytest.raises(DecryptionError):
        other.cipher.decrypt((await store.secret_store.read_encrypted_texts())["chat/team_a"], "chat/team_a")


def test_every_encryption_context_is_known() -> None:
    """A new context needs its column in known_secret.py or its record in domain/setup/encrypted_fields.py, and a
    row here.
    """
    result = set[str]()
    for path in SOURCE.rglob("*.py"):
        source = path.read_text("utf-8")
        for node in ast.walk(ast.parse(source)) if "encrypt(" in source else ():
            if isinstance(node, ast.Call) and len(node.args) == 2 and _name(node.func) in ("encrypt", "_encrypt"):
                match node.args[1]:
                    case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) | ast.Constant(value=str(text)):
                        result.add(text.partition("/")[0])
                    case ast.Name(id=name):
                        result.add(name)
    # Contexts passed on (`name`, `context`), and the constants of the provider's cookie and of the kept keys.
    assert result - {"name", "context", "AUTHORIZATION_COOKIE"} == PLACES - {"keys"} | {"KEPT_KEYS_CONTEXT"}


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
