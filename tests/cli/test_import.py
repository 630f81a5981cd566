"""`heliograph import`: what other services exported, with a word on each line."""

import json
from pathlib import Path
from typing import Any

import pytest

from heliograph.domain.exports import resend
from heliograph.domain.exports.records import ExportedTemplate, edit_exported

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
    done = run("import", service, *files, *TEAM, "--json")
    assert done.code == code, done.err
    told = map(json.loads, done.out.splitlines())
    return [(one["number"], one["kind"], one["text"], one["outcome"]) for one in told]


@pytest.fixture(autouse=True)
def _team(run: Run, example: str) -> None:
    run("apply", example)


def test_suppressions(run: Run) -> None:
    Path("s.csv").write_text(SUPPRESSIONS)
    first = [
        (2, "suppression", "Ada@example.com", "added"),
        (3, "suppression", "bob@example.com", "added"),
        (4, "suppression", "ada@example.com", "left out: the same as line 2"),
        (6, "suppression", "nobody", "left out: not an email address"),
    ]
    assert lines(run, "s.csv") == first
    assert [outcome for *_, outcome in lines(run, "s.csv")][:2] == ["already on the list"] * 2
    listed = json.loads(run("suppression", "list", *TEAM, "--json").out)["data"]
    assert {one["email"]: one["reason"] for one in listed}["bob@example.com"] == "complaint"


def test_contacts_are_no_suppressions(run: Run) -> None:
    Path("c.csv").write_text("id,email,unsubscribed\n1,a@example.com,false\n2,b@example.com,true\n")
    assert lines(run, "c.csv") == [
        (2, "", "a@example.com", "left out: a contact who has not unsubscribed"),
        (3, "suppression", "b@example.com", "added"),
    ]


def test_domains_and_templates(run: Run) -> None:
    domains = [{"id": "d1", "name": "moved.test", "status": "verified", "region": "eu-west-1"}, {"name": "no domain."}]
    Path("d.json").write_text(json.dumps({"object": "list", "has_more": False, "data": domains}))
    Path("t.jsonl").write_text("\n".join(map(json.dumps, TEMPLATES)))
    told = lines(run, "d.json", "t.jsonl")
    assert [one[:3] for one in told] == [
        (1, "domain", "moved.test"),
        (2, "domain", "no domain."),
        (1, "template", "Resend welcome"),
        (2, "template", "Broken"),
        (3, "", "Wordless"),
    ]
    assert told[0][3].startswith("added as dom_") and "is not a domain" in told[1][3]
    assert told[2][3] == "49a3999c-0ce1 is tpl_49a3999c_0ce1 now" and told[3][3].startswith("left out: subject")
    assert "without its words" in told[4][3]
    made = json.loads(run("template", "show", told[2][3].split()[2]).out)
    assert (made["subject"], made["variables"]) == ("Hi {{customer.name}}", ["name"])
    assert "status" not in made  # it is in use
    assert (made["alias"], made["sender"], made["fallback"]) == ("welcome-2", "Acme <a@acme.test>", {"name": "you"})
    again = lines(run, "d.json", "t.jsonl")
    assert (again[0][3], again[2][3][:13]) == ("already there", "already there")


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
def test_what_cannot_be_read_changes_nothing(run: Run, file: bytes, why: str) -> None:
    Path("good.csv").write_text("email\nc@example.com\n")
    Path("bad").write_bytes(file)
    done = run("import", "resend", "good.csv", "bad", *TEAM)
    assert (done.code, why in done.err) == (1, True)
    assert "c@example.com" not in run("suppression", "list", *TEAM).out


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"alias": "a\nb"}, "alias: It is one line of at most 200 characters."),
        ({"alias": "a" * 201}, "alias: It is one line of at most 200 characters."),
        ({"from": "nobody"}, "sender: 'nobody' is no address: write one such as Acme <hello@acme.test>."),
        ({"reply_to": ["a@acme.test", "b@"]}, "reply_to: 'b@' is no address: write one such as help@acme.test."),
        ({"reply_to": ["a@acme.test"] * 11}, "reply_to: There are 11 addresses: 10 is the most."),
        (
            {"variables": [{"key": "X", "fallback_value": "x" * 5000}]},
            "variables: A fallback has at most 4,096 characters, and there are 100 at most.",
        ),
    ],
)
def test_what_is_kept_with_a_template_is_checked(fields: dict[str, Any], why: str) -> None:
    found = resend.read_row(TEMPLATES[0] | fields)
    assert isinstance(found, ExportedTemplate)
    assert [f"{field}: {error}" for field, error in edit_exported(found, "tpl_1", "team_1").errors.items()] == [why]


def test_where_everything_is_left_out_it_ends_with_a_word(run: Run) -> None:
    twice = [TEMPLATES[0] | {"id": id_, "name": id_, "alias": "once"} for id_ in ("6a", "6b")]
    Path("twice.json").write_text(json.dumps(twice))
    Path("none.json").write_text(json.dumps(TEMPLATES[1:]))
    done = run("import", "resend", "twice.json", "none.json", *TEAM)
    assert (done.code, "alias: tpl_6a has it already" in done.out) == (0, True)
    done = run("import", "resend", "none.json", *TEAM)
    assert (done.code, done.err) == (1, "heliograph: Everything was left out: nothing is changed.\n")


def test_a_report_for_people(run: Run) -> None:
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


def test_postmark(run: Run) -> None:
    for name, records in POSTMARK.items():
        Path(f"{name}.json").write_text(json.dumps({"TotalCount": len(records), name: records}))
    Path("s.csv").write_text("Email address,Reason\ncsv@example.com,Spam complaint\n")
    told = lines(run, *(f"{name}.json" for name in POSTMARK), "s.csv", service="postmark")
    assert [(kind, text) for _, kind, text, _ in told] == [
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
    listed = json.loads(run("suppression", "list", *TEAM, "--json").out)["data"]
    reasons = {one["email"].partition("@")[0]: one["reason"] for one in listed}
    wanted = {"hard": "bounce", "spam": "complaint", "hand": "manual", "dead": "bounce", "csv": "complaint"}
    assert {name: reasons[name] for name in wanted} == wanted
    assert told[7][3] == "welcome-v2 is tpl_welcome_v2 now"
    assert json.loads(run("template", "show", "tpl_welcome_v2").out)["subject"] == "Hi {{customer.name}}"
    assert (told[8][3], told[9][3]) == ("7 is tpl_7 now", "it is lay_frame now")
    made = json.loads(run("template", "show", "tpl_7").out)
    assert (made["layout"], made["variables"], made["optional"]) == (
        "lay_frame", ["name", "items", "currency", "note"], ["items", "name"],
    )  # fmt: skip
    assert made["shapes"] == {"items": {"list": ["title"]}}
    assert told[10][3] == "left out: layout: there is no lay_none"
    far = run("import", "postmark", "Templates.json", *TEAM).out
    assert "\n    html, line 2: {{#with a}} has no counterpart here\n    html, line 4: {{> b}} has no" in far
    assert json.loads(run("layout", "list", "--json").out)["data"][0]["id"] == "lay_frame"


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


def test_sendgrid(run: Run) -> None:
    far = {"id": "d-2", "name": "Far", "versions": [{"active": 1, "subject": "A", "html_content": "{{#equals a b}}"}]}
    legacy = {"id": "x", "name": "Old", "generation": "legacy", "versions": []}
    Path("t.json").write_text("\n".join(map(json.dumps, (DYNAMIC, far, legacy))))
    Path("b.json").write_text(json.dumps([{"email": "b@example.com", "status": "5.1.1", "reason": "no such user"}]))
    Path("d.json").write_text(json.dumps([{"id": 1, "domain": "grid.test", "subdomain": "em", "valid": True}]))
    told = lines(run, "t.json", "b.json", "d.json", service="sendgrid")
    assert [one[1] for one in told] == ["template", "", "", "suppression", "domain"]
    assert told[0][3] == "d-12ab is tpl_d_12ab now" and told[1][3].startswith("left out: html, line 1: {{#equals a b}}")
    made = json.loads(run("template", "show", "tpl_d_12ab").out)
    assert made["subject"] == "Order {{customer.order.id}}" and made["fallback"] == {"who": "friend"}
    assert made["examples"] == {"order.id": "7", "items": '[{"title":"Tea"}]'}
    assert made["variables"] == ["order.id", "items", "who"]


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


def test_twilio(run: Run) -> None:
    Path("t.json").write_text(json.dumps({"meta": {"key": "contents"}, "contents": CONTENTS}))
    Path("stop.csv").write_text("Phone Number,Date\n+15005550006,2026-01-01\n")
    told = lines(run, "t.json", "stop.csv", service="twilio")
    draft = ", a draft until it is approved with its price"
    assert [(one[1], one[3]) for one in told] == [
        ("template", f"HX01 is tpl_HX01 now{draft}"),
        ("template", f"HX02 is tpl_HX02 now{draft}"),
        ("template", f"HX03 is tpl_HX03 now{draft}"),
        ("", "left out: its numbered variables do not go on from 1 without a gap"),
        ("", "left out: it has no twilio/text, only twilio/card"),
        ("template", told[5][3]),
        ("template", told[6][3]),
        ("template", f"HX08 is tpl_HX08 now{draft}"),
        ("", "left out: the list is of email addresses; who answers STOP is the carrier's to keep"),
    ]
    assert told[5][3].startswith("left out: body: ")
    assert told[6][3].startswith("../HX07 is tpl_0"), "an id of our own"
    sms, whatsapp, rejected = (json.loads(run("template", "show", f"tpl_HX0{n}").out) for n in (1, 2, 3))
    assert (sms["channel"], sms["body"]) == ("sms", "Parcel {{customer.value_2}} comes {{customer.value_1}}.")
    assert sms["variables"] == ["value_1", "value_2"], "as ContentVariables counts them"
    known = {"channel": "whatsapp", "category": "UTILITY", "upstream_name": "parcel_here", "language": "en"}
    assert (known.items() <= whatsapp.items(), rejected["channel"]) == (True, "sms")
    assert lines(run, "t.json", service="twilio")[0][3] == "already there as tpl_HX01"
    assert run("template", "approve", "tpl_HX01", "--price", "0.05").code == 0


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
                (2, "sender", "Stranger <hello@acme.test>", "nor an approved alternate"),
                (3, "sender", "hello@elsewhere.test", "elsewhere.test is not a verified"),
                (3, "file", ".XML", "its ending tells none"),
                (4, "event", "email.opened", "never told"),
                (6, "call", "GET /audiences", "not served"),
                (9, "template", "Broken", "subject"),
                (10, "template", "Wordless", "without its words"),
            ],
        ),
        (
            "postmark",
            [
                (1, "file", ".exe", "its ending tells none"),
                (2, "event", "Open", "never told"),
                (4, "template", "Partial", "no counterpart"),
                (6, "call", "POST /email/bulk", "not served"),
            ],
        ),
        (
            "sendgrid",
            [
                (2, "sender", "Stranger <hello@acme.test>", "nor an approved alternate"),
                (3, "webhook", "https://a.test/hook", "another format"),
                (3, "event", "open", "never told"),
                (4, "template", "Old", "legacy"),
                (5, "call", "POST /v3/mail/send", "not served"),
            ],
        ),
        (
            "twilio",
            [
                (1, "text", "+15005550006", "passthrough"),
                (2, "media", "SM2", "has media"),
                (3, "template", "Name of HX04", "without a gap"),
                (5, "call", "POST /2010-04-01/Accounts/AC1/Calls.json", "not served"),
            ],
        ),
    ],
)
def test_what_would_break(run: Run, service: str, problems: list[tuple[int, str, str, str]]) -> None:
    Path("all.json").write_text(json.dumps(LISTS[service]))
    checked = run("import", "check", service, "all.json", *TEAM, "--json")
    told = [*map(json.loads, checked.out.splitlines())]
    assert [(one["number"], one["kind"], one["text"]) for one in told] == [one[:3] for one in problems]
    assert [one["why"] for one, problem in zip(told, problems, strict=True) if problem[3] not in one["why"]] == []
    assert checked.code == 1


def test_nothing_would_break(run: Run) -> None:
    Path("s.csv").write_text(SUPPRESSIONS)
    checked = run("import", "check", "resend", "s.csv", *TEAM)
    assert (checked.code, checked.out) == (0, "Nothing in these files would break.\n")


ODD: list[dict[str, Any]] = [  # what no service lists, and a file still may have
    {"id": "w2", "events": "email.sent, email.opened"},
    {"id": "w3", "events": 5},
    {"id": "w4", "events": [{}]},
    {"id": "4", "from": "hello@acme.test", "to": "a@example.com", "attachments": 2},
    {"method": "GET", "path": "http://[::1"},
    {"id": "4d", "name": "Odd", "subject": "A", "html": "<p>A</p>", "reply_to": 5},
]


def test_a_file_whose_values_are_odd_is_read_all_the_same(run: Run) -> None:
    Path("odd.json").write_text(json.dumps(ODD))
    checked = run("import", "check", "resend", "odd.json", *TEAM, "--json")
    told = [(one["kind"], one["text"]) for one in map(json.loads, checked.out.splitlines())]
    assert told == [("event", "email.opened"), ("event", "{}"), ("call", "GET http://[::1")]
    Path("odd.json").write_text(json.dumps(ODD[-1]))
    assert lines(run, "odd.json")[0][3] == "4d is tpl_4d now"
    Path("odd.json").write_text(json.dumps({"id": "d-3", "name": "Odd", "versions": 5}))
    assert lines(run, "odd.json", service="sendgrid", code=1)[0][3].startswith("left out: a template without its words")


def test_two_teams_bring_layouts_of_one_alias(run: Run) -> None:
    run("team", "create", "team_other")
    body = {"Subject": "A", "HtmlBody": "<p>A</p>", "LayoutTemplate": "frame"}
    layout = {"Name": "Frame", "Alias": "frame", "TemplateType": "Layout", "HtmlBody": "<p>{{{@content}}}</p>"}
    Path("l.json").write_text(json.dumps(layout))
    Path("t.json").write_text(json.dumps({"Name": "Hi", "Alias": "hi"} | body))
    assert run("import", "postmark", "l.json", "--team", "team_other").code == 0
    told = [one[3] for one in lines(run, "l.json", "t.json", service="postmark")]
    assert told == ["it is lay_frame_team_acme now", "hi is tpl_hi now"]
    assert json.loads(run("template", "show", "tpl_hi").out)["layout"] == "lay_frame_team_acme"
    assert lines(run, "l.json", service="postmark")[0][3] == "already there as lay_frame_team_acme"
