"""Carrier forms: generated from the setup file's tables, and parsed like the file."""

import ast
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
import pytest

import heliograph
from heliograph.domain.setup.carrier_form import form_inputs, form_values, parse_form, parse_kind
from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS, CarrierKind
from heliograph.domain.setup.setup_file import SetupError, parse_setup_file

HTTP: dict[str, str] = {
    "url": "https://api.example.com/v1",
    "headers": "Authorization: Bearer a:b\n\nContent-Type: application/json",
    "body": '{"to": "{{to}}"}',
    "accepted.status": "200, 202",
    "accepted.id": "$.id",
    "callback.delivered": "DELIVRD, DONE",
    "countries": "GB DE",
}


@pytest.mark.parametrize("kind", CARRIER_KINDS, ids="-".join)
def test_a_kind_is_described_once(kind: CarrierKind) -> None:
    """The carrier's options, the setup file's fields and the form's fields are the same; no other struct has them."""
    options = CARRIER_KINDS[kind]
    names = [item.encode_name for item in msgspec.structs.fields(options)]
    requested = form_inputs(kind)
    assert list(dict.fromkeys(item.name.partition(".")[0] for item in requested if item.name != "countries")) == sorted(
        names, key=lambda name: next(item.advanced for item in requested if item.name.partition(".")[0] == name)
    )
    text = f'[[carriers]]\nid = "c"\nchannel = "{kind[0]}"\nkind = "{kind[1]}"\ncolour = "red"'
    with pytest.raises(SetupError) as error:
        parse_setup_file(text, {}, supported=CARRIER_KINDS)
    assert str(error.value).endswith(f"enabled, priority, {', '.join(names)}")
    assert options.title and options.about and all(item.label for item in requested)


def test_options_are_described_in_one_file_alone() -> None:
    """A second struct with a kind's options would share most of its field names."""
    channels = Path(heliograph.__file__).parent / "carriers"
    kinds = [set(kind.__struct_fields__) for kind in CARRIER_KINDS.values() if len(kind.__struct_fields__) > 1]
    result = [
        node.name
        for path in channels.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        for names in kinds
        if 2 * len(names & {item.target.id for item in node.body if _is_field(item)}) > len(names)
    ]
    assert result == []


def _is_field(node: ast.stmt) -> TypeGuard[Any]:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def test_carrier_form_controls_match_the_field_types() -> None:
    relay = {item.name: item for item in form_inputs(("email", "smtp"))}
    assert [relay[name].control for name in ("host", "port", "tls", "password", "final")] == [
        *("text", "number", "choice", "secret", "checkbox")
    ]
    assert relay["tls"].options == ("none", "starttls", "tls")
    assert (relay["host"].required, relay["port"].required) == (True, False)
    assert "countries" not in relay
    http = {item.name: item for item in form_inputs(("sms", "http"))}
    assert [http[name].control for name in ("headers", "body", "accepted.status")] == ["lines", "text area", "list"]
    assert [http[name].secret for name in ("url", "headers", "body", "from")] == [True, True, True, False]


def test_carrier_form_and_setup_file_give_the_same_fields() -> None:
    filled = parse_form(("sms", "http"), HTTP)
    assert filled.errors == {}
    text = """[[carriers]]
id = "x"
channel = "sms"
kind = "http"
url = "https://api.example.com/v1"
headers = { Authorization = "Bearer a:b", Content-Type = "application/json" }
body = '{"to": "{{to}}"}'
accepted = { status = [200, 202], id = "$.id" }
callback = { delivered = ["DELIVRD", "DONE"] }
countries = ["GB", "DE"]
"""
    (carrier,) = parse_setup_file(text, {}, supported=CARRIER_KINDS).carriers
    assert filled.fields == carrier["options"] | {"countries": carrier["countries"]}
    assert form_values(("sms", "http"), filled.fields) == {
        name: HTTP[name].replace("GB DE", "GB, DE") for name in HTTP if name not in ("url", "headers", "body")
    }


def test_carrier_form_takes_limits_and_pools_as_toml() -> None:
    warmup = '{ from = "2026-12-01", days = 30, start = 50 }'
    form = {
        "source_ips": '["192.0.2.1", { address = "192.0.2.2", warmup = ' + warmup + " }]",
        "providers": 'google = { per_minute = 600, connections = 10 }\n"*" = { per_minute = 5 }',
        "pools": 'bulk = { source_ips = ["192.0.2.2"], overflow = "relay" }',
    }
    filled = parse_form(("email", "mx"), form)
    assert filled.errors == {}
    assert filled.fields["providers"] == {"google": {"per_minute": 600, "connections": 10}, "*": {"per_minute": 5}}
    shown = form_values(("email", "mx"), filled.fields)
    assert parse_form(("email", "mx"), shown).fields == filled.fields
    dated = {"source_ips": form["source_ips"].replace('"2026-12-01"', "2026-12-01")}
    assert parse_form(("email", "mx"), dated).fields == {"source_ips": filled.fields["source_ips"]}


@pytest.mark.parametrize(
    ("kind", "form", "wrong"),
    [
        (("email", "mx"), {"providers": "google"}, {"providers": "TOML"}),
        (("email", "mx"), {"providers": "gogle = {}"}, {"providers": "unknown provider"}),
        (("email", "mx"), {"source_ips": "[1"}, {"source_ips": "TOML"}),
        (("email", "smtp"), {}, {"host": "Required."}),
        (("email", "smtp"), {"host": "a\nb"}, {"host": "not a valid name"}),
        (("email", "smtp"), {"host": "x y"}, {"host": "not a valid name"}),
        (("email", "smtp"), {"host": "1.2.3"}, {"host": "IP address"}),
        (
            ("sms", "twilio"),
            {"account_sid": "AC", "auth_token": "t", "base_url": "https://u:p@a.test"},
            {"base_url": "user name or password"},
        ),
        (("email", "smtp"), {"host": "a", "port": "0"}, {"port": "from 1 to 65535"}),
        (("email", "smtp"), {"host": "a", "port": "x"}, {"port": "Expected a whole number."}),
        (("email", "smtp"), {"host": "a", "tls": "ssl"}, {"tls": "'starttls'"}),
        (("email", "mx"), {"helo": "-", "source_ips": "1.2.3"}, {"helo": "domain", "source_ips": "1.2.3"}),
        (("sms", "http"), HTTP | {"headers": "x"}, {"headers": "one per line"}),
        (("sms", "http"), HTTP | {"accepted.id": "id"}, {"accepted.id": "a path"}),
        (("sms", "http"), HTTP | {"accepted.status": "2xx"}, {"accepted.status": "whole number"}),
        (("sms", "http"), HTTP | {"countries": "Germany"}, {"countries": "ISO codes"}),
        (("sms", "http"), HTTP | {"url": "ftp://x"}, {"url": "https://"}),
        (("whatsapp", "cloud_api"), {"phone_number_id": "1"}, {"access_token": "Required."}),
    ],
)
def test_carrier_form_error_is_reported_per_field(
    kind: CarrierKind, form: dict[str, str], wrong: dict[str, str]
) -> None:
    errors = parse_form(kind, form).errors
    assert errors.keys() == wrong.keys()
    assert all(wrong[name] in errors[name] for name in wrong)


def test_carrier_form_errors_do_not_quote_secrets() -> None:
    form = HTTP | {"url": "ftp://example.com/KEY", "headers": "KEY\x01: KEY", "from": "x" * 99, "accepted.id": "KEY"}
    errors = parse_form(("sms", "http"), form).errors
    assert {"url", "headers"} <= errors.keys()
    assert not [name for name in ("url", "headers") if "KEY" in errors[name]]


def test_saved_secret_is_kept_when_empty_or_removed_on_request() -> None:
    relay = {"host": "a", "password": {"sealed": "…"}}
    remaining = parse_form(("email", "smtp"), {"host": "b", "forget-password": "yes", "forget-host": "yes"}, relay)
    assert (remaining.errors, remaining.removed_secrets) == ({}, frozenset({"password"}))
    twilio = {"account_sid": "AC", "auth_token": {"sealed": "…"}}
    assert parse_form(("sms", "twilio"), {"account_sid": "AC"}, twilio).errors == {}
    assert parse_form(("sms", "twilio"), {"account_sid": "AC", "forget-auth_token": "yes"}).errors


@pytest.mark.parametrize(
    ("kind", "before", "form", "typed_again"),
    [
        (("email", "smtp"), {"host": "a", "tls": "tls"}, {"host": "a", "tls": "tls", "username": "u"}, []),
        (("email", "smtp"), {"host": "a", "tls": "tls"}, {"host": "b", "tls": "tls"}, ["password"]),
        (("email", "smtp"), {"host": "a", "tls": "tls"}, {"host": "a", "tls": "none"}, ["password"]),
        (("email", "smtp"), {"host": "a"}, {"host": "a", "port": "26"}, ["password"]),
        (("email", "smtp"), {"host": "a"}, {"host": "b", "password": "new"}, []),
        (("sms", "twilio"), {"base_url": "https://a.test"}, {"account_sid": "AC"}, ["auth_token"]),
        (("sms", "smpp"), {"host": "a", "tls": False}, {"host": "a", "system_id": "s"}, []),
        (("sms", "http"), {}, {"from": "Acme"}, []),
        (("sms", "http"), {}, {"url": "https://b.test/"}, ["headers", "body"]),
    ],
)
def test_a_saved_secret_does_not_go_to_another_address(
    kind: CarrierKind, before: dict[str, str], form: dict[str, str], typed_again: list[str]
) -> None:
    names = {"smtp": ["password"], "smpp": ["password"], "twilio": ["auth_token"], "http": ["url", "headers", "body"]}
    saved = before | {name: {"sealed": "…"} for name in names[kind[1]]}
    assert list(parse_form(kind, form, saved).errors) == typed_again


@pytest.mark.parametrize("text", ["", "email", "email-fax", "fax-smtp", "sms-smtp"])
def test_carrier_kind_invalid_is_not_parsed(text: str) -> None:
    assert parse_kind(text) is None
    assert parse_kind("whatsapp-cloud_api") == ("whatsapp", "cloud_api")
