import re
from pathlib import Path

import msgspec
import pytest

from heliograph.domain.mail.address import Address
from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS, MxOptions, option_names
from heliograph.domain.setup.keys import make_token
from heliograph.domain.setup.setup_file import SetupError, parse_setup_file
from heliograph.domain.setup.source_options import ProviderLimits, SourceAddress, SourcePool, Warmup

EXAMPLE = Path(__file__).with_name("setup_example.toml").read_text()
TOKEN = make_token(bytes(range(64)))


def test_the_example_of_the_contract_is_read() -> None:
    file = parse_setup_file(EXAMPLE, {})
    assert file.platform["verify_price"] == {"USD": 50_000, "EUR": 45_000}
    assert file.carriers[0]["options"] == {}
    (team,) = file.teams
    assert team["credit"] == 25_000_000
    assert team["templates"][0]["prices"] == {"GB": 10_000}
    assert team["recipients"] == [{"address": "me@example.com"}]
    assert team["suppressions"] == [
        {"email": Address("gone@example.com", "gone@example.com", "example.com"), "reason": "bounce"}
    ]
    assert team["webhooks"][0]["events"] == ("*",)


def test_empty_setup_file_changes_nothing() -> None:
    file = parse_setup_file("", {})
    assert (file.platform, file.carriers, file.teams) == ({}, [], [])


TEAM = '[[teams]]\nid = "team_a"\nname = "A"\n'
CARRIER = '[[carriers]]\nid = "c"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[platform\n", "Expected ']' at the end of a table declaration (at line 1, column 10)"),
        ("a = 1\n\nb =\n", "(at line 3, column 4)"),
        ("colour = 1", "colour: is an unknown field. Known fields: platform, carriers, teams"),
        ("teams = 5", "teams: expected a list, got a whole number"),
        ("teams = [5]", "teams[0]: expected a table, got a whole number"),
        ("[platform]\npaused = true", "platform.paused: is an unknown field"),
        ('[platform]\nsender = "Me <a@b.test>"', "platform.sender: expected an email address"),
        ("[platform]\nsandbox_per_day = -1", "platform.sandbox_per_day: expected a whole number from 0"),
        ("[platform.prices]\nemail = {}", "platform.prices.email: expected"),
        ('[platform.prices.sms]\nUSD = "1"', "platform.prices.sms.USD: expected a table"),
        ('[platform.prices.sms.USD]\nXX = "1"', "platform.prices.sms.USD.XX: expected ISO codes such as GB"),
        ('[platform.prices.sms.USD]\nUK1 = "1"', "platform.prices.sms.USD.UK1: expected ISO codes such as GB"),
        ('[platform]\nbrand = "a\\nb"', "platform.brand: expected one line"),
        ('[platform]\nverify_price = { usd = "1" }', "platform.verify_price.usd: expected a currency"),
        (
            "[platform]\nverify_price = { USD = 0.05 }",
            "platform.verify_price.USD: expected a string, got a number",
        ),
        ('[platform]\nverify_price = { USD = "-1" }', "platform.verify_price.USD: '-1' is not an amount"),
        ('[[teams]]\nname = "A"', "teams[0].id: is missing"),
        ('[[teams]]\nid = "acme"', "teams[0].id: expected an id such as team_acme"),
        ('[[teams]]\nid = "team_a b"', "teams[0].id: expected an id"),
        ('[[teams]]\nid = "team_a\\n"', "teams[0].id: expected an id"),
        (TEAM + 'mode = "test"', "teams[0].mode: expected 'sandbox' or 'live', got 'test'"),
        (TEAM + "suspended = 1", "teams[0].suspended: expected true or false, got a whole number"),
        (TEAM.replace('"A"', "2026-12-01"), "teams[0].name: expected a string, got a date"),
        (TEAM.replace('"A"', "2026-12-01T10:00:00Z"), "teams[0].name: expected a string, got a date and time"),
        (TEAM.replace('"A"', "10:00:00"), "teams[0].name: expected a string, got a time"),
        (TEAM + "attachment_types = [2026-12-01]", "teams[0].attachment_types[0]: expected a string, got a date"),
        (TEAM + 'currency = "usd"', "teams[0].currency: expected a currency such as USD, got 'usd'"),
        (TEAM + "credit = 25", "teams[0].credit: expected a string, got a whole number"),
        (TEAM + "email_quota = -1", "teams[0].email_quota: expected a whole number from 0"),
        (TEAM + f"email_quota = {2**64}", "teams[0].email_quota: expected a whole number from 0"),
        (TEAM + "keep_content_days = 0", "teams[0].keep_content_days: expected a whole number from 1 to 90, got 0"),
        (TEAM + "keep_content_days = 91", "teams[0].keep_content_days: expected a whole number from 1 to 90, got 91"),
        (TEAM + "keep_messages_days = 0", "teams[0].keep_messages_days: expected a whole number from 1 to 3650, got 0"),
        (TEAM + "keep_messages_days = 3651", "teams[0].keep_messages_days: expected a whole number from 1 to 3650"),
        (TEAM + "rate_limit = true", "teams[0].rate_limit: expected a whole number, got true or false"),
        (TEAM + 'features = ["verfy"]', "teams[0].features[0]: expected 'verify', got 'verfy'"),
        (TEAM + 'verify = { countries = ["gb"] }', "teams[0].verify.countries[0]: expected ISO codes"),
        (TEAM + 'verify = { countries = ["DE", "UK"] }', "teams[0].verify.countries[1]: expected ISO codes"),
        ('[[carriers]]\nid = "a"\nchannel = "sms"\nkind = "simulator"\ncountries = ["UK"]', "carriers[0].countries[0]"),
        (TEAM + "verify = { channels = [] }", "teams[0].verify.channels: expected at least one, got an empty list"),
        (TEAM + 'keys = [{ name = "a", scopes = [] }]', "teams[0].keys[0].scopes: expected at least one"),
        (TEAM + "verify = { per_day = 1 }", "teams[0].verify.per_day: is an unknown field"),
        (TEAM + '[[teams.domains]]\nbrand = "A"', "teams[0].domains[0].name: is missing"),
        (
            TEAM + '[[teams.domains]]\nname = "a.test"\n[[teams.domains]]\nname = "not a domain"',
            "teams[0].domains[1].name: expected a domain such as acme.test, got 'not a domain'",
        ),
        (
            TEAM + '[[teams.domains]]\nname = "a.test"\nid = "acme"',
            "teams[0].domains[0].id: expected an id such as dom_",
        ),
        (
            TEAM + '[[teams.domains]]\nname = "a.test"\n[[teams.domains.display_names]]\nname = "a\\u202eb"',
            "teams[0].domains[0].display_names[0].name: expected one line",
        ),
        (
            TEAM + '[[teams.templates]]\nid = "welcome"',
            "teams[0].templates[0].id: expected an id such as tpl_",
        ),
        (TEAM + '[[teams.templates]]\nchannel = "fax"', "teams[0].templates[0].channel: expected 'email' or"),
        (
            TEAM + '[[teams.templates]]\nprices = { uk = "1" }',
            "teams[0].templates[0].prices.uk: expected a country",
        ),
        (TEAM + '[[teams.templates]]\nprice = "1,5"', "teams[0].templates[0].price: '1,5' is not an amount"),
        (
            TEAM + "[[teams.templates]]\nvariables = [{ list = [] }]",
            "teams[0].templates[0].variables[0].name: is missing",
        ),
        (
            TEAM + '[[teams.templates]]\nvariables = ["a", { name = "x", list = [] }]',
            "teams[0].templates[0].variables[1].list: expected at least one",
        ),
        (
            TEAM + '[[teams.templates]]\nvariables = [{ name = "x", list = ["a"], max = 201 }]',
            "teams[0].templates[0].variables[0].max: expected a whole number from 1 to 200, got 201",
        ),
        (
            TEAM + "[[teams.templates]]\nvariables = [1]",
            "teams[0].templates[0].variables[0]: expected a string or a table",
        ),
        (TEAM + '[[teams.templates]]\nlocale = "de_AT"', "teams[0].templates[0].locale: expected a language tag"),
        (
            TEAM + "[[teams.templates]]\n[teams.templates.locales.de_AT]",
            "teams[0].templates[0].locales.de_AT: expected a language tag",
        ),
        (
            TEAM + "[[teams.templates]]\n[teams.templates.locales.de]\n[teams.templates.locales.DE]",
            "teams[0].templates[0].locales.DE: occurs twice",
        ),
        (
            TEAM + "[[teams.templates]]\n[teams.templates.locales.de]\nhtm = 1",
            "teams[0].templates[0].locales.de.htm: is an unknown field",
        ),
        (
            TEAM + '[[teams.templates]]\nlayout = "x"',
            "teams[0].templates[0].layout: expected a layout id such as lay_",
        ),
        (TEAM + '[[teams.layouts]]\nid = "x"', "teams[0].layouts[0].id: expected an id such as lay_"),
        (TEAM + "[[teams.keys]]", "teams[0].keys[0].name: is missing"),
        (
            TEAM + '[[teams.keys]]\nname = "k"\nscopes = ["all"]',
            "teams[0].keys[0].scopes[0]: expected 'send' or 'manage'",
        ),
        (TEAM + '[[teams.webhooks]]\nurl = "ftp://x"', "teams[0].webhooks[0].url: expected http:// or https://"),
        (TEAM + '[[teams.webhooks]]\nurl = "http://["', "teams[0].webhooks[0].url: the host is not valid"),
        (TEAM + '[[teams.webhooks]]\nurl = "http://2130706433"', "teams[0].webhooks[0].url: not an IP address"),
        (TEAM + '[[teams.webhooks]]\nevents = ["*"]', "teams[0].webhooks[0].url: is missing"),
        (TEAM + '[[teams.webhooks]]\nurl = "http://x"\nevents = []', "teams[0].webhooks[0].events: events is empty"),
        (
            TEAM + '[[teams.webhooks]]\nurl = "http://x"\nenabled = true',
            "teams[0].webhooks[0].enabled: is an unknown field",
        ),
        (
            TEAM + '[[teams.webhooks]]\nurl = "http://x"\nformat = "mailgun"',
            "teams[0].webhooks[0].format: There is no format 'mailgun'. Known: heliograph, postal, postmark, resend, ",
        ),
        (TEAM + "credit_low = 5", "teams[0].credit_low: expected a string"),
        (
            TEAM + '[[teams.webhooks]]\nurl = "http://x"\nevents = ["email.opened"]',
            "teams[0].webhooks[0].events: There is no event 'email.opened'",
        ),
        (
            TEAM + '[[teams.suppressions]]\nemail = "nobody"',
            "teams[0].suppressions[0].email: expected an email",
        ),
        (
            TEAM + '[[teams.suppressions]]\nemail = "bounced@simulator.test"',
            "teams[0].suppressions[0].email: 'bounced@simulator.test' is a test address",
        ),
        (
            TEAM + '[[teams.suppressions]]\nemail = "a@b.test"\nreason = "angry"',
            "teams[0].suppressions[0].reason: expected 'bounce' or 'complaint' or 'manual', got 'angry'",
        ),
        (
            TEAM + '[[teams.recipients]]\naddress = "0151 234"',
            "teams[0].recipients[0].address: expected an email address or",
        ),
        (
            TEAM + '[[teams.sender_ids]]\ncountry = "GB"\nvalue = "MUCH TOO LONG"',
            "teams[0].sender_ids[0].value: expected a sender",
        ),
        (
            TEAM + '[[teams.sender_ids]]\ncountry = "UKR"',
            "teams[0].sender_ids[0].country: expected a country",
        ),
        (CARRIER + 'kind = "simulator"', "carriers[0].channel: is missing"),
        (
            CARRIER + 'channel = "email"\nkind = "smpp"',
            "carriers[0].kind: 'smpp' is not a carrier kind for email. Known kinds: smtp, mx, simulator",
        ),
        (
            CARRIER + 'channel = "email"\nkind = "smtp"\nhost = "relay.test"',
            "carriers[0].kind: 'smtp' is not supported by this version; use 'simulator'",
        ),
        (CARRIER + 'channel = "sms"\nkind = "simulator"\nhost = "x"', "carriers[0].host: is an unknown field"),
        (
            CARRIER + 'channel = "sms"\nkind = "simulator"\noptions = {}',
            "carriers[0].options: is an unknown field",
        ),
        (
            CARRIER + 'channel = "sms"\nkind = "simulator"\nstep_ms = -5',
            "carriers[0].step_ms: expected a whole number",
        ),
        (
            '[[carriers]]\nid = "A"\nchannel = "sms"\nkind = "simulator"',
            "carriers[0].id: expected an id of a-z, 0-9 and -",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SetupError) as refused:
        parse_setup_file(text, {}, name="setup.toml")
    assert str(refused.value).startswith("setup.toml: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_file_with_excessive_size_or_nesting_is_refused(text: str) -> None:
    with pytest.raises(SetupError):
        parse_setup_file(text, {})


@pytest.mark.parametrize(
    "wrong",
    [
        f'[[teams.keys]]\nname = "k"\ntoken = "{TOKEN[:-1]}x"',
        '[[teams.webhooks]]\nurl = "http://x"\nsecret = "hunter2"',
        '[[teams.webhooks]]\nurl = "http://x"\nsecret = "whsec_ä"',
    ],
)
def test_error_does_not_repeat_an_invalid_secret(wrong: str) -> None:
    secret = wrong.rpartition("= ")[2].strip('"')
    with pytest.raises(SetupError) as refused:
        parse_setup_file(TEAM + wrong, {})
    assert "[0].token: " in str(refused.value) or "[0].secret: " in str(refused.value)
    assert secret not in str(refused.value)


# The fields of each real kind as contract 14 lists them, in TOML.
REAL_CARRIERS = {
    ("email", "mx"): """
        helo = "mx.acme.test"
        source_ips = [
            "192.0.2.1",
            { address = "192.0.2.2", warmup = { from = 2026-12-01, days = 30, start = 50 } },
        ]
        providers = { google = { per_minute = 600, connections = 10 }, "*" = { messages_per_connection = 20 } }
        pools = { bulk = { source_ips = ["192.0.2.2"], overflow = "relay" } }
        tls = "required"
        per_host = 2
        port = 25
        resolver = "127.0.0.1:53"
        allow_private = ["10.0.0.0/8"]
    """,
    ("email", "smtp"): """
        host = "relay.test"
        port = 587
        tls = "starttls"
        username = "u"
        password = { env = "SECRET" }
        connections = 4
        final = true
        provider = "ses"
        callback_secret = { env = "SECRET" }
        callback_key = "MFkw"
        callback_topic = "arn:aws:sns:eu-central-1:1:t"
        callback_cert = "sns.pem"
    """,
    ("sms", "smpp"): """
        host = "smsc.test"
        port = 2775
        tls = false
        system_id = "id"
        password = { env = "SECRET" }
        system_type = ""
        window = 10
        throughput = 50
        source_addr = "ACME"
        long = "udh"
        receipt_id = "same"
        uncertain = "resend"
        opted_out = ["0x0000040b"]
    """,
    ("sms", "twilio"): """
        base_url = "https://api.twilio.com"
        account_sid = "AC1"
        auth_token = { env = "SECRET" }
        signing_key = { env = "SECRET" }
        from = "+15005550006"
        uncertain = "lookup"
    """,
    ("sms", "http"): """
        url = "https://sms.test/send"
        from = "ACME"
        method = "POST"
        headers = { Authorization = { env = "SECRET" } }
        body = "{}"
        accepted = { status = [200, 202], id = "$.message_id" }
        refused = { status = [400, 422], text = "$.error" }
        callback = { id = "$.id", status = "$.status", delivered = ["DELIVRD"], failed = ["UNDELIV"] }
        callback_secret = { env = "SECRET" }
        callback_check = "signature"
        callback_timestamp = "$.at"
        incoming = { from = "$.from", to = "$.to", text = "$.text" }
        uncertain = "stop"
    """,
    ("whatsapp", "cloud_api"): """
        base_url = "https://graph.facebook.com"
        phone_number_id = "1"
        access_token = { env = "SECRET" }
        app_secret = { env = "SECRET" }
        verify_token = { env = "SECRET" }
        uncertain = "resend"
    """,
    ("email", "simulator"): "step_ms = 0",
    ("sms", "simulator"): "step_ms = 0",
    ("whatsapp", "simulator"): "step_ms = 0",
}


@pytest.mark.parametrize("kind", CARRIER_KINDS)
def test_every_kind_of_carrier_takes_its_own_fields(kind: tuple[str, str]) -> None:
    text = CARRIER + f'channel = "{kind[0]}"\nkind = "{kind[1]}"\n' + REAL_CARRIERS[kind]
    (carrier,) = parse_setup_file(text, {"SECRET": "s3cret"}, supported=CARRIER_KINDS).carriers
    assert carrier["options"].keys() == set(option_names(kind))
    assert ("SECRET" in REAL_CARRIERS[kind]) == ("s3cret" in str(carrier["options"]))


MX = CARRIER + 'channel = "email"\nkind = "mx"\n'


def test_source_addresses_and_limits_are_read() -> None:
    (carrier,) = parse_setup_file(MX + REAL_CARRIERS["email", "mx"], {}, supported=CARRIER_KINDS).carriers
    options = msgspec.convert(carrier["options"], MxOptions)
    warmup = Warmup(since="2026-12-01", days=30, start=50)
    assert options.source_ips == ["192.0.2.1", SourceAddress(address="192.0.2.2", warmup=warmup)]
    assert options.providers == {
        "google": ProviderLimits(per_minute=600, connections=10),
        "*": ProviderLimits(messages_per_connection=20),
    }
    assert options.pools == {"bulk": SourcePool(source_ips=["192.0.2.2"], overflow="relay")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[carriers.providers.gogle]\nper_minute = 1", "providers.gogle: is an unknown provider. Known providers: goo"),
        ("[carriers.providers.google]\nper_minute = 0", "providers.google.per_minute: expected a whole number from 1"),
        (
            "[carriers.providers.google]\nper_hour = 1",
            "providers.google.per_hour: is an unknown field. Known fields: p",
        ),
        ("[carriers.pools.bulk]", "pools.bulk.source_ips: is missing"),
        ("[carriers.pools.bulk]\nsource_ips = []", "pools.bulk.source_ips: expected at least one, got an empty list"),
        ('[carriers.pools.bulk]\nsource_ips = ["192.0.2"]', "pools.bulk.source_ips[0]: '192.0.2' does not appear to"),
        ('[carriers.pools."A b"]\nsource_ips = ["192.0.2.1"]', "pools.A b: expected a pool name of a-z, 0-9, _ and -"),
        ('source_ips = ["192.0.2.1", "192.0.2.01"]', "source_ips[1]: "),
        ('source_ips = ["192.0.2.1", { address = "192.0.2.1" }]', "source_ips: 192.0.2.1 occurs twice"),
        ("source_ips = [{ warmup = {} }]", "source_ips[0].address: is missing"),
        ('source_ips = [{ address = "192.0.2.1", warmup = { days = 3 } }]', "source_ips[0].warmup.from: is missing"),
        (
            'source_ips = [{ address = "192.0.2.1", warmup = { from = "soon", days = 3, start = 1 } }]',
            "source_ips[0].warmup.from: expected a date such as 2026-12-01, got 'soon'",
        ),
        (
            'source_ips = [{ address = "192.0.2.1", warmup = { from = 2026-12-01, days = 0, start = 1 } }]',
            "source_ips[0].warmup.days: expected a whole number from 1 to 365, got 0",
        ),
    ],
)
def test_wrong_source_addresses_and_limits_are_refused_with_their_place(text: str, message: str) -> None:
    with pytest.raises(SetupError) as refused:
        parse_setup_file(MX + text, {}, supported=CARRIER_KINDS)
    assert str(refused.value).startswith(f"FILE: carriers[0].{message}")


NEEDED = {
    ("email", "smtp"): ["host"],
    ("sms", "smpp"): ["host", "system_id", "password"],
    ("sms", "twilio"): ["account_sid", "auth_token"],
    ("sms", "http"): ["url"],
    ("whatsapp", "cloud_api"): ["phone_number_id", "access_token"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NEEDED.items() for name in names])
def test_a_carrier_without_a_needed_field_is_refused(kind: tuple[str, str], name: str) -> None:
    lines = [line.strip() for line in REAL_CARRIERS[kind].split("\n")]
    rest = "\n".join(line for line in lines if not line.startswith(f"{name} ="))
    text = CARRIER + f'channel = "{kind[0]}"\nkind = "{kind[1]}"\n' + rest
    with pytest.raises(SetupError, match=rf"carriers\[0\]\.{name}: is missing"):
        parse_setup_file(text, {"SECRET": "s3cret"}, supported=CARRIER_KINDS)


@pytest.mark.parametrize("kind", CARRIER_KINDS)
def test_existing_carrier_may_be_given_in_part(kind: tuple[str, str]) -> None:
    (carrier,) = parse_setup_file(
        CARRIER + "enabled = false", {}, supported=CARRIER_KINDS, existing={"c": kind}
    ).carriers
    assert carrier == {"id": "c", "channel": kind[0], "kind": kind[1], "enabled": False, "options": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id = "c"\ncolour = "red"', "colour: is an unknown field"),
        ('id = "c"\nport = "25"', "port: expected a whole number"),
        ('id = "c"\nkind = "smtp"\nchannel = "email"', "host: is missing"),  # for another kind, all fields are missing
        ('id = "d"\nenabled = false', "channel: is missing"),
        ('id = ["c"]', "channel: is missing"),
    ],
)
def test_partial_carrier_is_validated_with_its_existing_fields(text: str, message: str) -> None:
    with pytest.raises(SetupError, match=rf"carriers\[0\]\.{re.escape(message)}"):
        parse_setup_file(f"[[carriers]]\n{text}", {}, supported=CARRIER_KINDS, existing={"c": ("sms", "smpp")})


def test_a_variable_that_is_not_set_is_refused() -> None:
    text = TEAM + '[[teams.keys]]\nname = "k"\ntoken = { env = "NO_SUCH" }'
    with pytest.raises(SetupError, match=r"teams\[0\]\.keys\[0\]\.token: the environment variable 'NO_SUCH' is"):
        parse_setup_file(text, {"OTHER": "x"})
