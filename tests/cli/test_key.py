import asyncio
import json
from pathlib import Path

from heliograph.bootstrap import open_store
from heliograph.domain.setup.keys import has_hash, parse_token
from heliograph.domain.setup.records import Key, KeyRestrictions
from heliograph.settings import Settings

from .conftest import Run


async def _key(token: str) -> Key:
    async with open_store(Settings()) as store:
        return store.setup.current.callers[parse_token(token) or ""].key


def test_a_minted_token_is_well_formed_and_not_stored(run: Run) -> None:
    minted = run("key", "mint")
    assert minted.code == 0
    assert parse_token(minted.out.removesuffix("\n"))
    assert "no such key" in run("key", "revoke", minted.out.strip()).err


def test_a_key_is_created_and_revoked(run: Run, example: str) -> None:
    run("apply", example)
    scopes = ("--scope", "send", "--scope", "manage")
    created = run("key", "create", "--team", "team_acme", "--name", "ci", "--domain", "ACME.test", *scopes, "--json")
    record = json.loads(created.out)
    token = record.pop("token")
    assert record == {"team": "team_acme", "name": "ci"}
    key = asyncio.run(_key(token))
    assert (key.name, key.domain, key.scopes, key.revoked) == ("ci", "acme.test", ("send", "manage"), False)
    assert has_hash(token, key.hash)

    assert run("key", "revoke", token).out == "key ci of team_acme is revoked\n"
    assert asyncio.run(_key(token)).revoked
    assert run("key", "revoke", key.id).out == "key ci of team_acme was already revoked\n"


def test_keys_are_listed_and_rotated(run: Run, example: str) -> None:
    run("apply", example)
    token = run("key", "create", "--team", "team_acme", "--name", "ci", "--domain", "acme.test").out.strip()
    run("key", "create", "--team", "team_acme", "--name", "short", "--expires", "2100-01-31")
    id_ = parse_token(token)
    assert (
        f"{id_}  team_acme  ci  send  acme.test  works  never used\n" in run("key", "list", "--team", "team_acme").out
    )
    new = json.loads(run("key", "rotate", token, "--json").out)
    assert (new["team"], new["name"]) == ("team_acme", "ci 2")
    keys = {key["name"]: key for key in json.loads(run("key", "list", "--json").out)["data"]}
    assert (keys["ci 2"]["id"], keys["ci 2"]["domain"]) == (parse_token(new["token"]), "acme.test")
    assert (keys["ci"]["state"], keys["ci 2"]["state"]) == ("expires", "works")
    assert keys["short"]["expires_at"] == "2100-01-31T23:59:59.000Z"
    assert "no such key" in run("key", "rotate", "none").err


def test_a_key_without_a_name_gets_a_generated_name(run: Run, example: str) -> None:
    run("apply", example)
    tokens = [run("key", "create", "--team", "team_acme").out.strip() for _ in range(2)]
    names = {asyncio.run(_key(token)).name for token in tokens}
    assert len(names) == 2
    assert asyncio.run(_key(tokens[0])).scopes == ("send",)


def test_invalid_keys_are_refused(run: Run, example: str) -> None:
    run("apply", example)
    for flags, message in (
        (("--team", "team_x"), "There is no team team_x. Known: team_acme"),
        (("--team", "team_acme", "--name", "server"), "Another key of the team has this name."),
        (("--team", "team_acme", "--name", "a\nb"), "Enter a name of up to 200 characters"),
        (("--team", "team_acme", "--domain", "not a domain"), "--domain 'not a domain' is not a domain"),
        (("--team", "team_acme", "--expires", "2020-01-31"), "Choose today or a future date"),
        (("--team", "team_acme", "--expires", "soon"), "'soon' does not match the format"),
    ):
        refused = run("key", "create", *flags)
        assert refused.code in (1, 2)
        assert message in refused.err


def test_a_platform_key_is_created_listed_rotated_and_revoked(run: Run, example: str) -> None:
    run("apply", example)
    created = json.loads(run("key", "create", "--platform", "--name", "siem", "--json").out)
    assert (created["team"], created["name"]) == (None, "siem")
    id_ = parse_token(created["token"])
    assert f"{id_}  platform  siem  operate  any domain  works  never used\n" in run("key", "list").out
    assert {"team": None, "id": id_}.items() <= json.loads(run("key", "list", "--json").out)["data"][0].items()
    assert str(id_) not in run("key", "list", "--team", "team_acme").out
    assert json.loads(run("key", "rotate", str(id_), "--json").out)["team"] is None
    assert run("key", "revoke", created["token"]).out == "key siem of the platform is revoked\n"
    assert "Another platform key has this name" in run("key", "create", "--platform", "--name", "siem").err


def test_a_platform_key_with_team_options_is_refused(run: Run) -> None:
    for flags in (["--team", "team_acme"], ["--scope", "send"], ["--domain", "acme.test"], ["--hook"]):
        assert run("key", "create", "--platform", *flags).code == 2
    assert run("key", "create").code == 2


def test_a_key_is_created_with_restrictions(run: Run, example: str, tmp_path: Path) -> None:
    run("apply", example)
    file = tmp_path / "agent.json"
    file.write_text('{"recipients": ["*@Example.com"], "per_day": 5, "spend_per_day": "1.50"}')
    created = run("key", "create", "--team", "team_acme", "--name", "agent", "--restrictions", str(file))
    key = asyncio.run(_key(created.out.strip()))
    assert key.restrictions == KeyRestrictions(recipients=("*@example.com",), per_day=5, spend_per_day=1_500_000)
    listed = {record["name"]: record for record in json.loads(run("key", "list", "--json").out)["data"]}
    shown = {"recipients": ["*@example.com"], "per_day": 5, "spend_per_day": "1.5000"}
    assert (listed["agent"]["restrictions"], listed["server"]["restrictions"]) == (shown, None)
    lines = run("key", "list").out
    assert "  agent  send (restricted)  any domain" in lines and "  server  send (restricted)" not in lines
    new = json.loads(run("key", "rotate", key.id, "--json").out)
    rotated = asyncio.run(_key(new["token"]))
    assert (rotated.restrictions, rotated.counts_as) == (key.restrictions, key.id)
    for text, message in (
        ('{"per_day": -1}', "restrictions.per_day: expected a whole number"),
        ('{"per_day": 1, "per_day": 2}', "per_day"),
        ("not JSON", "--restrictions"),
    ):
        file.write_text(text)
        refused = run("key", "create", "--team", "team_acme", "--name", "bad", "--restrictions", str(file))
        assert refused.code == 2 and message in refused.err
    assert run("key", "create", "--platform", "--restrictions", str(file)).code == 2
    assert "bad" not in run("key", "list").out
