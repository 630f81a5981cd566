"""Checks of the documentation against the code: links, commands, tables, and the README's commands, which are run."""

import functools
import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clients.parts_for_python import generated
from clients.types_for_typescript import TARGET, typescript

from heliograph import __version__
from heliograph.api.guides import GUIDES
from heliograph.api.routes import V1
from heliograph.cli.checks.store import POSTGRES_MIN
from heliograph.cli.options import SERVE_FLAGS
from heliograph.domain.delivery.magic_recipients import BEHAVIOURS
from heliograph.domain.delivery.message_states import TRANSITIONS
from heliograph.domain.limits import VERIFICATION_MS, WRONG_CODES_MAX
from heliograph.domain.setup import records
from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS
from heliograph.domain.setup.keys import make_token
from heliograph.domain.verify import verification
from heliograph.settings import NAMES, VARIABLE_PREFIX, Settings, write_settings
from heliograph.web.errors import error_list
from tests.service import Service

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")])
ADRS = sorted((ROOT / "docs" / "internals" / "adr").glob("*.md"))
README_LINES_MAX = 150
DEMO = ROOT / "src" / "heliograph" / "cli" / "demo.toml"

Row = list[str]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def section(page: str, heading: str) -> str:
    """Return the text below a heading, up to the next heading."""
    result = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", read(page), re.M | re.S)
    assert result, f"{page} has no heading {heading!r}"
    return result[1]


def table(text: str) -> list[Row]:
    """Return the cells of the first table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def bare(cell: str) -> str:
    return cell.removeprefix("`").removesuffix("`")


# -- links and commands ------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub derives from headings, and explicit ones."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | {*written(page)}


def written(page: Path) -> list[str]:
    return re.findall(r'<a id="([^"]+)">', page.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_docs_links_resolve(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://")):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    assert broken == []


# -- the users' pages --------------------------------------------------------------------------------------

USERS_PAGES = sorted((ROOT / "docs").glob("*.md"))
REFERENCE_PAGES = {"errors", *GUIDES["Reference"]}  # looked up, not read
GUIDE_WORDS_MAX = 30_000
READER = re.compile(
    r"\bfor (those who|everybody|teams that|products that|(the )?(developers|operators|owners)\b)", re.I
)


def prose(page: Path) -> str:
    """A page's text without comments and code."""
    return re.sub(r"<!--.*?-->|^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)


def test_guides_are_short_enough_to_be_read() -> None:
    words = {page.stem: len(prose(page).split()) for page in USERS_PAGES if page.stem not in REFERENCE_PAGES}
    assert sum(words.values()) <= GUIDE_WORDS_MAX, words


@pytest.mark.parametrize("page", USERS_PAGES, ids=lambda page: page.name)
def test_user_guide_names_its_readers(page: Path) -> None:
    first_paragraph = prose(page).split("\n\n")[1]
    assert READER.search(first_paragraph), first_paragraph


def test_docs_index_lists_every_guide_in_its_group() -> None:
    index = read("docs/README.md").partition("## For contributors")[0]
    listed: dict[str, set[str]] = {}
    for row in table(index):
        if heading := re.fullmatch(r"\*\*(\w+)\*\*", row[0]):
            listed[heading[1]] = set()
        else:
            listed[[*listed][-1]] |= set(re.findall(r"\]\(([\w-]+)\.md\)", row[0]))
    listed["Reference"].discard("errors")  # served as a page of its own
    assert listed == {group: {*names} for group, names in GUIDES.items()}
    assert [*listed] == [*GUIDES]


def test_every_cell_of_the_comparison_has_a_source_or_says_not_found() -> None:
    page, tables = "docs/comparison.md", ("Self-hosted", "Hosted")
    cells = [cell for heading in tables for row in table(section(page, heading)) for cell in row[2:]]
    assert [cell for cell in cells if not re.search(r"\[\d+(, \d+)*\]|not found", cell)] == []
    cited = {number for cited in re.findall(r"\[(\d+(?:, \d+)*)\]", read(page)) for number in cited.split(", ")}
    assert cited == set(re.findall(r"^(\d+)\. ", section(page, "Sources"), re.M))


CHANGELOG_LINES_MAX = 80


def test_changelog_of_the_first_release_is_short() -> None:
    first_release = read("CHANGELOG.md").partition("\n## 0.1.0 ")[2]
    assert len(first_release.splitlines()) <= CHANGELOG_LINES_MAX
    assert "previously" not in first_release.lower()  # nobody had an earlier version


@functools.cache
def folders(place: Path) -> list[Path]:
    """Return the folder and its subfolders, except those that are not ours, such as .venv."""
    shown = [folder for folder in place.glob("*/") if not folder.name.startswith(".")]
    return [place, *(below for folder in shown for below in folders(folder))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_docs_make_targets_and_files_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) - targets == set()
    places = [ROOT, ROOT / "src" / "heliograph", *(page.parents[:1])]
    named = re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|sql|toml|md))`", text)
    named += re.findall(
        r"`((?:domain|texts|accept|deliver|carriers|templates|webhooks|inbound|storage|api|cli|tests|docs)/[\w./-]*)`",
        text,
    )
    missing = {
        name for name in named if not any((folder / name).exists() for place in places for folder in folders(place))
    }
    assert missing - {"setup.toml"} == set()  # the reader's own file


def test_adrs_are_numbered_without_gaps_and_listed() -> None:
    assert [int(path.name[:4]) for path in ADRS] == list(range(1, len(ADRS) + 1))
    listed = re.findall(r"^\| \[(\d{4})\]\(adr/(.+?)\) \|", read("docs/internals/architecture.md"), re.M)
    assert [(path.name[:4], path.name) for path in ADRS] == listed
    for path in ADRS:
        text = path.read_text("utf-8")
        assert text.startswith(f"# {path.name[:4]}: ")
        assert "**Problem.**" in text and "**Choice.**" in text and "**Consequences.**" in text


# -- citations ---------------------------------------------------------------------------------------------

CITED_PAGES = [ROOT / "docs" / "internals" / name for name in ("contract.md", "reliability.md")]

NUMBER = r"[0-9]+(?:\.[0-9]+)*"
SECTIONS = re.compile(rf"\b(spec|contract)\s+({NUMBER}(?:(?:,|\s+and|\s+to)\s+{NUMBER})*)", re.I)  # spec 3.2, 8
PARTS = re.compile(r"\breliability, ([a-z ]+)", re.I)
PROMISES = re.compile(r"(?<![\w-])P[0-9]+\b")


def cited(text: str) -> set[str]:
    """Return the anchors that a text cites."""
    sections = [(page, number) for page, numbers in SECTIONS.findall(text) for number in re.findall(NUMBER, numbers)]
    return {
        *(f"{page.lower()}-{number.replace('.', '-')}" for page, number in sections),
        *(f"reliability-{part.strip().lower().replace(' ', '-')}" for part in PARTS.findall(text)),
        *(promise.lower() for promise in PROMISES.findall(text)),
    }


@functools.cache
def cited_anchors() -> set[str]:
    return {anchor for page in CITED_PAGES for anchor in written(page)}


def unresolved(text: str) -> set[str]:
    return cited(text) - cited_anchors()


def test_docs_citations_resolve() -> None:
    files = [path for path in repository() if path.suffix != ".lock"]
    citations = {path.relative_to(ROOT).as_posix(): cited(path.read_text("utf-8", "replace")) for path in files}
    assert {name: missing for name, anchors in citations.items() if (missing := anchors - cited_anchors())} == {}
    assert len(set().union(*citations.values())) > 50  # the patterns still match


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("(spec 4.1.3, contract 9)", set()),
        ("(spec 3.2, 8)", set()),
        ("Spec 7.1 to 7.4, (reliability, SMTP retries), P14", set()),
        (f"spec {4.9}", {"spec-4-9"}),
        (f"spec 4.2, {4.8} and {4.7}", {"spec-4-8", "spec-4-7"}),
        (f"contract {47}", {"contract-47"}),
        (f"P{11}", {"p11"}),
        (f"(reliability, {'luck'})", {"reliability-luck"}),
    ],
)
def test_docs_wrong_citation_is_found(text: str, lost: set[str]) -> None:
    assert unresolved(text) == lost


def test_docs_anchors_are_unique() -> None:
    result = [anchor for page in CITED_PAGES for anchor in written(page)]
    assert len(result) == len(set(result))


# -- tables ------------------------------------------------------------------------------------------------


def test_docs_settings_table_matches_the_code() -> None:
    defaults = write_settings(Settings())
    expected = [
        [
            f"`{name}`",
            f"`--{name.replace('_', '-')}`" if name in SERVE_FLAGS else "–",
            f"`{VARIABLE_PREFIX}{name.upper()}`",
            f"`{defaults[name]}`" if defaults[name] else "–",
        ]
        for name in NAMES
    ]
    assert [row[:4] for row in table(section("docs/configuration.md", "Settings"))] == expected


RESENDS = ("alias", "sender", "reply_to", "fallback", "written", "numbers")  # fields that only Resend's API uses
WANTED = ("wanted", "wanted_refused", "asked_by")  # fields of changes requested in the dashboard

# Heading → the record that it fills, fields of the record that no file sets, fields of the file that no record has.
SETUP_TABLES: dict[str, tuple[type[records.SetupRecord] | None, set[str], set[str]]] = {
    "`[platform]`": (records.Platform, {"paused", "paused_reason"}, set()),
    "`[[carriers]]`": (records.CarrierRecord, {"options", "by_hand"}, set()),
    "`[[teams]]`": (records.TeamRecord, {"ref", "deletes_at", "stays_suspended", *WANTED}, {"credit"}),
    "`verify = { … }` of a team": (records.VerifyLimits, set(), set()),
    "`[teams.opt_out]`": (records.OptOutTexts, set(), set()),
    "`[[teams.domains]]`": (
        records.Domain,
        {"team", "by_dns", "failures", "checked_at", "refused_reason", *WANTED},
        {"private_key", "selector"},
    ),
    "`[[teams.domains.display_names]]`": (records.DisplayName, {"team", "domain", "refused_reason", "asked_by"}, set()),
    "`[[teams.layouts]]`": (records.Layout, {"team", "version", "submitted_at", "refused_reason", "asked_by"}, set()),
    "`[[teams.templates]]`": (
        records.Template,
        {
            "team",
            "version",
            "refused_reason",
            "unfinished",
            "submitted_at",
            "shapes",
            *RESENDS,
        },
        set(),
    ),
    "`[[teams.keys]]`": (
        records.Key,
        {"id", "team", "hash", "revoked", "expires_at", "created_at", "secret", "counts_as"},
        {"token", "hook"},
    ),
    "`[[teams.recipients]]`": (records.Recipient, {"team"}, set()),
    "`[[teams.sender_ids]]`": (records.SenderId, {"team", "refused_reason", *WANTED}, set()),
    "`[[teams.suppressions]]`": (None, set(), {"email", "reason"}),
    "`[[teams.webhooks]]`": (
        records.Webhook,
        {
            "id",
            "team",
            "old_secret",
            "old_until",
            "enabled",
            "description",
            "created_at",
            "disabled_reason",
            "login",
            "private_key",
            "public_key",
            "asked",
        },
        set(),
    ),
}


@pytest.mark.parametrize("heading", SETUP_TABLES)
def test_docs_setup_file_table_matches_the_code(heading: str) -> None:
    record, unset, added = SETUP_TABLES[heading]
    shown = {bare(row[0]): row[1] for row in table(section("docs/configuration.md", heading))}
    fields = {field.name: field for field in msgspec.structs.fields(record)} if record else {}
    assert shown.keys() == (fields.keys() - unset) | added
    for name in fields.keys() - unset:
        if fields[name].required:
            assert shown[name] in ("required", "generated")
        else:
            assert shown[name] == default(name, fields[name])


WORDS_FOR_NOTHING = {"–", "by `tls`", "our address", "the system's", "the setting", "fetched from SNS"}
WORDS_FOR_NOTHING |= {"the platform's brand"}
OWN_ADDRESSES = {"Twilio's", "Meta's"}


def test_every_field_of_every_kind_of_carrier_is_explained() -> None:
    """The first cell names the carrier kind and is empty in its further rows; defaults match the options."""
    shown: dict[str, dict[str, str]] = {}
    kind = ""
    for first, names, defaults, *_ in table(section("docs/configuration.md", "Fields of each carrier kind")):
        kind = bare(first.partition(",")[0]) or kind
        fields = [bare(name) for name in names.split(", ")]
        each = defaults.split(", ") if ", " in defaults else [defaults] * len(fields)
        shown.setdefault(kind, {}).update(zip(fields, each, strict=True))
    assert shown.keys() == {kind[1] for kind in CARRIER_KINDS}
    for kind_, options in CARRIER_KINDS.items():
        fields_of = {field.encode_name: field for field in msgspec.structs.fields(options)}
        assert shown[kind_[1]].keys() == fields_of.keys()
        for name, field in fields_of.items():
            output = shown[kind_[1]][name]
            assert (output == "required") == field.required
            unset = not field.default or isinstance(field.default, msgspec.Struct) or field.default is msgspec.NODEFAULT
            words = OWN_ADDRESSES if name == "base_url" else WORDS_FOR_NOTHING if unset else set()
            assert field.required or output in {default(name, field)} | words, name


def default(name: str, field: msgspec.structs.FieldInfo) -> str:
    created = field.default_factory
    value = field.default if created is msgspec.NODEFAULT else created()
    if value is None:
        return "–"
    if isinstance(value, msgspec.Struct):
        return "see below"
    if name in ("price", "credit_low"):
        value = f"{value / 1_000_000:g}"  # an amount, written as a string
    return f"`{json.dumps(value, ensure_ascii=False)}`"


@pytest.mark.parametrize("channel", TRANSITIONS)
def test_docs_message_states_match_the_code(channel: records.Channel) -> None:
    expected = [
        [f"`{state}`", ", ".join(f"`{target}`" for target in sorted(targets)) or "–"]
        for state, targets in TRANSITIONS[channel].items()
    ]
    assert table(section("docs/states.md", channel)) == expected


def test_every_message_state_is_explained() -> None:
    explained = {bare(row[0]) for row in table(section("docs/states.md", "Messages"))}
    assert explained == {state for moves in TRANSITIONS.values() for state in moves}


# Case of the table → whether the code is right, wrong codes before it, ms after the start.
CHECKS: dict[str, list[tuple[bool, int, int]]] = {
    "right code": [(True, wrong, VERIFICATION_MS - 1) for wrong in range(WRONG_CODES_MAX)],
    "wrong code, the 1st to 4th": [(False, wrong, 0) for wrong in range(WRONG_CODES_MAX - 1)],
    "wrong code, the 5th": [(False, WRONG_CODES_MAX - 1, 0)],
    "any code, 10 minutes after the start or later": [(right, 0, VERIFICATION_MS) for right in (True, False)],
    "any code": [(right, 1, at) for right in (True, False) for at in (0, VERIFICATION_MS)],
}


@pytest.mark.parametrize("row", table(section("docs/states.md", "Verifications")), ids=" ".join)
def test_docs_verification_states_match_the_code(row: Row) -> None:
    before, on, after = bare(row[0]), row[1], bare(row[2])
    for right, wrong, at in CHECKS[on]:
        assert verification.check_code(before, wrong, at, VERIFICATION_MS, right).status == after


def test_every_error_code_is_listed() -> None:
    listed = {(bare(row[1]), row[0]) for row in table(read("docs/errors.md"))}
    assert listed == {(error["code"], str(error["status"])) for error in error_list()}
    assert {error["code"] for error in error_list()} <= set(re.findall(r"`(\w+)`", read("docs/internals/contract.md")))


SPEC_CODES = {  # section 7 of the specification
    "Spec 7.1: POST /v1/emails": """invalid_email missing_body mixed_send_mode sandbox_from_locked invalid_from_address
        display_name_not_approved display_name_id_not_found display_name_id_wrong_domain display_name_id_not_approved
        unsupported_attachment_type from_domain_unverified key_domain_scope no_approved_brand_domain
        recipient_not_allowed recipient_suppressed template_not_found wrong_template_channel idempotency_key_reused
        idempotency_request_in_progress missing_variable unknown_variable""",
    "Spec 7.2: POST /v1/sms": """invalid_phone body_too_long template_id_required template_not_found
        wrong_template_channel missing_variable unknown_variable no_approved_brand_domain recipient_not_allowed
        no_carrier_available""",
    "Spec 7.4: verify": """invalid_phone insufficient_credit feature_not_on_plan verification_not_found
        team_suspended""",
}


@pytest.mark.parametrize("heading", SPEC_CODES)
def test_the_restated_specification_has_exactly_the_codes_of_the_specification(heading: str) -> None:
    rows = table(section("docs/internals/contract.md", heading))
    assert {code for row in rows for code in re.findall(r"`(\w+)`", row[1])} == set(SPEC_CODES[heading].split())


def test_the_contracts_index_names_every_section() -> None:
    page = read("docs/internals/contract.md")
    index = page[page.index("## The contract") : page.index('<a id="contract-1">')]
    numbers = re.findall(r"^### (\d+)\. ", page, re.M)
    assert re.findall(r"\[(\d+) [^]]+\]\(#contract-\1\)", index) == numbers


@pytest.mark.parametrize(
    ("page", "heading"),
    [("docs/internals/contract.md", "13. Simulator and magic recipients"), ("docs/testing.md", "Email")],
)
def test_every_magic_address_is_documented(page: str, heading: str) -> None:
    assert {*BEHAVIOURS} <= {bare(row[0]) for row in table(section(page, heading))}


def test_log_lines_of_the_operators_page_exist() -> None:
    page = read("docs/monitoring.md")
    lines = page[page.index("| line |") :].partition("\n\n")[0]
    named = [name for row in table(lines) for name in re.findall("`(.+?)`", row[0])]
    code = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert [name for name in named if f'"{name}' not in code] == []


def test_every_endpoint_is_in_the_contract() -> None:
    paths = {re.sub(r"\{(\w+)\}", r":\1", route.path) for route in V1}
    assert paths - set(re.findall(r"/[\w/:.-]+", read("docs/internals/contract.md"))) == set()


RECORDS = {
    "key": ["KeyRecord"],
    "webhook": ["WebhookRecord"],
    "delivery": ["DeliveryRecord", "AttemptRecord"],
    "domain": ["DomainView", "RecordView"],
    "timeline event": ["EventView"],
}


@pytest.mark.parametrize(("name", "schemas"), RECORDS.items(), ids=RECORDS)
def test_the_contract_names_every_field_of_a_record(name: str, schemas: list[str]) -> None:
    rows = table(section("docs/internals/contract.md", "12. Reading and managing"))
    [fields] = [fields for first, fields, *_ in rows if first == name]
    components = json.loads(read("docs/openapi.json"))["components"]["schemas"]
    properties = {field for schema in schemas for field in components[schema]["properties"]}
    assert properties - set(re.findall(r"`(\w+)", fields)) == set()


# -- the README's lines ------------------------------------------------------------------------------------


class Example(msgspec.Struct, frozen=True):
    """A curl command of a page and the response shown below it."""

    path: str
    body: Any
    answer: Any


def examples(page: str) -> Iterator[Example]:
    blocks = re.findall(r"^```sh\n(curl .*?)^```\n\s*^```json\n(.*?)^```", read(page), re.M | re.S)
    for command, answer in blocks:
        words = shlex.split(command.replace("\\\n", ""))
        assert words[:2] == ["curl", "-sS"]
        options = list(zip(words[3::2], words[4::2], strict=True))
        assert options[:2] == [("-H", "Authorization: Bearer $KEY"), ("-H", "Content-Type: application/json")]
        assert [name for name, _ in options[2:]] == ["-d"]
        base, _, path = words[2].partition("/v1/")
        assert base == f"http://{Settings().host}:{Settings().port}"
        yield Example(f"/v1/{path}", json.loads(options[2][1]), json.loads(answer))


def steady(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response without values that differ each time; ids keep their prefix."""
    times = {name: "a time" for name in answer if name.endswith("_at")}
    return {**answer, **times, "id": answer["id"][:4]}


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Yield the service with the demo's teams."""
    monkeypatch.setenv("LIVE", make_token(bytes(range(64))))
    with Service(f"sqlite:///{tmp_path / 'heliograph.db'}", tmp_path / "data") as running:
        running.apply(DEMO)
        running.start()
        yield running


CHANNELS = ["/v1/emails", "/v1/sms", "/v1/whatsapp", "/v1/verify", "/v1/verify/$ID/check"]


@pytest.mark.parametrize(("page", "paths"), [("README.md", CHANNELS[:1]), ("docs/start.md", CHANNELS)])
def test_the_first_pages_show_real_answers(demo: Service, page: str, paths: list[str]) -> None:
    shown = list(examples(page))
    assert [example.path for example in shown] == paths
    id_ = ""
    for example in shown:
        answer = demo.post(example.path.replace("$ID", id_), example.body, key=os.environ["LIVE"])
        assert answer.status == (200 if "$ID" in example.path else 202), answer.raw
        assert steady(answer.json) == steady(example.answer)
        id_ = answer.json["id"]


def test_the_readme_is_short_and_its_facts_are_current() -> None:
    readme, project = read("README.md"), tomllib.loads(read("pyproject.toml"))["project"]
    assert len(readme.splitlines()) <= README_LINES_MAX
    assert readme.count("\ncurl ") == 1
    pythons = [
        name.split()[-1] for name in project["classifiers"] if name.startswith("Programming Language :: Python :: 3.")
    ]
    facts = next(line for line in readme.splitlines() if line.startswith("Version "))
    assert facts.startswith(
        f"Version {__version__} (beta) · {project['license']} · Python {pythons[0]} to {pythons[-1]} ·"
    )
    assert project["requires-python"] == f">={pythons[0]}"
    assert f"PostgreSQL {POSTGRES_MIN // 10_000} " in facts


# -- what must not be in the repository --------------------------------------------------------------------

TEXTS = {"", ".md", ".py", ".toml", ".sql", ".lock", ".txt", ".json", ".yml", ".yaml", ".html"}
MACHINE = re.compile("|".join(("/" + "work/", "/" + "tmp/v", "/" + "root", "/" + "home/")))


def repository() -> Iterator[Path]:
    """Yield our text files: without hidden folders except .ci, and without generated files."""
    for entry in ROOT.iterdir():
        if entry.is_file() and entry.name != ".git":  # in a linked worktree it is a file that names this machine
            yield entry
        elif entry.name in (".ci", "bench", "clients", "deploy", "docs", "src", "tests"):
            yield from (path for path in entry.rglob("*") if path.is_file() and path.suffix in TEXTS)


def test_no_machine_paths_and_no_addresses_in_lock_files() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8", "replace") for path in repository()}
    assert {name for name, text in texts.items() if MACHINE.search(text)} == set()
    locks = {name: text for name, text in texts.items() if name.endswith(".lock")}
    assert locks
    assert {name for name, text in locks.items() if re.search("https?://", text)} == set()


def test_the_generated_parts_of_the_clients_are_current() -> None:
    assert TARGET.read_text() == typescript(), "make clients"
    assert {file: file.read_text("utf-8") for file in generated()} == generated(), "make clients"
