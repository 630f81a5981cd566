"""`heliograph import`: exports of other services, with a result for each row."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heliograph.cli.options import read_setup, with_store
from heliograph.domain.exports import resend
from heliograph.domain.exports.records import ExportedTemplate, edit_exported
from heliograph.manage.teams import get_team
from heliograph.settings import read_settings
from heliograph.storage.store import Store
from heliograph.storage.suppressions import FIRST_PAGE

from .conftest import Run

TEAM = ("--team", "team_acme")
SUPPRESSIONS = """id,email,origin,source_id,created_at
1,Ada@example.com,bounce,,2026-01-01
2,bob@example.com,complaint,,2026-01-01
3,ada@example.com,manual,,2026-01-01

4,nobody,bounce,,2026-01-01
"""
TEMPLATES: list[dict[str, Any]] = [
    {
        "id": "49a3999c-0ce1",
        "name": "Resend welcome",
        "subject": "Hi {{{NAME}}}",
        "html": "<p>Hi {{{NAME}}}</p>",
        "alias": "welcome-2",
        "from": "Acme <a@acme.test>",
        "reply_to": None,
        "variables": [{"key": "NAME", "type": "string", "fallback_value": "you"}],
    },
    {"id": "4b", "name": "Broken", "subject": "{{#if x}}", "html": "<p>Hi</p>"},
    {"id": "4c", "name": "Wordless", "alias": "wordless", "published_at": None},
]


def lines(run: Run, *files: str, service: str = "resend", code: int = 0) -> list[tuple[int, str, str, str]]:
    result = run("import", service, *files, *TEAM, "--json")
    assert result.code == code, result.err
    outcomes = map(json.loads, result.out.splitlines())
    return [(outcome["number"], outcome["kind"], outcome["text"], outcome["outcome"]) for outcome in outcomes]


def record(id_: str) -> Any:
    """Return a stored template or layout."""
    kind = "layout" if id_.startswith("lay_") else "template"
    return json.loads(msgspec.json.encode(read_setup(read_settings({})).records[kind, id_]))


def suppressions() -> dict[str, str]:
    """Return address → reason."""

    async def read(store: Store) -> dict[str, str]:
        ref = get_team(store.setup.current, "team_acme").record.ref
        page = await store.suppressions.search(ref, "", FIRST_PAGE, limit=100)
        return {row.shown_address: row.reason for row in page.rows}

    return with_store(read_settings({}), "", read)


@pytest.fixture(autouse=True)
def _team(run: Run, example: str) -> None:
    run("apply", example)


def test_suppressions_are_imported_with_a_result_per_line(run: Run) -> None:
    Path("s.csv").write_text(SUPPRESSIONS)
    first = [
        (2, "suppression", "Ada@example.com", "added"),
        (3, "suppression", "bob@example.com", "added"),
        (4, "suppression", "ada@example.com", "left out: the same as line 2"),
        (6, "suppression", "nobody", "left out: not an email address"),
    ]
    assert lines(run, "s.csv") == first
    assert [outcome for *_, outcome in lines(run, "s.csv")][:2] == ["already on the list"] * 2
    assert suppressions()["bob@example.com"] == "complaint"


def test_contacts_are_not_imported(run: Run) -> None:
    Path("c.csv").write_text("id,email,unsubscribed\n1,a@example.com,false\n2,b@example.com,true\n")
    assert lines(run, "c.csv") == [
        (2, "", "a@example.com", "left out: the contact has not unsubscribed"),
        (3, "suppression", "b@example.com", "added"),
    ]


def test_domains_and_templates_are_imported_with_a_result_per_record(run: Run) -> None:
    domains = [{"id": "d1", "name": "moved.test", "status": "verified", "region": "eu-west-1"}, {"name": "no domain."}]
    Path("d.json").write_text(json.dumps({"object": "list", "has_more": False, "data": domains}))
    Path("t.jsonl").write_text("\n".join(map(json.dumps, TEMPLATES)))
    outcomes = lines(run, "d.json", "t.jsonl")
    assert [outcome[:3] for outcome in outcomes] == [
        (1, "domain", "moved.test"),
        (2, "domain", "no domain."),
        (1, "template", "Resend welcome"),
        (2, "template", "Broken"),
        (3, "", "Wordless"),
    ]
    assert outcomes[0][3].startswith("added as dom_") and "is not a domain" in outcomes[1][3]
    assert outcomes[2][3] == "49a3999c-0ce1 is tpl_49a3999c_0ce1 now" and outcomes[3][3].startswith("left out: subject")
    assert "has no content" in outcomes[4][3]
    template = record(outcomes[2][3].split()[2])
    assert (template["subject"], template["variables"]) == ("Hi {{customer.name}}", ["name"])
    assert "status" not in template  # published
    assert (template["alias"], template["sender"], template["fallback"]) == (
        "welcome-2",
        "Acme <a@acme.test>",
        {"name": "you"},
    )
    repeated = lines(run, "d.json", "t.jsonl")
    assert (repeated[0][3], repeated[2][3][:13]) == ("already there", "already there")


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"\xff", "not UTF-8"),
        (b"email\n", "no records"),
        (b"[1]", "Record 1 is not an object"),
        (b'{"email":"a@b.test"}\n{', "Line 2 is not JSON"),
        (b"[" * 100_000, "Line 1 is not JSON"),
    ],
)
def test_an_unreadable_file_changes_nothing(run: Run, file: bytes, why: str) -> None:
    Path("good.csv").write_text("email\nc@example.com\n")
    Path("bad").write_bytes(file)
    result = run("import", "resend", "good.csv", "bad", *TEAM)
    assert (result.code, why in result.err) == (1, True)
    assert "c@example.com" not in suppressions()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"alias": "a\nb"}, "alias: Must be one line of at most 200 characters."),
        ({"alias": "a" * 201}, "alias: Must be one line of at most 200 characters."),
        ({"from": "nobody"}, "sender: 'nobody' is not an address. Enter one such as Acme <hello@acme.test>."),
        ({"reply_to": ["a@acme.test", "b@"]}, "reply_to: 'b@' is not an address. Enter one such as help@acme.test."),
        ({"reply_to": ["a@acme.test"] * 11}, "reply_to: There are 11 addresses; the maximum is 10."),
        (
            {"variables": [{"key": "X", "fallback_value": "x" * 5000}]},
            "variables: At most 100 fallbacks of at most 4,096 characters each are allowed.",
        ),
    ],
)
def test_imported_template_fields_are_validated(fields: dict[str, Any], why: str) -> None:
    parsed = resend.convert_row(TEMPLATES[0] | fields)
    assert isinstance(parsed, ExportedTemplate)
    assert [f"{field}: {error}" for field, error in edit_exported(parsed, "tpl_1", "team_1").errors.items()] == [why]


def test_skipping_every_row_is_an_error(run: Run) -> None:
    twice = [TEMPLATES[0] | {"id": id_, "name": id_, "alias": "once"} for id_ in ("6a", "6b")]
    Path("twice.json").write_text(json.dumps(twice))
    Path("none.json").write_text(json.dumps(TEMPLATES[1:]))
    result = run("import", "resend", "twice.json", "none.json", *TEAM)
    assert (result.code, "alias: tpl_6a has it already" in result.out) == (0, True)
    result = run("import", "resend", "none.json", *TEAM)
    assert (result.code, result.err) == (1, "heliograph: Every row was skipped: nothing was imported.\n")


def test_import_report_is_printed_as_text(run: Run) -> None:
    Path("one.csv").write_text("email\nd@example.com\n")
    assert run("import", "resend", "one.csv", *TEAM).out == "one.csv:2  suppression  d@example.com  added\n"
    assert (
        "'mailgun' is not one of 'postmark', 'resend', 'sendgrid', 'twilio'"
        in run("import", "mailgun", "one.csv", *TEAM).err
    )
    assert "There is no team" in run("import", "resend", "one.csv", "--team", "team_none").err


# -- Postmark ----------------------------------------------------------------------------------------------------------

LINES = "{{#if name}}Hi {{name}}{{/if}}{{#each items}}{{title}} {{../currency}}{{/each}}{{{note}}}"
POSTMARK: dict[str, list[dict[str, Any]]] = {
    "Suppressions": [
        {"EmailAddress": "hard@example.com", "SuppressionReason": "HardBounce", "Origin": "Recipient"},
        {"EmailAddress": "spam@example.com", "SuppressionReason": "SpamComplaint", "Origin": "Recipient"},
        {"EmailAddress": "hand@example.com", "SuppressionReason": "ManualSuppression", "Origin": "Customer"},
    ],
    "Bounces": [
        {"ID": 1, "Type": "HardBounce", "Email": "dead@example.com", "Inactive": True, "Name": "Hard bounce"},
        {"ID": 2, "Type": "SoftBounce", "Email": "full@example.com", "Inactive": False, "Name": "Soft bounce"},
    ],
    "Domains": [{"ID": 3, "Name": "moved.test", "DKIMVerified": True}],
    "SenderSignatures": [{"ID": 4, "Domain": "sender.test", "EmailAddress": "a@sender.test", "Confirmed": True}],
    "Templates": [
        {"TemplateId": 5, "Name": "Welcome!", "Alias": "welcome-v2", "Subject": "Hi {{name}}", "TextBody": "{{name}}"},
        {"TemplateId": 7, "Name": "Framed", "LayoutTemplate": "frame", "Subject": "A", "HtmlBody": LINES},
        {"TemplateId": 6, "Name": "Frame", "Alias": "frame", "TemplateType": "Layout", "HtmlBody": "{{{@content}}}"},
        {"TemplateId": 9, "Name": "Alone", "LayoutTemplate": "none", "Subject": "A", "HtmlBody": "b"},
        {"TemplateId": 10, "Name": "Far", "Subject": "A", "HtmlBody": "a\n{{#with a}}\n{{/with}}\n{{> b}}"},
        {"TemplateId": 8, "Name": "Wordless", "Alias": None, "Active": True},
    ],
}


def test_postmark_export_is_imported(run: Run) -> None:
    for name, records in POSTMARK.items():
        Path(f"{name}.json").write_text(json.dumps({"TotalCount": len(records), name: records}))
    Path("s.csv").write_text("Email address,Reason\ncsv@example.com,Spam complaint\n")
    outcomes = lines(run, *(f"{name}.json" for name in POSTMARK), "s.csv", service="postmark")
    assert [(kind, text) for _, kind, text, _ in outcomes] == [
        ("suppression", "hard@example.com"),
        ("suppression", "spam@example.com"),
        ("suppression", "hand@example.com"),
        ("suppression", "dead@example.com"),
        ("", "full@example.com"),
        ("domain", "moved.test"),
        ("domain", "sender.test"),
        ("template", "Welcome!"),
        ("template", "Framed"),
        ("layout", "Frame"),
        ("template", "Alone"),
        ("", "Far"),
        ("", "Wordless"),
        ("suppression", "csv@example.com"),
    ]
    reasons = {address.partition("@")[0]: reason for address, reason in suppressions().items()}
    expected = {"hard": "bounce", "spam": "complaint", "hand": "manual", "dead": "bounce", "csv": "complaint"}
    assert {name: reasons[name] for name in expected} == expected
    assert outcomes[7][3] == "welcome-v2 is tpl_welcome_v2 now"
    assert record("tpl_welcome_v2")["subject"] == "Hi {{customer.name}}"
    assert (outcomes[8][3], outcomes[9][3]) == ("7 is tpl_7 now", "it is lay_frame now")
    template = record("tpl_7")
    assert (template["layout"], template["variables"], template["optional"]) == (
        "lay_frame", ["name", "items", "currency", "note"], ["items", "name"],
    )  # fmt: skip
    assert template["shapes"] == {"items": {"list": ["title"]}}
    assert outcomes[10][3] == "left out: layout: there is no lay_none"
    output = run("import", "postmark", "Templates.json", *TEAM).out
    assert "\n    html, line 2: {{#with a}} has no counterpart here\n    html, line 4: {{> b}} has no" in output
    assert record("lay_frame")["name"]


# -- SendGrid ----------------------------------------------------------------------------------------------------------

DYNAMIC = {
    "id": "d-12ab",
    "name": "Receipt",
    "generation": "dynamic",
    "versions": [
        {"active": 0, "subject": "Old", "html_content": "old"},
        {
            "active": 1,
            "subject": "Order {{order.id}}",
            "html_content": '{{#each items}}<p>{{this.title}}</p>{{else}}None{{/each}}{{insert who "default=friend"}}',
            "plain_content": "{{order.id}}",
            "test_data": '{"order": {"id": 7}, "items": [{"title": "Tea"}], "more": 1}',
        },
    ],
}


def test_sendgrid_export_is_imported(run: Run) -> None:
    unconvertible = {
        "id": "d-2",
        "name": "Far",
        "versions": [{"active": 1, "subject": "A", "html_content": "{{#equals a b}}"}],
    }
    legacy = {"id": "x", "name": "Old", "generation": "legacy", "versions": []}
    Path("t.json").write_text("\n".join(map(json.dumps, (DYNAMIC, unconvertible, legacy))))
    Path("b.json").write_text(json.dumps([{"email": "b@example.com", "status": "5.1.1", "reason": "no such user"}]))
    Path("d.json").write_text(json.dumps([{"id": 1, "domain": "grid.test", "subdomain": "em", "valid": True}]))
    outcomes = lines(run, "t.json", "b.json", "d.json", service="sendgrid")
    assert [outcome[1] for outcome in outcomes] == ["template", "", "", "suppression", "domain"]
    assert outcomes[0][3] == "d-12ab is tpl_d_12ab now" and outcomes[1][3].startswith(
        "left out: html, line 1: {{#equals a b}}"
    )
    template = record("tpl_d_12ab")
    assert template["subject"] == "Order {{customer.order.id}}" and template["fallback"] == {"who": "friend"}
    assert template["examples"] == {"order.id": "7", "items": '[{"title":"Tea"}]'}
    assert template["variables"] == ["order.id", "items", "who"]


# -- Twilio ------------------------------------------------------------------------------------------------------------

TEXT = "twilio/text"
APPROVAL = {"name": "parcel_here", "category": "UTILITY", "content_type": TEXT, "status": "approved"}


def content(sid: str, body: str, **more: Any) -> dict[str, Any]:
    types = {TEXT: {"body": body}}
    return {"sid": sid, "friendly_name": f"Name of {sid}", "language": "en", "types": types, "variables": {}} | more


CONTENTS = [
    content("HX01", "Parcel {{2}} comes {{1}}."),
    content("HX02", "Hi {{1}}.", approval_requests=APPROVAL),
    content("HX03", "Hi.", approval_requests=APPROVAL | {"status": "rejected"}),
    content("HX04", "Hi {{2}}."),
    content("HX05", "", types={"twilio/card": {"title": "Hi"}}),
    content("HX06", "Hi {{#if}}."),
    content("../HX07", "Hi."),
    content("HX08", "Hola.", friendly_name="Name of HX01", language="es"),
]


def test_twilio_export_is_imported(run: Run) -> None:
    Path("t.json").write_text(json.dumps({"meta": {"key": "contents"}, "contents": CONTENTS}))
    Path("stop.csv").write_text("Phone Number,Date\n+15005550006,2026-01-01\n")
    outcomes = lines(run, "t.json", "stop.csv", service="twilio")
    draft = ", a draft until it is approved with its price"
    assert [(outcome[1], outcome[3]) for outcome in outcomes] == [
        ("template", f"HX01 is tpl_HX01 now{draft}"),
        ("template", f"HX02 is tpl_HX02 now{draft}"),
        ("template", f"HX03 is tpl_HX03 now{draft}"),
        ("", "left out: the numbered variables are not consecutive from 1"),
        ("", "left out: the template has no twilio/text content, only twilio/card"),
        ("template", outcomes[5][3]),
        ("template", outcomes[6][3]),
        ("template", f"HX08 is tpl_HX08 now{draft}"),
        ("", "left out: suppressions are email addresses; the carrier manages phone opt-outs (STOP)"),
    ]
    assert outcomes[5][3].startswith("left out: body: ")
    assert outcomes[6][3].startswith("../HX07 is tpl_0"), "an id of our own"
    sms, whatsapp, rejected = (record(f"tpl_HX0{n}") for n in (1, 2, 3))
    assert (sms["channel"], sms["body"]) == ("sms", "Parcel {{customer.value_2}} comes {{customer.value_1}}.")
    assert sms["variables"] == ["value_1", "value_2"], "as ContentVariables counts them"
    expected = {"channel": "whatsapp", "category": "UTILITY", "upstream_name": "parcel_here", "language": "en"}
    assert (expected.items() <= whatsapp.items(), rejected["channel"]) == (True, "sms")
    assert lines(run, "t.json", service="twilio")[0][3] == "already there as tpl_HX01"
    assert run("approval", "approve", "tpl_HX01", "--price", "0.05").code == 0


# -- before a move -----------------------------------------------------------------------------------------------------

LISTS: dict[str, list[dict[str, Any]]] = {
    "resend": [
        {"id": "1", "from": "Acme <hello@acme.test>", "to": ["a@example.com"], "attachments": [{"filename": "a.pdf"}]},
        {"id": "2", "from": "Stranger <hello@acme.test>", "to": ["a@example.com"], "attachments": []},
        {"id": "3", "from": "hello@elsewhere.test", "to": ["a@example.com"], "attachments": [{"filename": "a.XML"}]},
        {
            "id": "w1",
            "endpoint": "https://a.test/hook",
            "events": ["email.sent", "email.opened", "email.suppressed"],
        },
        {"id": "l1", "endpoint": "/emails/e1", "method": "GET", "response_status": 200},
        {"id": "l2", "endpoint": "/audiences?x=1", "method": "get", "response_status": 200},
        {"id": "d1", "name": "acme.test", "status": "verified"},
        *TEMPLATES,
    ],
    "postmark": [
        {"MessageID": "1", "From": "Acme <hello@acme.test>", "To": [{"Email": "a@b.test"}], "Attachments": ["a.exe"]},
        {"ID": 1, "Url": "https://acme.test", "Triggers": {"Open": {"Enabled": True}, "Bounce": {"Enabled": True}}},
        {"ID": 2, "Url": "https://acme.test", "Triggers": {"Click": {"Enabled": False}}},
        {"TemplateId": 6, "Name": "Partial", "Subject": "A", "HtmlBody": "{{> footer}}"},
        {"Method": "POST", "Path": "https://api.postmarkapp.com/email/"},
        {"Method": "POST", "Path": "/email/bulk"},
    ],
    "sendgrid": [
        {"from_email": "hello@acme.test", "msg_id": "1", "to_email": "a@example.com", "status": "delivered"},
        {"id": 1, "from_email": "hello@acme.test", "from_name": "Stranger", "verified": True},
        {
            "enabled": True,
            "url": "https://a.test/hook",
            "delivered": True,
            "bounce": True,
            "open": True,
            "click": False,
        },
        {"id": "d-1", "name": "Old", "generation": "legacy", "versions": []},
        {"method": "POST", "url": "https://api.sendgrid.com/v3/mail/send"},
        {"created": 1443651125, "email": "gone@example.com", "reason": "550", "status": "5.1.1"},
    ],
    "twilio": [
        {"sid": "SM1", "from": "+15005550006", "to": "+15005550006", "body": "Your parcel is here.", "num_media": "0"},
        {"sid": "SM2", "from": "+15005550006", "to": "+15005550006", "body": "Another.", "num_media": "1"},
        content("HX04", "Hi {{2}}."),
        {"method": "POST", "url": "https://api.twilio.com/2010-04-01/Accounts/AC1/Messages.json"},
        {"method": "POST", "url": "https://api.twilio.com/2010-04-01/Accounts/AC1/Calls.json"},
    ],
}


@pytest.mark.parametrize(
    ("service", "problems"),
    [
        (
            "resend",
            [
                (2, "sender", "Stranger <hello@acme.test>", "nor an approved display name"),
                (3, "sender", "hello@elsewhere.test", "elsewhere.test is not a verified"),
                (3, "file", ".XML", "the extension is unknown"),
                (4, "event", "email.opened", "never published"),
                (6, "call", "GET /audiences", "not supported"),
                (9, "template", "Broken", "subject"),
                (10, "template", "Wordless", "has no content"),
            ],
        ),
        (
            "postmark",
            [
                (1, "file", ".exe", "the extension is unknown"),
                (2, "event", "Open", "never published"),
                (4, "template", "Partial", "no counterpart"),
                (6, "call", "POST /email/bulk", "not supported"),
            ],
        ),
        (
            "sendgrid",
            [
                (2, "sender", "Stranger <hello@acme.test>", "nor an approved display name"),
                (3, "webhook", "https://a.test/hook", "another webhook format"),
                (3, "event", "open", "never published"),
                (4, "template", "Old", "legacy"),
                (5, "call", "POST /v3/mail/send", "not supported"),
            ],
        ),
        (
            "twilio",
            [
                (1, "text", "+15005550006", "passthrough"),
                (2, "media", "SM2", "has media"),
                (3, "template", "Name of HX04", "not consecutive"),
                (5, "call", "POST /2010-04-01/Accounts/AC1/Calls.json", "not supported"),
            ],
        ),
    ],
)
def test_incompatibilities_are_listed(run: Run, service: str, problems: list[tuple[int, str, str, str]]) -> None:
    Path("all.json").write_text(json.dumps(LISTS[service]))
    checked = run("import", "check", service, "all.json", *TEAM, "--json")
    outcomes = [*map(json.loads, checked.out.splitlines())]
    assert [(outcome["number"], outcome["kind"], outcome["text"]) for outcome in outcomes] == [
        outcome[:3] for outcome in problems
    ]
    assert [
        outcome["why"] for outcome, problem in zip(outcomes, problems, strict=True) if problem[3] not in outcome["why"]
    ] == []
    assert checked.code == 1


def test_check_without_incompatibilities_exits_with_0(run: Run) -> None:
    Path("s.csv").write_text(SUPPRESSIONS)
    checked = run("import", "check", "resend", "s.csv", *TEAM)
    assert (checked.code, checked.out) == (0, "Nothing in these files would break.\n")


ODD: list[dict[str, Any]] = [  # not in any service's exports, but possible in a file
    {"id": "w2", "events": "email.sent, email.opened"},
    {"id": "w3", "events": 5},
    {"id": "w4", "events": [{}]},
    {"id": "4", "from": "hello@acme.test", "to": "a@example.com", "attachments": 2},
    {"method": "GET", "path": "http://[::1"},
    {"id": "4d", "name": "Odd", "subject": "A", "html": "<p>A</p>", "reply_to": 5},
]


def test_unexpected_values_are_tolerated(run: Run) -> None:
    Path("odd.json").write_text(json.dumps(ODD))
    checked = run("import", "check", "resend", "odd.json", *TEAM, "--json")
    outcomes = [(outcome["kind"], outcome["text"]) for outcome in map(json.loads, checked.out.splitlines())]
    assert outcomes == [("event", "email.opened"), ("event", "{}"), ("call", "GET http://[::1")]
    Path("odd.json").write_text(json.dumps(ODD[-1]))
    assert lines(run, "odd.json")[0][3] == "4d is tpl_4d now"
    Path("odd.json").write_text(json.dumps({"id": "d-3", "name": "Odd", "versions": 5}))
    assert lines(run, "odd.json", service="sendgrid", code=1)[0][3].startswith("left out: the template has no content")


def test_two_teams_import_layouts_with_the_same_alias(run: Run) -> None:
    Path("other.toml").write_text('[[teams]]\nid = "team_other"\n')
    run("apply", "other.toml")
    body = {"Subject": "A", "HtmlBody": "<p>A</p>", "LayoutTemplate": "frame"}
    layout = {"Name": "Frame", "Alias": "frame", "TemplateType": "Layout", "HtmlBody": "<p>{{{@content}}}</p>"}
    Path("l.json").write_text(json.dumps(layout))
    Path("t.json").write_text(json.dumps({"Name": "Hi", "Alias": "hi"} | body))
    assert run("import", "postmark", "l.json", "--team", "team_other").code == 0
    outcomes = [outcome[3] for outcome in lines(run, "l.json", "t.json", service="postmark")]
    assert outcomes == ["it is lay_frame_team_acme now", "hi is tpl_hi now"]
    assert record("tpl_hi")["layout"] == "lay_frame_team_acme"
    assert lines(run, "l.json", service="postmark")[0][3] == "already there as lay_frame_team_acme"
