"""Every failure reason has a cause with an explanation and advice, and every state has a title."""

import re
from typing import Any, get_args

import pytest

from heliograph.carriers.email import simulator as email_simulator
from heliograph.carriers.sms import twilio
from heliograph.carriers.sms.simulator import SmsSimulator
from heliograph.carriers.sms.smpp import receipt, status
from heliograph.carriers.whatsapp import cloud_api
from heliograph.carriers.whatsapp.simulator import WhatsappSimulator
from heliograph.domain.delivery.message_states import TRANSITIONS
from heliograph.domain.delivery.outcome import FORWARDING_FAILED, PROVIDER_SUPPRESSED, ConnectionFailure, LocalReason
from heliograph.domain.events import StoredEvent, event_data
from heliograph.domain.phones.carrier_codes import CAUSE_BY_CODE, CAUSE_BY_RECEIPT_STATE
from heliograph.domain.setup.records import Channel
from heliograph.inbound.policy import bounce_classifier
from heliograph.texts import explain
from heliograph.texts.explain import (
    CAUSES,
    GENERAL_ENHANCED_CODES,
    SPECIFIC_ENHANCED_CODES,
    STATUS_TEXTS,
    STATUS_TITLES,
    cause_of,
)

SENTENCE = re.compile(r"[A-Z].*[.]")


@pytest.mark.parametrize("name", CAUSES)
def test_a_cause_is_two_short_sentences(name: str) -> None:
    cause = CAUSES[name]
    assert cause.category in get_args(explain.Category) and cause.side in explain.SIDE_LABELS
    assert SENTENCE.fullmatch(cause.text) and SENTENCE.fullmatch(cause.advice)
    assert len(cause.text) <= 120 and len(cause.advice) <= 120


def test_all_reasons_have_a_cause() -> None:
    """Reasons from mail servers' texts, enhanced codes, this service, and the codes of every carrier."""
    said = {explain._CAUSE_BY_REASON.get(reason.name, reason.name) for _, reason in bounce_classifier._REASONS}
    said |= {*explain.RELAY_CAUSES.values(), "complained", FORWARDING_FAILED, PROVIDER_SUPPRESSED}
    ours = {*get_args(LocalReason), *get_args(ConnectionFailure), *(name for name, _ in explain._POLICY_PATTERNS)}
    codes = {cause for table in CAUSE_BY_CODE.values() for cause in table.values()}
    led_to = (
        said
        | ours
        | codes
        | {
            *SPECIFIC_ENHANCED_CODES.values(),
            *GENERAL_ENHANCED_CODES.values(),
            *CAUSE_BY_RECEIPT_STATE.values(),
            "unexplained",
            "policy",
        }
    )
    assert led_to == CAUSES.keys()  # every cause can occur, and every reason has a cause


def test_all_codes_of_carriers_are_known() -> None:
    assert CAUSE_BY_CODE["smpp"].keys() == {status.format_code(one) for one in status.STATUS_TABLE if one != status.ROK}
    words = {state for state, ours in twilio.STATE_BY_STATUS.items() if ours == "failed"}
    assert CAUSE_BY_CODE["twilio"].keys() == {*map(str, twilio.VERDICT_BY_CODE), *words}
    assert CAUSE_BY_CODE["cloud_api"].keys() == {*map(str, cloud_api.VERDICT_BY_CODE), "failed"}
    assert CAUSE_BY_RECEIPT_STATE.keys() == {
        state for state, (ours, _) in receipt.STATUS_BY_STATE_PREFIX.items() if ours == "failed"
    }
    scripts = (SmsSimulator.script, WhatsappSimulator.script)
    refused = [one.detail for script in scripts for one in script.refusals.values()]
    reports = [one.detail for script in scripts for all_ in script.reports_by_behaviour.values() for one in all_]
    said = [*refused, *(one for one in reports if one["code"] not in ("delivered", "read", "DELIVRD"))]
    assert CAUSE_BY_CODE["simulator"].keys() == {one["code"] for one in said}


@pytest.mark.parametrize(
    ("text", "enhanced", "cause"),
    [
        ("550 5.1.1 The email account that you tried to reach does not exist.", "5.1.1", "unknown_user"),
        ("550 5.7.26 This mail is blocked because the sender is unauthenticated", "5.7.26", "authentication"),
        ("550 5.7.1 Fails SPF check", "5.7.1", "authentication"),
        ("554 5.7.1 Client host [192.0.2.1] blocked using zen.spamhaus.org", "5.7.1", "blocklist"),
        ("550 5.7.1 This message is likely unsolicited mail", "5.7.1", "spam"),
        ("530 5.7.0 Must issue a STARTTLS command first", "5.7.0", "encryption"),
        ("550 5.7.1 Members only", "5.7.1", "policy"),
        ("452 4.2.2 The account is over quota", "4.2.2", "mailbox_full"),
        ("451 4.7.1 Greylisted, come back later", "4.7.1", "greylisted"),
        ("421 4.7.28 Too many messages", "4.7.28", "rate"),
        ("550 5.4.6", "5.4.6", "loop"),
        ("550 5.2.2", "5.2.2", "mailbox_full"),
        ("550 5.1.99", "5.1.99", "address_rejected"),
        ("552 5.3.4 too big", "5.3.4", "too_large"),
        ("mx.test accepts at most 100 bytes, and the mail has 200", "5.3.4", "too_large"),
        ("550", "", "unexplained"),
        ("571 no", "5.7", "policy"),
    ],
)
def test_a_reply_has_a_cause(text: str, enhanced: str, cause: str) -> None:
    assert cause_of("email", {"code": text[:3], "enhanced": enhanced, "text": text}) == cause


@pytest.mark.parametrize(
    ("text", "enhanced", "cause"),
    [
        ("the domain a.test does not exist or accepts no mail", "5.1.2", "unknown_host"),
        ("a.test accepts no mail (null MX)", "5.1.10", "unknown_host"),
        ("mx.test does not accept international addresses: it does not offer SMTPUTF8", "5.6.7", "utf8"),
        ("the address cannot be used in an SMTP command", "5.1.3", "bad_address"),
    ],
)
def test_local_mail_failure_has_a_cause(text: str, enhanced: str | None, cause: str) -> None:
    assert cause_of("email", {"code": None, "enhanced": enhanced, "text": text}) == cause


@pytest.mark.parametrize(
    ("channel", "detail", "cause"),
    [
        ("sms", {"carrier": "smpp", "code": "0x0000000b"}, "bad_number"),
        ("sms", {"carrier": "smpp", "state": "EXPIRED", "text": "expired"}, "given_up"),
        ("sms", {"carrier": "smpp", "code": "0x00000400"}, "unexplained"),
        ("sms", {"carrier": "twilio", "code": "21610"}, "opted_out"),
        ("sms", {"carrier": "http", "code": "422", "text": "no"}, "rejected"),
        ("sms", {"carrier": "http", "code": "401"}, "account"),
        ("sms", {"carrier": "http", "code": "503"}, "carrier_trouble"),
        ("sms", {"carrier": "http", "code": "429"}, "carrier_limit"),
        ("whatsapp", {"carrier": "cloud_api", "code": "131026"}, "no_whatsapp"),
        ("whatsapp", {"reason": "no_carrier", "text": "no carrier"}, "no_carrier"),
        ("email", {"reason": "quarantined"}, "quarantined"),
        ("email", {"reason": "expired", "text": "too late"}, "expired"),
        ("email", {}, "unexplained"),
    ],
)
def test_a_code_has_a_cause(channel: Channel, detail: dict[str, Any], cause: str) -> None:
    assert cause_of(channel, detail) == cause


@pytest.mark.parametrize(
    ("code", "text", "theirs", "relayed"),
    [
        ("451", "451 4.3.0 Temporary system problem", "temporary", "carrier_trouble"),
        ("452", "452 4.3.1 Insufficient system storage", "system", "carrier_trouble"),
        ("421", "421 4.7.28 Too many messages, slow down", "rate", "carrier_limit"),
        ("451", "451 4.7.1 Greylisted, come back later", "greylisted", "carrier_limit"),
        ("554", "554 5.7.1 Relaying denied", "policy", "carrier_policy"),
        ("535", "535 5.7.8 Authentication credentials invalid", "policy", "account"),
        ("550", "550", "unexplained", "rejected"),
        # Causes about the recipient or the mail are the same from every carrier.
        ("550", "550 5.1.1 no such user here", "unknown_user", "unknown_user"),
        ("452", "452 4.2.2 over quota", "mailbox_full", "mailbox_full"),
        ("550", "550 5.7.1 Fails SPF check", "authentication", "authentication"),
    ],
)
def test_a_relay_is_our_carrier_and_an_exchanger_theirs(code: str | None, text: str, theirs: str, relayed: str) -> None:
    enhanced = next(iter(re.findall(r"\d\.\d\.\d+", text)), None)
    detail = {"code": code, "enhanced": enhanced, "text": text}
    assert cause_of("email", detail | {"carrier": "mx"}) == theirs
    assert cause_of("email", detail | {"carrier": "smtp"}) == relayed


@pytest.mark.parametrize(
    ("trouble", "relayed"),
    [
        ("unreachable", "out_of_reach"),
        ("server_silent", "no_answer"),
        ("encryption", "carrier_encryption"),
        ("account", "account"),
        ("not_ready", "not_ready"),
    ],
)
def test_connection_failure_has_a_cause(trouble: ConnectionFailure, relayed: str) -> None:
    assert cause_of("email", {"carrier": "mx", "code": None, "trouble": trouble}) == trouble
    assert cause_of("email", {"carrier": "smtp", "code": None, "trouble": trouble}) == relayed


@pytest.mark.parametrize(
    ("reply", "enhanced", "cause"),
    [
        ("421 4.7.0 Try again later, closing connection", "4.7.0", "rate"),
        ("421", None, "rate"),
        ("421 4.7.0 [TSS04] Messages from 192.0.2.7 temporarily deferred", "4.7.0", "blocklist"),
        ("421 4.7.29 TLS is required", "4.7.29", "encryption"),
    ],
)
def test_pause_after_421_is_explained_by_its_reply(reply: str, enhanced: str | None, cause: str) -> None:
    text = f"mx.test was not contacted: it asked for a pause: {reply}"
    assert cause_of("email", {"carrier": "mx", "code": None, "enhanced": enhanced, "text": text}) == cause


def test_unreachable_relay_is_not_attributed_to_the_recipient() -> None:
    refused = {"carrier": "smtp", "host": "relay.test", "code": None, "trouble": "unreachable"}
    found = explain.explain("email", "sending", refused, deferred=True)
    assert found.side_label == "Our carrier's side" and "recipient" not in found.text
    assert found.fix_page == "carriers" and found.advice != explain.NO_ACTION_NEEDED


@pytest.mark.parametrize("name", [name for name, cause in CAUSES.items() if cause.side == "carrier"])
def test_carrier_failure_names_the_carrier_side_and_its_advice(name: str) -> None:
    cause = CAUSES[name]
    assert "recipient's" not in cause.text
    # Nobody is told that nothing has to be done
    assert not cause.needs_no_action or cause.advice == explain._MAY_ARRIVE_TWICE


@pytest.mark.parametrize(
    ("channel", "detail", "words"),
    [
        ("email", {"carrier": "smtp", "trouble": "unreachable"}, "Check host, port"),
        ("email", {"carrier": "smtp", "code": "535", "text": "535 5.7.8 bad credentials"}, "Check the credentials"),
        ("email", {"carrier": "smtp", "trouble": "encryption"}, "Choose the encryption"),
        ("email", {"carrier": "smtp", "code": "554", "text": "554 5.7.1 Relaying denied"}, "Set a user name"),
        ("email", {"carrier": "mx", "trouble": "unreachable"}, "port 25"),
        ("sms", {"carrier": "smpp", "text": "closed"}, "Check host, port"),
        ("sms", {"carrier": "http", "code": "401"}, "Check the credentials"),
        ("sms", {"carrier": "twilio", "code": "21211"}, explain._CHECK_NUMBER),
    ],
)
def test_carrier_failure_has_advice_for_the_operator(channel: Channel, detail: dict[str, Any], words: str) -> None:
    assert words in explain.carrier_advice(channel, detail)


def test_carrier_advice_belongs_to_an_existing_cause() -> None:
    assert explain._CARRIER_ADVICE.keys() <= CAUSES.keys()


@pytest.mark.parametrize(
    ("changes", "cause", "category"),
    [
        ({"detail": '{"code":"550","enhanced":"5.1.1","text":"550 5.1.1 no such user"}'}, "unknown_user", "recipient"),
        ({"type": "email.complained", "status": "complained", "detail": None}, "complained", "recipient"),
        ({"type": "sms.failed", "detail": '{"carrier":"twilio","code":"21610"}'}, "opted_out", "recipient"),
        ({"type": "whatsapp.failed", "detail": '{"reason":"no_carrier"}'}, "no_carrier", "carrier"),
        ({"type": "email.failed", "detail": '{"reason":"canceled","text":"it was"}'}, "canceled", "sender"),
        ({"type": "email.delivered", "status": "delivered"}, None, None),
        ({"type": "verification.failed", "record": None}, None, None),
    ],
)
def test_failure_event_contains_its_explanation(
    changes: dict[str, Any], cause: str | None, category: str | None
) -> None:
    news: dict[str, Any] = {"type": "email.bounced", "status": "bounced", "detail": None, "record": '{"id":"x"}'}
    facts: dict[str, Any] = {"id": "evt_1", "sequence": 1, "created_at": 0, "recipient": "a@b.test", "kind": "to"}
    event = StoredEvent(**facts | news | changes, previous_status=None, message_status=None, sandbox=0)
    own = event_data(explain.with_explanation(event)).get("explanation")
    assert (own and (own["cause"], own["category"])) == (cause and (cause, category))
    if own:
        assert own.keys() == {"cause", "category", "text", "advice", "retry_helps"}


@pytest.mark.parametrize(
    ("channel", "state"), [(channel, state) for channel, moves in TRANSITIONS.items() for state in moves]
)
@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("paused", [False, True])
def test_every_state_is_explained(channel: Channel, state: str, deferred: bool, paused: bool) -> None:
    found = explain.explain(channel, state, {}, deferred=deferred, paused=paused)
    assert found.title and SENTENCE.fullmatch(found.text)
    assert found.title in {title for _, title in STATUS_TITLES.values()}


def test_deferred_message_is_explained_as_retried_automatically() -> None:
    busy = {"code": "451", "enhanced": "4.7.1", "text": "451 4.7.1 Greylisted"}
    found = explain.explain("email", "sending", busy, deferred=True)
    assert (found.style, found.advice) == ("wait", explain.NO_ACTION_NEEDED)
    assert explain.explain("email", "sending", busy, deferred=True, paused=True).advice == explain.PAUSED_TEXT
    lacking = explain.explain("sms", "sending", {"reason": "no_carrier"}, deferred=True)
    assert lacking.fix_page == "carriers" and lacking.advice != explain.NO_ACTION_NEEDED  # waiting does not help


def test_permanent_failure_names_the_retry_period_and_cause() -> None:
    full = {"code": "452", "enhanced": "4.2.2", "text": "452 4.2.2 over quota", "expired": True}
    found = explain.explain("email", "failed", full)
    assert found.title == "Not delivered: retries exhausted"
    assert found.text == "The mailbox is full. We stopped retrying after 5 days."
    assert (
        "15 minutes"
        in explain.explain("sms", "failed", {"carrier": "smpp", "code": "0x00000014", "expired": True}).text
    )


def test_explanation_says_whether_a_resend_can_help() -> None:
    gone = explain.explain("email", "bounced", email_simulator.NO_SUCH_USER_DETAIL)
    assert (gone.cause, gone.retry_helps) == ("unknown_user", False)
    assert explain.explain("sms", "failed", {"carrier": "smpp", "state": "UNDELIV"}).retry_helps
    assert not explain.explain("email", "complained", email_simulator.COMPLAINT_DETAIL).retry_helps


def test_every_status_text_belongs_to_an_existing_status() -> None:
    told = {(channel, state) for channel, moves in TRANSITIONS.items() for state in moves} | {
        (None, state) for state in ("queued", "sending")
    }
    assert STATUS_TEXTS.keys() <= told
