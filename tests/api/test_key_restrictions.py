"""Restricted keys on /v1 (contract 20): what is refused, in which order, and what remains allowed."""

import json
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from heliograph.domain.setup.keys import make_token, parse_token
from tests.api.sends import EMAIL, SMS, VERIFY, WELCOME, WHATSAPP, Body, assert_refused, without
from tests.service import TOKENS, Service

_NUMBERS = count()
SENDS = {"email": ("/v1/emails", EMAIL), "sms": ("/v1/sms", SMS), "whatsapp": ("/v1/whatsapp", WHATSAPP)}


def restricted(
    service: Service, creator: str = "ACME", scopes: tuple[str, ...] = ("send",), **restrictions: Any
) -> str:
    """Create a key with these restrictions and return its token."""
    body = {"name": f"restricted {next(_NUMBERS)} key", "scopes": scopes, "restrictions": restrictions}
    created = service.post("/v1/keys", body, key=creator)
    assert created.status == 201, created.raw
    assert created.json["restrictions"] == restrictions
    token: str = created.json["token"]
    return token


def test_key_sends_only_by_its_channels(shared_service: Service) -> None:
    key = restricted(shared_service, channels=["sms"])
    for channel, (path, body) in SENDS.items():
        for target, request in ((path, body), (f"{path}?dry_run=true", body), (f"{path}/batch", {"messages": [body]})):
            answer = shared_service.post(target, request, key=key)
            if channel == "sms":
                assert answer.status in (200, 202), answer.raw
            else:
                assert_refused(answer, 403, "channel_not_permitted")
    assert_refused(shared_service.post("/v1/verify", VERIFY, key=key), 403, "channel_not_permitted")
    assert_refused(shared_service.post("/v1/verify/vrf_x/resend", None, key=key), 403, "channel_not_permitted")
    assert shared_service.get("/v1/emails", key=key).status == 200
    check = shared_service.post("/v1/verify/vrf_x/check", {"code": "000000"}, key=key)
    assert_refused(check, 404, "verification_not_found")


def test_channel_is_refused_before_the_body_is_read(shared_service: Service) -> None:
    key = restricted(shared_service, channels=["sms"])
    refused = shared_service.post("/v1/emails", b"no JSON", key=key, headers={"Content-Type": "text/plain"})
    assert_refused(refused, 403, "channel_not_permitted")
    manager = restricted(shared_service, scopes=("manage",), channels=["sms"])
    assert_refused(shared_service.post("/v1/emails", EMAIL, key=manager), 403, "insufficient_scope")


def test_key_sends_only_from_its_senders(shared_service: Service) -> None:
    key = restricted(shared_service, senders=["*@news.acme.test", "hello@acme.test"])
    for sender in ("hello@acme.test", "Acme <HELLO@acme.test>", "any@news.acme.test"):
        assert shared_service.post("/v1/emails", EMAIL | {"from": sender}, key=key).status == 202
    refused = shared_service.post("/v1/emails", EMAIL | {"from": "other@acme.test"}, key=key)
    assert_refused(refused, 403, "sender_not_permitted", "from")
    unverified = shared_service.post("/v1/emails", EMAIL | {"from": "a@example.com"}, key=key)
    assert_refused(unverified, 403, "from_domain_unverified")


def test_key_sends_only_its_templates(shared_service: Service) -> None:
    key = restricted(shared_service, templates=["tpl_welcome", "tpl_sms"])
    assert shared_service.post("/v1/emails", WELCOME, key=key).status == 202
    assert shared_service.post("/v1/sms", SMS, key=key).status == 202
    direct = shared_service.post("/v1/emails", EMAIL, key=key)
    assert_refused(direct, 403, "template_not_permitted", "template_id")
    other = shared_service.post("/v1/whatsapp", WHATSAPP, key=key)
    assert_refused(other, 403, "template_not_permitted", "template_id")
    wrong_channel = shared_service.post("/v1/sms", SMS | {"template_id": "tpl_offer"}, key=key)
    assert_refused(wrong_channel, 403, "template_not_permitted")
    unknown = shared_service.post("/v1/sms", SMS | {"template_id": "tpl_none"}, key=key)
    assert_refused(unknown, 404, "template_not_found")


def test_key_sends_only_to_its_recipients(shared_service: Service) -> None:
    key = restricted(shared_service, recipients=["*@simulator.test", "+1500*"])
    for path, body in [*SENDS.values(), ("/v1/verify", VERIFY)]:
        assert shared_service.post(path, body, key=key).status == 202
    lists = {"to": ["delivered@simulator.test", "To@example.com"], "cc": ["cc@example.com"], "bcc": ["b@example.com"]}
    refused = shared_service.post("/v1/emails", EMAIL | lists, key=key)
    assert_refused(refused, 403, "recipient_not_permitted", "to")
    error = refused.json["error"]
    assert error["details"] == {"recipients": ["To@example.com", "cc@example.com", "b@example.com"]}
    assert "To@example.com, cc@example.com" in error["message"] and "b@example.com" not in error["message"]
    hidden = shared_service.post("/v1/emails", EMAIL | {"bcc": ["b@example.com"]}, key=key)
    assert_refused(hidden, 403, "recipient_not_permitted", "bcc")
    assert "b@example.com" not in hidden.json["error"]["message"]
    for path, body in (("/v1/sms", SMS), ("/v1/whatsapp", WHATSAPP), ("/v1/verify", VERIFY)):
        phone = shared_service.post(path, body | {"to": "+14155550123"}, key=key)
        assert_refused(phone, 403, "recipient_not_permitted", "to")
        assert phone.json["error"]["details"] == {"recipients": ["+14155550123"]}


def test_recipients_are_refused_before_the_sandbox_and_the_suppression_list(shared_service: Service) -> None:
    key = restricted(shared_service, recipients=["*@simulator.test"])
    suppressed = shared_service.post("/v1/emails", EMAIL | {"to": "gone@example.com"}, key=key)
    assert_refused(suppressed, 403, "recipient_not_permitted")
    broken = shared_service.post("/v1/sms", SMS | {"variables": {}, "to": "+14155550123"}, key=key)
    assert_refused(broken, 422, "missing_variable")


@pytest.mark.parametrize("field", ["channels", "senders", "recipients", "templates"])
def test_empty_list_permits_nothing_and_a_star_everything(shared_service: Service, field: str) -> None:
    entries: list[dict[str, Any]] = [{field: []}, {field: ["*"]}]
    nothing, everything = (restricted(shared_service, **restrictions) for restrictions in entries)
    assert shared_service.post("/v1/emails", EMAIL, key=nothing).status == 403
    assert shared_service.post("/v1/emails", EMAIL, key=everything).status == 202


def test_messages_of_a_batch_and_scheduled_ones_are_restricted(shared_service: Service) -> None:
    key = restricted(shared_service, recipients=["delivered@simulator.test"])
    other: Body = EMAIL | {"to": "bounced@simulator.test"}
    strict = shared_service.post("/v1/emails/batch", {"messages": [EMAIL, other]}, key=key)
    assert_refused(strict, 403, "recipient_not_permitted", "messages[1].to")
    permissive = {"messages": [EMAIL, other], "mode": "permissive"}
    entries = shared_service.post("/v1/emails/batch", permissive, key=key).json["data"]
    assert [entry.get("error", {}).get("code") for entry in entries] == [None, "recipient_not_permitted"]
    later = other | {"scheduled_at": "2100-01-01T00:00:00Z"}
    assert_refused(shared_service.post("/v1/emails", later, key=key), 400, "invalid_schedule")
    dry = shared_service.post("/v1/emails?dry_run=true", other, key=key)
    assert_refused(dry, 403, "recipient_not_permitted")


def test_sandbox_sender_is_checked_like_any_other(shared_service: Service) -> None:
    key = _created_by_command(shared_service, "team_sandbox", senders=["hello@acme.test"])
    refused = shared_service.post("/v1/emails", without(EMAIL, "from"), key=key)
    assert_refused(refused, 403, "sender_not_permitted", "from")


def _created_by_command(service: Service, team: str, **restrictions: Any) -> str:
    file = service.data / f"restrictions-{next(_NUMBERS)}.json"
    file.write_text(json.dumps(restrictions))
    done = service.run("key", "create", "--team", team, "--restrictions", str(file))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_restricted_key_manages_no_keys(shared_service: Service) -> None:
    key = restricted(shared_service, scopes=("send", "manage"), recipients=["*"])
    id_ = parse_token(key)
    refused = [
        shared_service.post("/v1/keys", {"name": "more"}, key=key),
        shared_service.post("/v1/keys", {"name": "same", "restrictions": {"recipients": ["*"]}}, key=key),
        shared_service.post(f"/v1/keys/{id_}/rotate", None, key=key),
        shared_service.post(f"/v1/keys/{parse_token(TOKENS['ACME_SEND'])}/rotate", None, key=key),
        shared_service.ask("DELETE", f"/v1/keys/{parse_token(TOKENS['ACME_SEND'])}", key=key),
    ]
    for answer in refused:
        assert_refused(answer, 403, "insufficient_scope")
    for method, path in (("POST", "api-keys"), ("PATCH", f"api-keys/{id_}")):
        assert shared_service.ask(method, f"/compat/resend/{path}", {"name": "more"}, key=key).status in (401, 403)
    assert shared_service.get("/v1/keys", key=key).status == 200


def test_rotation_keeps_the_restrictions(shared_service: Service) -> None:
    key = restricted(shared_service, channels=["sms"], per_day=5)
    rotated = shared_service.post(f"/v1/keys/{parse_token(key)}/rotate", None).json
    assert rotated["restrictions"] == {"channels": ["sms"], "per_day": 5}
    assert_refused(shared_service.post("/v1/emails", EMAIL, key=rotated["token"]), 403, "channel_not_permitted")


def test_invalid_restrictions_create_no_key(shared_service: Service) -> None:
    body = {"name": "never made", "restrictions": {"recipients": ["nobody"]}}
    refused = shared_service.post("/v1/keys", body)
    assert_refused(refused, 400, "invalid_request", "restrictions.recipients[0]")
    assert "never made" not in {key["name"] for key in shared_service.get("/v1/keys?limit=100").json["data"]}


def limits(service: Service, key: str) -> Any:
    return service.get("/v1/me", key=key).json["limits"]


def test_me_shows_restrictions_and_what_is_left(shared_service: Service) -> None:
    key = restricted(shared_service, per_hour=5, spend_per_day="1.0000")
    me = shared_service.get("/v1/me", key=key).json
    assert me["restrictions"] == {"per_hour": 5, "spend_per_day": "1.0000"}
    unused = {"left": 5, "limit": 5, "resets_at": None}
    spend = {"left": "1.0000", "limit": "1.0000", "resets_at": None}
    assert me["limits"] == {"per_hour": unused, "per_day": None, "spend_per_day": spend}
    assert shared_service.post("/v1/emails", EMAIL | {"cc": ["delivered+b@simulator.test"]}, key=key).status == 202
    used = limits(shared_service, key)["per_hour"]
    assert used["left"] == 3 and used["resets_at"] > "2026"
    unrestricted = shared_service.get("/v1/me").json
    assert (unrestricted["restrictions"], unrestricted["limits"]) == (None, None)


def test_limit_refuses_with_retry_after_and_counts_what_was_accepted(shared_service: Service) -> None:
    key = restricted(shared_service, per_day=3)
    replayed = {"Idempotency-Key": f"limited {next(_NUMBERS)}"}
    for _ in range(2):
        assert shared_service.post("/v1/emails", EMAIL, key=key, headers=replayed).status == 202
    assert shared_service.post("/v1/emails?dry_run=true", EMAIL, key=key).status == 200
    assert limits(shared_service, key)["per_day"]["left"] == 2
    three = EMAIL | {"to": ["delivered@simulator.test"] * 3}
    refused = shared_service.post("/v1/emails", three, key=key)
    assert_refused(refused, 429, "key_limit_reached")
    assert refused.json["error"]["details"] == {"limit": "per_day"}
    assert 86_000 < int(refused.headers["retry-after"]) <= 86_400
    assert shared_service.post("/v1/verify", VERIFY, key=key).status == 202
    assert shared_service.post("/v1/sms", SMS, key=key).status == 202
    assert_refused(shared_service.post("/v1/verify", VERIFY, key=key), 429, "key_limit_reached")
    suppressed = shared_service.post("/v1/emails", EMAIL | {"to": "gone@example.com"}, key=key)
    assert_refused(suppressed, 403, "recipient_suppressed")


def test_each_message_of_a_batch_counts(shared_service: Service) -> None:
    key = restricted(shared_service, per_hour=2)
    strict = {"messages": [EMAIL] * 3}
    assert_refused(shared_service.post("/v1/emails/batch", strict, key=key), 429, "key_limit_reached")
    assert limits(shared_service, key)["per_hour"]["left"] == 2
    entries = shared_service.post("/v1/emails/batch", strict | {"mode": "permissive"}, key=key).json["data"]
    assert [entry.get("error", {}).get("code") for entry in entries] == [None, None, "key_limit_reached"]


def test_rotated_key_shares_the_count(shared_service: Service) -> None:
    old = restricted(shared_service, per_day=2)
    new = shared_service.post(f"/v1/keys/{parse_token(old)}/rotate", None).json["token"]
    for key in (old, new):
        assert shared_service.post("/v1/emails", EMAIL, key=key).status == 202
    for key in (old, new):
        assert_refused(shared_service.post("/v1/emails", EMAIL, key=key), 429, "key_limit_reached")


def test_canceled_message_gives_its_spend_back(shared_service: Service) -> None:
    key = restricted(shared_service, spend_per_day="0.0500", per_day=2)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    later = {"to": "+447400123456", "template_id": "tpl_sms", "variables": {"parcel": "1"}, "scheduled_at": tomorrow}
    sent = shared_service.post("/v1/sms", later, key=key)
    assert sent.status == 202, sent.raw
    assert limits(shared_service, key)["spend_per_day"]["left"] == "0.0150"
    assert_refused(shared_service.post("/v1/sms", later, key=key), 429, "key_limit_reached")
    assert shared_service.post(f"/v1/sms/{sent.json['id']}/cancel", None, key=key).status == 200
    left = limits(shared_service, key)
    assert (left["spend_per_day"]["left"], left["per_day"]["left"]) == ("0.0500", 1)


def test_test_clock_moves_the_windows(shared_service: Service) -> None:
    tokens = {name: make_token(bytes([77, number]) * 32) for number, name in enumerate(("server", "agent"))}
    file = shared_service.data / "clocked.toml"
    file.write_text(
        '[[teams]]\nid = "team_limited"\nmode = "sandbox"\ntest_clock = true\n'
        f'[[teams.keys]]\nname = "agent"\ntoken = "{tokens["agent"]}"\n[teams.keys.restrictions]\nper_hour = 1\n'
    )
    shared_service.apply(file)
    mail = without(EMAIL, "from")
    assert shared_service.post("/v1/emails", mail, key=tokens["agent"]).status == 202
    refused = shared_service.post("/v1/emails", mail, key=tokens["agent"])
    assert_refused(refused, 429, "key_limit_reached")
    advance = {"advance_s": int(refused.headers["retry-after"])}
    assert shared_service.post("/v1/test-clock", advance, key=tokens["agent"]).status == 200
    assert shared_service.post("/v1/emails", mail, key=tokens["agent"]).status == 202
