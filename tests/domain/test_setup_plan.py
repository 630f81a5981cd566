import re
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail import dkim
from heliograph.domain.mail.address import parse_address
from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS
from heliograph.domain.setup.keys import make_token, parse_token, token_hash
from heliograph.domain.setup.plan import NewWebhook, Plan, PlannedKey, plan
from heliograph.domain.setup.records import KeyRestrictions, LocaleParts, VariableType, VerifyLimits, Webhook
from heliograph.domain.setup.secrets import decrypt_options
from heliograph.domain.setup.setup_file import SetupError, SetupFile, parse_setup_file
from heliograph.domain.setup.snapshot import Setup, apply_rows
from heliograph.encryption import Cipher

EXAMPLE = Path(__file__).with_name("setup_example.toml").read_text()
TOKEN = make_token(bytes(range(64)))
OTHER_TOKEN = make_token(bytes(reversed(range(64))))
MINTED = make_token(bytes(64))
SECRET = "whsec_" + "A" * 32
OTHER_SECRET = "whsec_" + "B" * 32
NOW = 1_800_000_000_000
VAULT = Cipher(bytes(32))

A = '[[teams]]\nid = "team_a"\nname = "A"\n'
B = '[[teams]]\nid = "team_b"\nname = "B"\n'
DOMAIN = '[[teams.domains]]\nid = "dom_a"\nname = "a.test"\nbrand = "A"\n'
OWN = DOMAIN + "verified = true\n"
TEMPLATE = '[[teams.templates]]\nid = "tpl_a"\nchannel = "sms"\nname = "N"\nbody = "Hi"\n'
LAYOUT = '[[teams.layouts]]\nid = "lay_a"\nname = "L"\nhtml = "<p>{{content}}</p>"\n'
MAIL = '[[teams.templates]]\nid = "tpl_m"\nchannel = "email"\nname = "M"\nsubject = "S"\nhtml = "<b>hi</b>"\n'
GERMAN = '[teams.templates.locales.de-AT]\nsubject = "S"\nhtml = "<b>servus</b>"\n'
ARCHIVED = '[[teams.layouts]]\nid = "lay_a"\nstatus = "archived"\n'
KEY = '[[teams.keys]]\nname = "server"\n'
MX = '[[carriers]]\nid = "mx"\nchannel = "email"\nkind = "mx"\nsource_ips = ["192.0.2.1"]\n'
POOL = '[carriers.pools.bulk]\nsource_ips = ["192.0.2.1"]\n'
HOOK = '[[teams.webhooks]]\nurl = "http://a.test/h"\n'

NEWS = '[[teams.templates]]\nid = "tpl_news"\nchannel = "email"\nsubject = "s"\ntext = "t"\ncategory = "news"\n'
INBOUND = '[[teams.inbound]]\naddress = "*@in.a.test"\n'


def counting_ids() -> Callable[[str], str]:
    prefixes: list[str] = []

    def new_id(prefix: str) -> str:
        prefixes.append(prefix)
        return f"{prefix}{len(prefixes)}"

    return new_id


def planned(file: SetupFile, current: Setup, next_ref: int = 1, suppressed: Collection[tuple[int, str]] = ()) -> Plan:
    created = {"make_secret": lambda: SECRET, "make_pair": lambda: (b"private", "public"), "now": NOW}
    return plan(file, current, next_ref, lambda: MINTED, counting_ids(), VAULT, suppressed, **created)  # type: ignore[arg-type]


def apply(text: str, current: Setup | None = None, next_ref: int = 1) -> tuple[Plan, Setup]:
    current = current or Setup()
    existing = {carrier.id: (carrier.channel, carrier.kind) for carrier in current.carriers}
    file = parse_setup_file(text, {}, supported=CARRIER_KINDS, existing=existing)
    created = planned(file, current, next_ref)
    return created, apply_rows(current, created.rows, current.version + 1)


def test_the_example_of_the_contract_is_applied_once() -> None:
    first, setup = apply(EXAMPLE, next_ref=7)
    assert first.changed == [
        "platform: created",
        "carrier sim: created",
        "team team_acme: created",
        "domain dom_acme: created",
        "display name dn_support: created",
        "template tpl_welcome: created",
        "key server of team_acme: created",
        "recipient me@example.com of team_acme: created",
        "sender id GB of team_acme: created",
        "webhook http://127.0.0.1:9000/hooks of team_acme: created",
        "suppression gone@example.com of team_acme: created",
    ]
    assert first.new_teams == [(7, 25_000_000)]
    assert first.keys == [PlannedKey(team="team_acme", name="server", token=TOKEN)]
    team = setup.teams["team_acme"]
    assert (team.record.ref, team.record.email_quota, team.record.verify) == (7, 10_000, VerifyLimits())
    assert team.domains["acme.test"].verified
    assert team.display_names["dn_support"].domain == "dom_acme"
    assert team.templates["tpl_welcome"].prices == {"GB": 10_000}
    assert team.recipients == {"me@example.com"}
    assert team.sender_ids["GB"].value == "ACME"
    key = setup.callers[parse_token(TOKEN) or ""].key
    assert (key.hash, key.domain, key.scopes) == (token_hash(TOKEN), "acme.test", ("send", "manage"))
    assert setup.platform.verify_price == {"USD": 50_000, "EUR": 45_000}
    assert [c.id for c in setup.carriers] == ["sim"]

    file = parse_setup_file(EXAMPLE, {})
    second = planned(file, setup, 8, {(7, "gone@example.com")})
    assert second == Plan(rows=[], new_teams=[], suppressions=[], changed=[], keys=[], webhooks=[], problems=[])


def test_records_without_ids_are_found_again_by_their_names() -> None:
    text = A + '[[teams.domains]]\nname = "a.test"\nbrand = "A"\n[[teams.domains.display_names]]\nname = "N"\n'
    text += TEMPLATE.replace('id = "tpl_a"\n', "") + KEY
    first, setup = apply(text)
    assert set(setup.records) == {
        ("team", "team_a"),
        ("domain", "dom_1"),
        ("display_name", "dn_2"),
        ("template", "tpl_3"),
        ("key", parse_token(MINTED)),
    }
    assert first.keys == [PlannedKey(team="team_a", name="server", token=MINTED)]
    assert apply(text, setup)[0].rows == []


@pytest.mark.parametrize(
    ("first", "second", "changed"),
    [
        (A, '[[teams]]\nid = "team_a"\nmode = "live"', ["team team_a: changed (mode)"]),
        (A + 'credit = "5"', A + 'credit = "9"', []),
        (A + "rate_limit = 5", A, []),
        (
            A + DOMAIN + "verified = true",
            A + DOMAIN + "approved = true",
            ["domain dom_a: changed (approved)"],
        ),
        (A + DOMAIN, A, []),
        (A + TEMPLATE, A + TEMPLATE.replace("Hi", "Hello"), ["template tpl_a: changed (version 2)"]),
        (A + TEMPLATE, A + TEMPLATE + 'price = "1"', ["template tpl_a: changed (price)"]),
        (
            A + TEMPLATE,
            A + '[[teams.templates]]\nid = "tpl_a"\nstatus = "draft"',
            ["template tpl_a: changed (status)"],
        ),
        (A + LAYOUT, A + LAYOUT.replace("<p>", "<p>Hi "), ["layout lay_a: changed (version 2)"]),
        (A + LAYOUT, A + LAYOUT.replace('"L"', '"M"'), ["layout lay_a: changed (name)"]),
        (A + LAYOUT + MAIL, A + MAIL + 'layout = "lay_a"', ["template tpl_m: changed (version 2)"]),
        (A + LAYOUT + MAIL + 'layout = "lay_a"', A + MAIL + 'layout = ""', ["template tpl_m: changed (version 2)"]),
        (A + LAYOUT + MAIL + 'layout = "lay_a"', A + ARCHIVED + MAIL, ["layout lay_a: changed (status)"]),
        (A + MAIL, A + MAIL + 'locale = "de-at"', ["template tpl_m: changed (version 2)"]),
        (A + MAIL, A + MAIL + 'timezone = "Europe/Vienna"', ["template tpl_m: changed (version 2)"]),
        (A + MAIL, A + MAIL + GERMAN, ["template tpl_m: changed (version 2)"]),
        (A + MAIL + GERMAN, A + MAIL, []),
        (A + MAIL, A + MAIL + 'variables = [{ name = "x", max_length = 5 }]', ["template tpl_m: changed (version 2)"]),
        (A + MAIL + 'variables = [{ name = "x", list = ["a"] }]', A + MAIL, []),
        (
            A + MAIL + 'variables = [{ name = "x", list = ["a"] }]',
            A + MAIL + 'variables = ["x"]',
            ["template tpl_m: changed (version 2)"],
        ),
        (A + KEY, A + KEY + 'scopes = ["manage"]', ["key server of team_a: changed (scopes)"]),
        (A + KEY + f'token = "{TOKEN}"', A + KEY, []),
        (
            A + KEY,
            A + KEY + f'token = "{TOKEN}"',
            [
                "key server of team_a: created",
                "key server of team_a: previous token revoked",
            ],
        ),
        (A + HOOK, A + HOOK + 'events = ["sms.*"]', ["webhook http://a.test/h of team_a: changed (events)"]),
        (A + HOOK, A + HOOK + 'format = "resend"', ["webhook http://a.test/h of team_a: changed (format)"]),
        (A + HOOK + 'events = ["sms.*"]', A + HOOK, []),
        (
            "",
            A + HOOK + B + HOOK,
            [
                "team team_a: created",
                "webhook http://a.test/h of team_a: created",
                "team team_b: created",
                "webhook http://a.test/h of team_b: created",
            ],
        ),
        (A, A + 'credit_low = "0"', ["team team_a: changed (credit_low)"]),
        (A, A + "keep_content_days = 90", ["team team_a: changed (keep_content_days)"]),
        (A + "keep_content_days = 1\nkeep_messages_days = 1", A, []),
        (A, A + B, ["team team_b: created"]),
        ('[platform]\nbrand = "X"', '[platform]\nsender = "a@b.test"', ["platform: changed (sender)"]),
    ],
)
def test_only_fields_in_the_file_are_changed(first: str, second: str, changed: list[str]) -> None:
    _, setup = apply(first)
    created, after = apply(second, setup, next_ref=2)
    assert created.changed == changed
    assert len(created.rows) == len(changed)
    assert len(after.records) >= len(setup.records)


def test_variables_languages_and_a_layout_are_read() -> None:
    extra = 'locale = "de"\ntimezone = "Europe/Vienna"\nlayout = "lay_a"\n'
    extra += 'variables = ["x", { name = "items", list = ["title"], max = 3, max_length = 9 }]\n'
    text = A + LAYOUT + MAIL + extra + GERMAN.replace("de-AT", "fr-ca")
    created, setup = apply(text)
    assert created.changed[1:] == ["layout lay_a: created", "template tpl_m: created"]
    team = setup.teams["team_a"]
    template = team.templates["tpl_m"]
    assert team.layouts["lay_a"].html == "<p>{{content}}</p>"
    assert (template.locale, template.timezone, template.layout) == ("de", "Europe/Vienna", "lay_a")
    assert template.variables == ("x", "items")
    assert template.shapes == {"items": VariableType(list=("title",), max=3, max_length=9)}
    assert template.locales == {"fr-CA": LocaleParts(subject="S", html="<b>servus</b>")}
    assert apply(text, setup)[0].rows == []


def test_verify_limits_and_carrier_options_are_merged() -> None:
    carrier = '[[carriers]]\nid = "c"\nchannel = "sms"\nkind = "simulator"\n'
    _, setup = apply(carrier + "step_ms = 5\n" + A + "verify = { per_phone_day = 1 }")
    _, setup = apply(carrier + "priority = 1\n" + A + "verify = { per_phone_10m = 2 }", setup)
    assert setup.carriers[0].options == {"step_ms": 5}
    assert setup.teams["team_a"].record.verify == VerifyLimits(per_phone_day=1, per_phone_10m=2)


def test_a_new_token_replaces_the_one_of_the_same_name() -> None:
    _, setup = apply(A + KEY + f'token = "{TOKEN}"\nscopes = ["manage"]')
    created, setup = apply(A + KEY + f'token = "{OTHER_TOKEN}"', setup)
    assert created.keys == [PlannedKey(team="team_a", name="server", token=OTHER_TOKEN)]
    keys = {caller.key.id: caller.key.revoked for caller in setup.callers.values()}
    assert keys == {parse_token(TOKEN): True, parse_token(OTHER_TOKEN): False}
    assert apply(A + KEY + f'token = "{OTHER_TOKEN}"', setup)[0].rows == []


def test_hook_key_secret_is_stored_encrypted() -> None:
    hook, secret = KEY + "hook = true\n", "v1,whsec_" + "C" * 32
    first, setup = apply(A + hook)
    (created,) = first.keys
    (caller,) = setup.callers.values()
    assert created.token and created.token.startswith("v1,whsec_") and created.token not in str(first.rows)
    assert (caller.key.scopes, bool(caller.key.secret)) == (("send",), True)
    assert apply(A + hook, setup)[0].changed == []
    replaced, setup = apply(A + hook + f'token = "{secret}"', setup)
    assert replaced.changed[-1] == "key server of team_a: previous token revoked"
    assert apply(A + KEY + f'token = "{secret}"', setup)[0].changed == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('hook = true\nscopes = ["send", "manage"]', "scopes: the key of a hook can only have"),
        (f'hook = true\ntoken = "{TOKEN}"', "token: must be v1,whsec_"),
        ('token = "v1,whsec_short"', "expected a complete token"),
    ],
)
def test_hook_key_with_invalid_fields_is_refused(more: str, why: str) -> None:
    with pytest.raises(SetupError, match=re.escape(why)):
        apply(A + KEY + more)


def test_a_revoked_key_stays_revoked() -> None:
    text = A + KEY + f'token = "{TOKEN}"'
    _, setup = apply(text)
    _, setup = apply(A + KEY + f'token = "{OTHER_TOKEN}"', setup)
    _, setup = apply(text, setup)
    assert all(caller.key.revoked for caller in setup.callers.values())


def test_tokens_that_change_names_are_not_revoked() -> None:
    def keys(first: str, second: str) -> str:
        return A + KEY + f'token = "{first}"\n[[teams.keys]]\nname = "cron"\ntoken = "{second}"'

    _, setup = apply(keys(TOKEN, OTHER_TOKEN))
    created, setup = apply(keys(OTHER_TOKEN, TOKEN), setup)
    assert len(created.rows) == 2
    names = {caller.key.id: (caller.key.name, caller.key.revoked) for caller in setup.callers.values()}
    assert names == {parse_token(TOKEN): ("cron", False), parse_token(OTHER_TOKEN): ("server", False)}


def test_names_that_are_not_written_have_a_sensible_value() -> None:
    file = '[[teams]]\nid = "team_a"\n[[teams.domains]]\nname = "a.test"\n'
    _, setup = apply(file + '[[teams.templates]]\nid = "tpl_a"\nchannel = "sms"\nbody = "Hi"\n')
    team = setup.teams["team_a"]
    assert (team.record.name, team.domains["a.test"].brand) == ("team_a", "team_a")
    assert team.templates["tpl_a"].name == "tpl_a"
    assert apply(file, setup)[0].changed == []


def test_carrier_password_is_encrypted_and_written_once() -> None:
    file = '[[carriers]]\nid = "relay"\nchannel = "email"\nkind = "smtp"\nhost = "h"\npassword = "{}"\n'
    kinds = {("email", "smtp")}

    def applied(password: str, current: Setup) -> tuple[list[str], Setup]:
        read = parse_setup_file(file.format(password), {}, supported=kinds)
        created = planned(read, current)
        return created.changed, apply_rows(current, created.rows, current.version + 1)

    changed, setup = applied("first", Setup())
    (carrier,) = setup.carriers
    assert changed == ["carrier relay: created"]
    assert carrier.options["host"] == "h"
    assert VAULT.decrypt(carrier.options["password"]["sealed"], "carrier/relay/password") == b'"first"'
    assert applied("first", setup)[0] == []
    changed, setup = applied("second", setup)
    assert changed == ["carrier relay: changed (options)"]
    assert VAULT.decrypt(setup.carriers[0].options["password"]["sealed"], "carrier/relay/password") == b'"second"'


def test_every_http_carrier_option_that_may_contain_a_key_is_encrypted() -> None:
    file = """
        [[carriers]]
        id = "web"
        channel = "sms"
        kind = "http"
        url = "https://sms.test/send?key=canary-1"
        headers = { Authorization = "Bearer canary-2" }
        body = "key=canary-3"
        callback_secret = "canary-4"
    """
    read = parse_setup_file(file, {}, supported={("sms", "http")})
    created = planned(read, Setup())
    setup = apply_rows(Setup(), created.rows, 1)
    assert "canary" not in str(setup.carriers[0].options)
    options = decrypt_options(
        setup.carriers[0].options, lambda text, field: VAULT.decrypt(text, f"carrier/web/{field}")
    )
    assert options == read.carriers[0]["options"]
    assert planned(read, setup).changed == []


def hook_of(setup: Setup) -> tuple[Webhook, str, str | None]:
    """Return the only webhook, with its secrets."""
    (hook,) = setup.teams["team_a"].webhooks
    old = VAULT.decrypt(hook.old_secret, f"webhook/{hook.id}/old").decode() if hook.old_secret else None
    return hook, VAULT.decrypt(hook.secret, f"webhook/{hook.id}").decode(), old


def test_webhook_secret_is_generated_encrypted_and_shown_once() -> None:
    created, setup = apply(A + HOOK)
    hook, secret, old = hook_of(setup)
    assert created.webhooks == [NewWebhook(team="team_a", id=hook.id, url="http://a.test/h", secret=SECRET)]
    assert (hook.events, hook.enabled, hook.created_at) == (("*",), True, NOW)
    assert (secret, old) == (SECRET, None)
    assert not any(SECRET in str(row.body) for row in created.rows)
    assert apply(A + HOOK, setup)[0].webhooks == []


def test_a_webhook_that_signs_with_keys_gets_them_once() -> None:
    _, setup = apply(A + HOOK)
    _, setup = apply(A + HOOK + 'format = "postal"', setup)
    hook, *_ = hook_of(setup)
    assert (hook.public_key, VAULT.decrypt(hook.private_key or "", f"webhook/{hook.id}/key")) == ("public", b"private")
    assert apply(A + HOOK + 'format = "postal"', setup)[0].changed == []


def test_webhook_login_is_encrypted_and_written_once() -> None:
    local = A + HOOK.replace("//", "//me:s3cr3t@")
    created, setup = apply(local)
    hook = hook_of(setup)[0]
    assert (hook.url, created.webhooks[0].url, hook.login is not None) == ("http://a.test/h", "http://a.test/h", True)
    assert "s3cr3t" not in repr((created.rows, created.changed))
    for again in (local, A + HOOK):
        assert apply(again, setup)[0].rows == []
    assert apply(local.replace("me:", "you:"), setup)[0].changed == [
        "webhook http://a.test/h of team_a: changed (login)"
    ]
    assert hook_of(apply(A + HOOK.replace("//", "//@"), setup)[1])[0].login is None


def test_webhook_secret_from_the_file_is_used_and_a_new_one_rotates_it() -> None:
    _, setup = apply(A + HOOK + f'secret = "{SECRET}"\n')
    assert hook_of(setup)[1:] == (SECRET, None)
    assert apply(A + HOOK + f'secret = "{SECRET}"\n', setup)[0].rows == []
    created, setup = apply(A + HOOK + f'secret = "{OTHER_SECRET}"\n', setup)
    assert created.changed == ["webhook http://a.test/h of team_a: changed (secret, old_secret, old_until)"]
    assert created.webhooks == []
    assert hook_of(setup)[1:] == (OTHER_SECRET, SECRET)
    assert hook_of(setup)[0].old_until == NOW + DAY_MS
    assert apply(A + HOOK, setup)[0].rows == []


def test_unverified_domain_of_one_team_can_be_verified_by_another() -> None:
    _, setup = apply(A + DOMAIN)
    _, setup = apply(B + DOMAIN.replace("dom_a", "dom_b") + "verified = true\n", setup)
    assert [setup.teams[id_].domains["a.test"].verified for id_ in ("team_a", "team_b")] == [False, True]


def test_domain_without_an_operator_decision_is_verified_by_dns() -> None:
    _, setup = apply(A + '[[teams.domains]]\nname = "a.test"\n')
    assert setup.teams["team_a"].domains["a.test"].by_dns
    _, setup = apply(A + '[[teams.domains]]\nname = "a.test"\nverified = true\n', setup)
    domain = setup.teams["team_a"].domains["a.test"]
    assert (domain.verified, domain.by_dns) == (True, False)


ZONED = '[platform]\ndkim_zone = "dkim.b.test"\ndkim_rotate_days = 90\n' + A


def test_dkim_method_of_a_new_domain_depends_on_the_zone() -> None:
    shop = '[[teams.domains]]\nname = "a.test"\n'
    for text, method in ((A + shop, "txt"), (ZONED + shop, "cname"), (ZONED + shop + 'dkim = "txt"\n', "txt")):
        _, setup = apply(text)
        assert setup.teams["team_a"].domains["a.test"].dkim == method
    assert apply(ZONED + shop, setup)[0].changed == []  # records that the file does not name stay unchanged


def test_own_dkim_key_is_added_once() -> None:
    pem = dkim.generate_key("ed25519-sha256").decode()
    text = A + f'[[teams.domains]]\nname = "a.test"\nselector = "s1"\nprivate_key = """\n{pem}"""\n'
    _, setup = apply(text)
    (key,) = setup.teams["team_a"].dkim_keys
    assert (key.selector, key.state, key.public) == ("s1", "active", dkim.public_record(pem.encode()))
    assert apply(text, setup)[0].changed == []
    with pytest.raises(SetupError, match=r"domains\[0\].selector: is used by another key"):
        apply(text.replace(pem, dkim.generate_key("ed25519-sha256").decode()), setup)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (A + '[[teams.domains]]\nname = "a.test"\ndkim = "cname"\n', "dkim"),
        (ZONED + '[[teams.domains]]\nname = "a.test"\nprivate_key = "x"\nselector = "s1"\n', "private_key"),
        (A + '[[teams.domains]]\nname = "a.test"\nprivate_key = "x"\nselector = "s1"\n', "private_key"),
        (A + '[[teams.domains]]\nname = "a.test"\nprivate_key = "x"\n', "selector"),
    ],
)
def test_invalid_dkim_of_a_domain_is_refused(text: str, path: str) -> None:
    with pytest.raises(SetupError, match=rf"domains\[0\]\.{path}"):
        apply(text)


def test_an_address_is_suppressed_once() -> None:
    gone = '[[teams.suppressions]]\nemail = "{}"\n'
    created, _ = apply(A + gone.format("Gone@b.test") + gone.format("gone@B.test"))
    assert [(ref, a.normal, a.original, reason) for ref, a, reason in created.suppressions] == [
        (1, "gone@b.test", "Gone@b.test", "manual")
    ]
    assert created.changed[1:] == ["suppression Gone@b.test of team_a: created"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("", A + '[[teams.templates]]\nid = "tpl_x"', "teams[0].templates[0].channel: is missing"),
        ("", A + "[[teams.templates]]\n", "teams[0].templates[0].channel: is missing"),
        (
            "",
            A + TEMPLATE.replace("Hi", "x" * 4097),
            "teams[0].templates[0].body: it has 4,097 characters, the maximum is 4,096",
        ),
        ("", A + MAIL + 'layout = "lay_a"', "teams[0].templates[0].layout: there is no lay_a"),
        (B + LAYOUT, A + MAIL + 'layout = "lay_a"', "teams[0].templates[0].layout: there is no lay_a"),
        ("", A + LAYOUT + TEMPLATE + 'layout = "lay_a"', "teams[0].templates[0].layout: only an email template"),
        *(
            (
                "",
                A + LAYOUT + f'status = "{status}"\n' + MAIL + 'layout = "lay_a"',
                f"teams[0].templates[0].layout: lay_a is {status}: use an approved layout",
            )
            for status in ("draft", "archived")
        ),
        (
            "",
            A + LAYOUT.replace("<p>", "\\n{{content}}"),
            "teams[0].layouts[0].html, line 2: {{content}} appears 2 times",
        ),
        ("", A + LAYOUT.replace("<p>", "\\n{{x}}"), "teams[0].layouts[0].html, line 2: a layout can only use"),
        ("", A + LAYOUT.replace("<p>", "{{customer.x}}"), "teams[0].layouts[0].html, line 1: a layout can only use"),
        (B + LAYOUT, A + LAYOUT, "teams[0].layouts[0].id: lay_a belongs to another team"),
        (
            "",
            A + MAIL + GERMAN.replace("html", "text"),
            "teams[0].templates[0].locales.de-AT.html: it lacks its html",
        ),
        (
            "",
            A + MAIL + GERMAN.replace("<b>", "\\n{{#if customer.x}}"),
            "teams[0].templates[0].locales.de-AT.html, line 2: {{#if}} is not closed",
        ),
        (
            "",
            A + MAIL.replace("hi", "{{customer.x}}") + 'variables = ["x"]\n' + GERMAN,
            "teams[0].templates[0].locales.de-AT: it does not use x",
        ),
        ("", A + MAIL + 'timezone = "Vienna"', "teams[0].templates[0].timezone: 'Vienna' is not a time zone"),
        ("", A + KEY + 'passthrough = "tpl_x"', "teams[0].keys[0].passthrough: tpl_x is no template of the team"),
        ("", A + 'passthrough = "tpl_a"\n' + TEMPLATE, "teams[0].passthrough: tpl_a has 0 variables"),
        (B + TEMPLATE, A + 'passthrough = "tpl_a"', "teams[0].passthrough: tpl_a is no template of the team"),
        (
            A + TEMPLATE,
            A + TEMPLATE.replace("sms", "email") + 'subject = "S"\ntext = "T"\n',
            "teams[0].templates[0].channel: tpl_a is a template for sms; use another id for a new template",
        ),
        ("", A + 'opt_out = { words = ["Unstop!"] }', "teams[0].opt_out.start_words: a text with 'UNSTOP' would"),
        (
            A + 'opt_out = { words = ["ENDE"] }',
            A + 'opt_out = { start_words = ["START", "ende 2"] }',
            "teams[0].opt_out.start_words: a text with 'ende 2' would opt out: remove it from one of the lists",
        ),
        ("", A + '[[teams.sender_ids]]\ncountry = "GB"', "teams[0].sender_ids[0].value: is missing"),
        ("", A + A, "teams[1]: is a duplicate of teams[0]"),
        ("", A + "keep_messages_days = 6", "teams[0].keep_messages_days: expected at least 7"),
        (A + "keep_messages_days = 8", A + "keep_content_days = 9", "teams[0].keep_messages_days: expected at least 9"),
        ("", A + DOMAIN + DOMAIN, "teams[0].domains[1]: is a duplicate of teams[0].domains[0]"),
        ("", A + KEY + KEY, "teams[0].keys[1]: is a duplicate of teams[0].keys[0]"),
        ("", A + HOOK + HOOK, "teams[0].webhooks[1]: is a duplicate of teams[0].webhooks[0]"),
        (A + HOOK, A + HOOK + HOOK, "teams[0].webhooks[1]: is a duplicate of teams[0].webhooks[0]"),
        (
            "",
            A + TEMPLATE.replace("Hi", "{{customer.x}}"),
            "teams[0].templates[0].body, line 1: {{customer.x}} is not in variables",
        ),
        ("", A + OWN + B + DOMAIN, "teams[1].domains[0].name: a.test is a verified domain of another team"),
        (A + OWN, B + DOMAIN, "teams[0].domains[0].name: a.test is a verified domain of another team"),
        (
            A + DOMAIN,
            B + DOMAIN.replace("a.test", "b.test"),
            "teams[0].domains[0].id: dom_a belongs to another team",
        ),
        (
            A + DOMAIN,
            A + DOMAIN.replace("dom_a", "dom_b"),
            "teams[0].domains[0].id: a.test already has the id dom_a",
        ),
        (
            A + DOMAIN,
            A + DOMAIN.replace("a.test", "b.test"),
            "teams[0].domains[0].name: dom_a is the id of the domain a.test",
        ),
        (
            A + DOMAIN + '[[teams.domains.display_names]]\nid = "dn_a"\nname = "N"',
            A
            + DOMAIN.replace("dom_a", "dom_b").replace("a.test", "b.test")
            + '[[teams.domains.display_names]]\nid = "dn_a"\nname = "N"',
            "teams[0].domains[0].display_names[0].id: dn_a belongs to the domain dom_a",
        ),
        (A + TEMPLATE, B + TEMPLATE, "teams[0].templates[0].id: tpl_a belongs to another team"),
        *(
            (before, after, "teams[0].inbound[0].address: in.a.test is neither a domain verified by team_")
            for before, after in (
                ("", A + DOMAIN + INBOUND),
                ("", A + OWN.replace("a.test", "in.b.test") + INBOUND),
                (A + OWN, B + INBOUND),
                (B + OWN.replace("a.test", "in.a.test"), A + OWN.replace("dom_a", "dom_b") + INBOUND),
            )
        ),
        (
            A + KEY + f'token = "{TOKEN}"',
            B + KEY + f'token = "{TOKEN}"',
            "teams[0].keys[0].token: is used by another key",
        ),
        (
            A,
            A + KEY + f'token = "{TOKEN}"\n[[teams.keys]]\nname = "b"\ntoken = "{TOKEN}"',
            "teams[0].keys[1]: is a duplicate of",
        ),
        (
            "",
            MX + POOL.replace("2.1", "2.9"),
            "carriers[0].pools.bulk.source_ips[0]: 192.0.2.9 is not in source_ips of the carrier",
        ),
        (
            MX + POOL,
            MX.replace("2.1", "2.3"),
            "carriers[0].pools.bulk.source_ips[0]: 192.0.2.1 is not in source_ips of the carrier",
        ),
        *(
            (
                "",
                MX + POOL + f'overflow = "{id_}"',
                f"carriers[0].pools.bulk.overflow: '{id_}' is not the id of another",
            )
            for id_ in ("mx", "relay")
        ),
        (MX + POOL, A + 'pool = "slow"', "teams[0].pool: no carrier has a pool 'slow'. Known pools: bulk, default"),
        (
            A + 'categories = ["news"]\n' + NEWS,
            A + "categories = []",
            "teams[0].categories: The template tpl_news has the category news",
        ),
    ],
)
def test_a_file_that_cannot_be_applied_is_refused_with_its_place(first: str, second: str, message: str) -> None:
    _, setup = apply(first)
    with pytest.raises(SetupError) as refused:
        apply(second, setup)
    assert str(refused.value).startswith(f"FILE: {message}")


def test_inbound_mail_goes_to_the_team_that_verified_the_domain() -> None:
    inbound = INBOUND + '[[teams.inbound]]\naddress = "Help@A.test"\n'
    first, setup = apply(A + OWN + inbound)
    assert first.changed[-2:] == ["inbound *@in.a.test of team_a: created", "inbound help@a.test of team_a: created"]
    assert apply(A + OWN + inbound, setup)[0].changed == []

    def whose(setup: Setup, address: str) -> str | None:
        parsed = parse_address(address)
        team = setup.inbound_team(parsed) if parsed else None
        return team.record.id if team else None

    addresses = ["x@in.a.test", "HELP@a.test", "help@in.a.test", "other@a.test", "help@b.test", "x@y.in.a.test"]
    assert [whose(setup, item) for item in addresses] == ["team_a", "team_a", "team_a", None, None, None]
    lost = apply(A + OWN.replace("true", "false"), setup)[1]
    assert [whose(lost, item) for item in addresses] == [None] * 6
    selected = apply(B + OWN.replace("dom_a", "dom_b").replace("a.test", "in.a.test"), setup, 2)[1]
    assert whose(selected, "x@in.a.test") is None


def test_restrictions_of_a_key_are_replaced_as_a_whole_and_removed_by_an_empty_table() -> None:
    def restrictions(setup: Setup, token: str = TOKEN) -> KeyRestrictions | None:
        return setup.callers[parse_token(token) or ""].key.restrictions

    key = A + KEY + f'token = "{TOKEN}"\n'
    _, setup = apply(key + '[teams.keys.restrictions]\nrecipients = ["+49*"]\nspend_per_day = "1.50"')
    assert restrictions(setup) == KeyRestrictions(recipients=("+49*",), spend_per_day=1_500_000)
    unchanged, setup = apply(key, setup)
    assert unchanged.changed == []
    changed, setup = apply(key + "[teams.keys.restrictions]\nper_day = 5", setup)
    assert changed.changed == ["key server of team_a: changed (restrictions)"]
    assert restrictions(setup) == KeyRestrictions(per_day=5)
    _, setup = apply(A + KEY + f'token = "{OTHER_TOKEN}"', setup)
    replaced = setup.callers[parse_token(OTHER_TOKEN) or ""].key
    assert (replaced.restrictions, replaced.counts_as) == (KeyRestrictions(per_day=5), parse_token(TOKEN))
    _, setup = apply(A + KEY + f'token = "{OTHER_TOKEN}"\n[teams.keys.restrictions]', setup)
    assert restrictions(setup, OTHER_TOKEN) is None


def test_invalid_restrictions_in_a_file_are_refused_by_path() -> None:
    with pytest.raises(SetupError, match=re.escape("teams[0].keys[0].restrictions.per_hour: expected a whole number")):
        apply(A + KEY + "[teams.keys.restrictions]\nper_hour = -1")


def test_a_pool_is_planned_with_its_carrier_and_its_team() -> None:
    created, setup = apply(MX + POOL + A + 'pool = "bulk"\n')
    assert created.changed == ["carrier mx: created", "team team_a: created"]
    assert setup.teams["team_a"].record.pool == "bulk"
    created, setup = apply(MX + '[carriers.providers."*"]\nper_minute = 10\n', setup)
    assert created.changed == ["carrier mx: changed (options)"]
    (carrier,) = setup.carriers
    assert carrier.options["pools"] == {"bulk": {"source_ips": ["192.0.2.1"]}}
