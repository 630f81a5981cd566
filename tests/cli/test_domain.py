import json
from pathlib import Path

import dns.zone
import pytest

from .conftest import Run


def create_team(run: Run) -> None:
    Path("setup.toml").write_text('[[teams]]\nid = "team_new"\nname = "New"\n')
    assert run("apply", "setup.toml").code == 0


def test_a_domain_from_added_to_removed(run: Run) -> None:
    create_team(run)
    records = json.loads(run("domain", "add", "Shop.test", "--team", "team_new", "--json").out)["records"]
    assert [record["purpose"] for record in records].count("dkim") == 2
    for name in ("shop.test", "Shop.TEST"):
        assert json.loads(run("domain", "dns", name, "--json").out)["records"] == records
    assert run("domain", "brand", "shop.test", "Shop").out == "mail from shop.test is sent as Shop\n"
    (item,) = json.loads(run("domain", "list", "--team", "team_new", "--json").out)["data"]
    line = f"{item['id']}  team_new  shop.test  Shop  not verified, not approved\n"
    assert run("domain", "list").out == line
    assert run("domain", "add", "shop.test", "--team", "team_new", "--brand", "Other").code == 0
    assert "  Other  " in run("domain", "list").out
    assert run("domain", "remove", item["id"]).out == f"{item['name']} of team_new removed\n"
    assert run("domain", "list").out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "https://shop.test", "--team", "team_new"), "is not a domain such as"),
        (("add", "shop.test", "--team", "team_x"), "There is no team team_x."),
        (("brand", "none.test", "None"), "No team has the domain"),
        (("remove", "none.test"), "No team has the domain"),
    ],
)
def test_invalid_arguments_are_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    create_team(run)
    ended = run("domain", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err


def test_a_domain_that_can_send_cannot_be_removed(run: Run, example: str) -> None:
    run("apply", example)
    ended = run("domain", "remove", "acme.test")
    assert (ended.code, ended.out) == (1, "")
    assert "This domain can send" in ended.err


def test_zone_has_the_keys_and_the_consent_to_reports(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "zone.toml"
    file.write_text(
        '[platform]\ndkim_zone = "dkim.heliograph.test"\nmail_host = "mx.heliograph.test"\n[[teams]]\nid = "team_new"\n'
    )
    run("apply", str(file))
    records = json.loads(run("domain", "add", "shop.test", "--team", "team_new", "--json").out)["records"]
    targets = {record["value"] for record in records if record["type"] == "CNAME"}
    assert len(targets) == 4
    zone = dns.zone.from_text(run("domain", "zone").out, origin=".", check_origin=False, relativize=False)
    names = {name.to_text(omit_final_dot=True) for name in zone.nodes}
    assert "*._report._dmarc.mx.heliograph.test" in names
    assert len(names & targets) == 2
    keys = json.loads(run("domain", "zone", "--json").out)["records"]
    assert [record["type"] for record in keys] == ["TXT"] * 3
