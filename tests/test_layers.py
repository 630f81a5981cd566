"""Rules on the structure of src/heliograph: permitted imports, no cycles, one clock, SQL only in its own files."""

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Container, Iterator
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "heliograph"
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

# Part → our own modules that it may import, without exceptions. The first row that matches a file applies;
# docs/internals/architecture.md shows this table.
PURE = "domain/ templates/policy/ webhooks/policy/ inbound/policy/"
STORE = "storage/ templates/store.py webhooks/store.py inbound/store/"
ROOT_FILES = "data_folder.py encryption.py settings.py webhooks/verification.py"
SUBSYSTEMS = "changes/ templates/ webhooks/ inbound/"
MAY_IMPORT: dict[str, str] = {
    PURE: PURE,
    "texts/": f"{PURE} texts/",
    "runtime/": f"{PURE} runtime/",
    "web/ smtp/": f"{PURE} texts/ runtime/ itself",
    "storage/engine/": f"{PURE} runtime/ storage/engine/",
    STORE: f"{PURE} runtime/ storage/engine/ {STORE}",
    "carriers/contract.py": PURE,
    "carriers/": (
        f"{PURE} runtime/ carriers/contract.py carriers/connection_queue.py carriers/http_client.py "
        "carriers/phone_simulator.py channel"
    ),
    "carrier_failover.py": f"{PURE} runtime/ carriers/contract.py {STORE}",
    ROOT_FILES: f"{PURE} {ROOT_FILES}",
    SUBSYSTEMS: f"{PURE} texts/ runtime/ smtp/ carriers/contract.py {STORE} changes/ itself",
    "accept/ manage/ deliver/": (
        f"{PURE} texts/ runtime/ carriers/contract.py carrier_failover.py {STORE} {SUBSYSTEMS} itself"
    ),
    "api/ compat/ submission/ dashboard/": (
        f"{PURE} texts/ runtime/ web/ smtp/ carriers/contract.py carrier_failover.py {STORE} {SUBSYSTEMS} "
        f"accept/ manage/ {ROOT_FILES} itself"
    ),
    "bootstrap.py": f"{PURE} runtime/ {STORE} storage/engine/ {ROOT_FILES}",
    "app.py server.py": (
        f"{PURE} texts/ runtime/ web/ smtp/ carriers/ carrier_failover.py {STORE} {SUBSYSTEMS} accept/ "
        f"manage/ deliver/ api/ compat/ submission/ dashboard/ {ROOT_FILES} bootstrap.py app.py"
    ),
    "__main__.py": "cli/",
    "cli/": "*",
}
STORES = ("storage/", "templates/store.py", "webhooks/store.py", "inbound/store/")
MAY_NAME_STORIES = (*STORES, "bootstrap.py", "cli/")  # other modules use only the records and constants of storage

# Pure computation (ADR 0008)
RULES_LIBRARIES = {"babel", "cryptography", "msgspec", "idna", "mjml", "phonenumbers", "pybase64"}
IMPURE = {"asyncio", "io", "logging", "os", "pathlib", "shutil", "socket", "sqlite3", "subprocess", "threading"}

CHANCE = {"random", "secrets", "time", "uuid"}  # modules
NOW = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("os", "urandom")}
CLOCKS = {
    *("runtime/clock.py", "data_folder.py"),
    "encryption.py",  # a nonce passed as argument could repeat
    *("carriers/email/mx.py", "carriers/email/mx_lookup.py"),  # the order among equal hosts, no secret
    "carriers/email/mime.py",  # calendar of a time passed as argument
    "webhooks/verification.py",  # runs in the receiver's program
}

SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|(CREATE|ALTER|DROP)\s+(TABLE|INDEX))\b", re.S
)
SQL_ALLOWED = {
    "storage/engine/query.py": "what rows(…) expands to",
    "storage/engine/cells.py": "schemas of the database, and tables of Citus",
    "storage/engine/citus.py": "tables of Citus, which plain PostgreSQL does not have",
    "storage/engine/migration_plan.py": "how large the tables are",
    "storage/database_copy.py": "all tables and columns, whatever they are",
    "storage/engine/migrate.py": "the table that says which schema files were applied",
}

SENTENCE = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")
SEARCHING = {
    "startswith",
    "endswith",
    "find",
    "index",
    "count",
    "partition",
    "rpartition",
    "removeprefix",
    "removesuffix",
}
ANSWERING = ("accept/", "api/", "compat/", "submission/", "dashboard/")
WORDS_READ = {
    "storage/engine/s3.py": "the words of an object store's client",
    "carriers/email/providers/postmark.py": "the text of an API error, whose number a bounce does not have",
}

# Roles are decided about by domain/accounts/people.py and manage/people.py; storage has them as texts.
ROLE_NAMES = {"viewer", "developer", "owner", "operator", "read-only operator"}
ROLE_COLUMNS = {"operator", "observer"}

# A page of the dashboard; the API's and other services' paths begin otherwise.
PAGE = re.compile(
    r"/(dashboard|senders|billing|queues|opt-outs|unsubscribes|suppressions|notices|platform|carriers|people"
    r"|templates|webhooks|messages|settings|inbox|team|keys)\b"
)
VERBS = ("accept/", "changes/", "deliver/", "inbound/", "manage/", "storage/", "templates/", "webhooks/")

# Private names of libraries that we use, with the reason; each has a test that fails if the name is removed.
PRIVATE = {
    # the chain of a peer, public since Python 3.13; tests/carriers/test_mx.py
    "carriers/email/tls_policy.py": {"_sslobj"},
    "runtime/metrics.py": {"_buckets", "_sum"},  # to add many observations at once; tests/test_metrics.py
    "storage/engine/postgres.py": {"_transport"},  # to drop a connection that hangs; tests/storage
}
DOCUMENTED = {"_asdict", "_current_frames", "_exit", "_fields", "_replace"}  # public despite the underscore


# -- reading a file ----------------------------------------------------------------------------------------


@functools.cache
def parse(path: str) -> ast.Module:
    return ast.parse((SOURCE / path).read_text("utf-8"), path)


@functools.cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a syntax tree, which is walked once for all rules."""
    return list(ast.walk(tree))


def imported(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Yield every import with the dotted names that it may mean: `from a import b` is a and a.b."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: relative imports hide where a name comes from"
            yield node, node.module or ""
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"


def to_file(name: str) -> str | None:
    """Return the file of a module: heliograph.domain.ids → domain/ids.py; None for packages and other modules."""
    package, _, inner = name.partition(".")
    path = inner.replace(".", "/") + ".py"
    return path if package == "heliograph" and path in FILES else None


def own_imports(tree: ast.AST) -> set[str]:
    return {file for _, name in imported(tree) if (file := to_file(name))}


# -- the rules ---------------------------------------------------------------------------------------------


def fits(path: str, part: str) -> bool:
    return fnmatch(path, part + "*" if part.endswith("/") else part)


def row_of(path: str) -> str | None:
    return next((row for row in MAY_IMPORT if any(fits(path, part) for part in row.split())), None)


def forbidden_arrows(path: str, tree: ast.Module) -> list[str]:
    row = row_of(path)
    assert row, f"{path} has no row in MAY_IMPORT"
    own = {"itself": path.split("/")[0] + "/", "channel": "/".join(path.split("/")[:2]) + "/"}
    allowed = tuple(own.get(part, part) for part in MAY_IMPORT[row].split())

    def is_allowed(target: str) -> bool:
        if target.startswith("storage/engine/"):  # `storage/` does not include `storage/engine/`
            return bool({"storage/engine/", "*"} & {*allowed})
        return any(fits(target, part) for part in allowed)

    return sorted(f"{path} → {target}" for target in own_imports(tree) if not is_allowed(target))


def stories_named(tree: ast.Module) -> list[str]:
    """Return the imports from storage/ that are neither a class nor a constant."""
    stores = tuple("heliograph." + part.removesuffix(".py").replace("/", ".").rstrip(".") + "." for part in STORES)
    result = [name for _, name in imported(tree) if name.startswith(stores)]
    return sorted(name for name in result if to_file(name) is None and name.rpartition(".")[2][0].islower())


def databases_held(tree: ast.Module) -> list[int]:
    """Return the lines that access a store's database; `settings.database` is a URL."""
    return [
        node.lineno
        for node in nodes(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "database"
        and not (isinstance(node.value, ast.Name) and node.value.id in ("settings", "defaults"))
    ]


def impurities(tree: ast.Module) -> list[str]:
    """Return forbidden imports of domain/ and texts/: other libraries, and standard modules with side effects."""
    result = {name.partition(".")[0] for _, name in imported(tree)} - {"heliograph"}
    return sorted(result - ((sys.stdlib_module_names | RULES_LIBRARIES) - IMPURE - CHANCE))


def hidden_imports(tree: ast.Module) -> list[int]:
    """Return the lines inside functions that import our own package."""
    functions = [node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.lineno for f in functions for node, name in imported(f) if name.split(".")[0] == "heliograph"]


def clocks_and_chance(tree: ast.Module) -> list[str]:
    result = [name for _, name in imported(tree) if name.split(".")[0] in CHANCE or name == "os.urandom"]
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (owner, node.attr) in NOW:
                result.append(f"{owner}.{node.attr}")
    return result


def private_names(tree: ast.Module) -> set[str]:
    """Return attributes and imports with a leading underscore that the file does not define itself."""
    own = {node.name for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    attributes = [node for node in nodes(tree) if isinstance(node, ast.Attribute)]
    own |= {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")}
    own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    used = {node.attr for node in attributes} - own
    used |= {part for _, name in imported(tree) if not name.startswith("heliograph.") for part in name.split(".")}
    return {name for name in used if name.startswith("_") and not name.startswith("__")} - DOCUMENTED


def calls_of(method: str, tree: ast.Module) -> list[int]:
    """Return the lines that call a method with this name."""
    calls = (node.func for node in nodes(tree) if isinstance(node, ast.Call))
    return [func.lineno for func in calls if isinstance(func, ast.Attribute) and func.attr == method]


def reports_touched(tree: ast.Module) -> list[int]:
    """Return the lines that access `store.reports`."""
    inner = (node.value for node in nodes(tree) if isinstance(node, ast.Attribute))
    return [node.lineno for node in inner if isinstance(node, ast.Attribute) and node.attr == "reports"]


def doors_beside(tree: ast.Module) -> list[str]:
    """Return code that authenticates keys or applies rate limits outside of the admission module."""
    keyed = ("heliograph.domain.setup.keys.authenticate", "heliograph.accept.rate.RateLimits")
    named = [name for _, name in imported(tree) if name in keyed]
    called = [
        f"line {node.lineno}"
        for node in nodes(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "authenticate"
        and isinstance(node.value, ast.Name)
        and node.value.id == "keys"
    ]
    return named + called


def role_decisions(tree: ast.Module) -> list[str]:
    """Return code that decides by a role: imports or compares a role, uses a role column, or refuses a change."""
    forbidden = ("heliograph.domain.accounts.idp_groups", "heliograph.domain.refusals.InvalidRequest")
    result = [name for _, name in imported(tree) if name.startswith(forbidden)]
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in ROLE_COLUMNS:
            result.append(node.attr)
        elif isinstance(node, ast.Compare):
            sides = {item.value for item in [node.left, *node.comparators] if isinstance(item, ast.Constant)}
            result += [name for name in ROLE_NAMES if name in sides]
    return result


def sql_texts(tree: ast.Module) -> list[str]:
    """Return string constants, except docstrings, that look like SQL; an f-string is read as one text."""
    docstrings = {
        node.body[0].value
        for node in nodes(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = []
    for node in nodes(tree):
        if isinstance(node, ast.JoinedStr):
            texts.append("".join(str(p.value) if isinstance(p, ast.Constant) else " x " for p in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            texts.append(node.value)
    return [text for text in texts if SQL.search(text)]


def answers_decoded(tree: ast.Module) -> list[int]:
    """Return the lines that decode our own response bytes; `SendResult` has the record."""
    return [
        node.lineno
        for node in nodes(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("decode", "loads")
        for values in node.args
        if isinstance(values, ast.Attribute) and values.attr in ("body", "response")
    ]


def sentences_in(tree: ast.Module) -> dict[str, str]:
    """Return the constants of a module that are sentences for people: two words or more."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name) and SENTENCE.search(node.value.value)
    }


def known_sentences(tree: ast.Module) -> set[str]:
    """Return the names of sentence constants that a module defines or imports."""
    result = set(sentences_in(tree))
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and (file := to_file(node.module or "")):
            theirs = sentences_in(parse(file))
            result |= {alias.asname or alias.name for alias in node.names if alias.name in theirs}
    return result


def branches_on_words(tree: ast.Module, sentences: Container[str]) -> list[int]:
    """Return the lines that compare with, or search for, a sentence or its constant."""

    def is_sentence(node: ast.AST) -> bool:
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return any(map(is_sentence, node.elts))
        if isinstance(node, ast.Name | ast.Attribute):
            return (node.id if isinstance(node, ast.Name) else node.attr) in sentences
        return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(SENTENCE.search(node.value))

    result = []
    for node in nodes(tree):
        requested: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            requested = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHING:
            requested = node.args
        elif isinstance(node, ast.MatchValue):
            requested = [node.value]
        result += [node.lineno for item in requested if is_sentence(item)]  # type: ignore[attr-defined]
    return result


def cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def loose_seams(tree: ast.Module) -> list[str]:
    """Return public methods that take or return a tuple of fields, or raw rows; `tuple[X, ...]` is a list."""
    return [
        f"{part.name}.{method.name}"
        for part in nodes(tree)
        if isinstance(part, ast.ClassDef)
        for method in part.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_")
        for kind in [ast.unparse(method.args) + " " + ast.unparse(method.returns or ast.Constant(None))]
        if re.search(r"list\[Any\]|tuple\[(?!\w+, \.\.\.\])", kind)
    ]


def repeated(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


# -- our code keeps them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in FILES if path != "__init__.py"])
def test_source_file_respects_the_layer_rules(path: str) -> None:
    tree = parse(path)
    if not path.endswith("__init__.py"):
        assert forbidden_arrows(path, tree) == []
    assert hidden_imports(tree) == []
    if path.startswith(ANSWERING) and path != "compat/postmark/emails.py":  # whose second answer is made of the first
        assert answers_decoded(tree) == []
    if path not in WORDS_READ:
        assert branches_on_words(tree, known_sentences(tree)) == []
    if path.startswith(("texts/", *PURE.split())):
        assert impurities(tree) == []
    assert private_names(tree) == PRIVATE.get(path, set())
    if path != "runtime/resolver.py":  # used by all other modules
        assert [name for _, name in imported(tree) if name in ("dns.resolver", "dns.asyncresolver")] == []
    if path not in CLOCKS:
        assert clocks_and_chance(tree) == []
    if path != "carrier_failover.py":
        assert calls_of("send_message", tree) == []
    if path != "inbound/report_service.py":
        assert reports_touched(tree) == []
    if path not in ("accept/admission.py", "app.py"):  # app.py builds it
        assert doors_beside(tree) == []
    if not path.startswith(MAY_NAME_STORIES):
        assert stories_named(tree) == []
    if not path.startswith(STORES):
        assert databases_held(tree) == []
    elif not path.startswith("storage/engine/"):
        assert loose_seams(tree) == []
        assert role_decisions(tree) == []
    if path not in SQL_ALLOWED:
        assert sql_texts(tree) == []


def test_source_files_have_no_import_cycle() -> None:
    assert cycle({path: own_imports(parse(path)) for path in FILES}) == []


def test_class_names_are_unique() -> None:
    names = [node.name for path in FILES for node in nodes(parse(path)) if isinstance(node, ast.ClassDef)]
    assert repeated(names) == []
    assert repeated(["Carrier", "Report", "Carrier"]) == ["Carrier"]


def test_every_layer_rule_and_exception_is_needed() -> None:
    assert {row_of(path) for path in FILES if not path.endswith("__init__.py")} == set(MAY_IMPORT)
    assert [path for path in SQL_ALLOWED if not sql_texts(parse(path))] == []
    assert [path for path in CLOCKS if not clocks_and_chance(parse(path))] == []


def test_no_edge_may_import_another() -> None:
    edges = ("api/", "compat/", "submission/", "dashboard/")
    assert [part for part in MAY_IMPORT[" ".join(edges)].split() if part.startswith(edges)] == []


def test_the_docs_show_the_same_table() -> None:
    def words(parts: str) -> str:
        return ", ".join(part if part in ("itself", "channel") else f"`{part}`" for part in parts.split())

    rows = [f"| {words(row)} | {words(allowed)} |" for row, allowed in MAY_IMPORT.items()]
    table = "\n".join(["| part | may import of ours |", "|---|---|", *rows])
    assert table in (ROOT / "docs" / "internals" / "architecture.md").read_text("utf-8")


# -- and each rule can fail --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("domain/ids.py", "from heliograph.storage.engine import group_commit"),
        ("domain/ids.py", "import heliograph.runtime.clock"),
        ("domain/ids.py", "from heliograph.texts import explain"),
        ("carriers/sms/simulator.py", "from heliograph.carriers.email import simulator"),
        ("carriers/sms/simulator.py", "from heliograph.storage.store import Store"),
        ("accept/email.py", "from heliograph.deliver.worker import Worker"),
        ("api/health.py", "from heliograph import app"),
        ("runtime/clock.py", "from heliograph import settings"),
        ("accept/email.py", "from heliograph.manage import keys"),
        ("manage/keys.py", "from heliograph.deliver import worker"),
        ("manage/keys.py", "from heliograph.storage.engine.database import Tx"),
        ("dashboard/app.py", "from heliograph.api.keys import list_keys"),
        ("api/app.py", "from heliograph.carriers.email import smtp"),
        ("web/router.py", "from heliograph.storage.store import Store"),
        ("compat/postal/send.py", "from heliograph.api.call import Call"),
        ("submission/intake.py", "from heliograph.api.app import Api"),
        ("smtp/wire.py", "from heliograph.web.budget import ByteBudget"),
        ("carriers/sms/smpp/carrier.py", "from heliograph.smtp.wire import SmtpServerConnection"),
        ("web/route.py", "from heliograph.accept.context import Context"),
        ("server.py", "from heliograph.cli import main"),
    ],
)
def test_forbidden_import_is_detected(path: str, source: str) -> None:
    assert forbidden_arrows(path, ast.parse(source))


@pytest.mark.parametrize(
    "source",
    ["await carrier.send_message(message)", "async def f():\n    (await carriers.get(record)).send_message(message)"],
)
def test_carrier_call_elsewhere_is_detected(source: str) -> None:
    assert calls_of("send_message", ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "from heliograph.domain.setup.keys import authenticate",
        "keys.authenticate(token, setup.callers, now)",
        "from heliograph.accept.rate import RateLimits",
    ],
)
def test_second_accept_entry_point_is_detected(source: str) -> None:
    assert doors_beside(ast.parse(source))


@pytest.mark.parametrize("source", ["await store.reports.by_carrier(a, b)", "partial(self._store.reports.apply_early)"])
def test_second_entry_point_for_reports_is_detected(source: str) -> None:
    assert reports_touched(ast.parse(source))


@pytest.mark.parametrize("source", ["await visit.store.database.read(story)", "database = self._store.database"])
def test_database_access_outside_storage_is_detected(source: str) -> None:
    assert databases_held(ast.parse(source))
    assert not databases_held(ast.parse("open(settings.database)"))


@pytest.mark.parametrize("kind", ["list[Any]", "tuple[int, str]", "dict[str, tuple[int, int]]"])
def test_database_rows_outside_storage_are_detected(kind: str) -> None:
    assert loose_seams(ast.parse(f"class Inbox:\n    async def lines(self) -> {kind}: ...")) == ["Inbox.lines"]
    assert loose_seams(ast.parse(f"class Inbox:\n    def add(self, rows: {kind}) -> None: ...")) == ["Inbox.add"]
    assert not loose_seams(ast.parse("class Inbox:\n    def ids(self) -> tuple[str, ...]: ..."))


def test_transaction_function_outside_storage_is_detected() -> None:
    assert stories_named(ast.parse("from heliograph.storage.inbox import clear")) == ["heliograph.storage.inbox.clear"]
    assert not stories_named(ast.parse("from heliograph.storage.inbox import PAGE, Inbox"))
    assert not stories_named(ast.parse("from heliograph.storage import inbox"))


@pytest.mark.parametrize(
    "source",
    [
        "from heliograph.domain.accounts.idp_groups import OPERATOR",
        "from heliograph.domain.refusals import InvalidRequest",
        "if role != 'owner': ...",
        "if person.operator: ...",
    ],
)
def test_role_decision_in_storage_is_detected(source: str) -> None:
    assert role_decisions(ast.parse(source))


def test_no_query_chooses_by_a_role() -> None:
    texts = "\n".join(path.read_text("utf-8") for path in (SOURCE / "storage" / "queries").glob("*.sql"))
    assert re.findall(r"\brole\s*(?:=|<>|IN)\s*\(?'\w+'", texts) == []


@pytest.mark.parametrize("source", ["import asyncpg", "import os", "from asyncio import sleep", "import time"])
def test_impure_domain_module_is_detected(source: str) -> None:
    assert impurities(ast.parse(source))


def addresses(tree: ast.Module) -> list[str]:
    """Return the texts that are URLs of dashboard pages, complete or relative to a team's or the operators' pages."""
    texts = [node.value for node in nodes(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if PAGE.match(text)]


@pytest.mark.parametrize("path", [path for path in FILES if path.startswith(("domain/", "texts/", *VERBS))])
def test_rules_and_verbs_name_a_subject_and_no_page(path: str) -> None:
    """The caller that builds a mail or page gets URLs from `texts/dashboard_links.py`."""
    assert bool(addresses(parse(path))) == (path == "texts/dashboard_links.py")


@pytest.mark.parametrize(
    "source", ['"/dashboard"', 'f"{base_url}/dashboard/operator"', 'f"/senders/domains/{id_}"', '"/queues"']
)
def test_hard_coded_page_url_is_detected(source: str) -> None:
    assert addresses(ast.parse(source))
    assert not addresses(ast.parse('"/v1/messages"'))


def test_periodic_jobs_are_started_by_their_table_only() -> None:
    """A periodic job that is one call is a row in `app.py`; a file of `jobs/` has a job with logic or a loop."""
    for path in sorted((SOURCE / "deliver" / "jobs").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert path.stem == "periodic" or not names & {"repeat", "every"}, f"{path.name}: its row in app.py repeats it"


def test_each_schema_file_has_a_number_of_its_own() -> None:
    """Of two files with the same number, one would never be applied. 47 is the first."""
    numbers = sorted(int(path.name.partition("_")[0]) for path in (SOURCE / "storage" / "schema").glob("*.sql"))
    assert numbers == list(range(47, 47 + len(numbers)))


@pytest.mark.parametrize(
    "source",
    [
        "datetime.now()",
        "datetime.datetime.utcnow()",
        "date.today()",
        "import random",
        "from time import time_ns",
        "import secrets",
        "os.urandom(8)",
        "from os import urandom",
    ],
)
def test_second_clock_is_detected(source: str) -> None:
    assert clocks_and_chance(ast.parse(source))


@pytest.mark.parametrize(
    "source", ['run("SELECT 1 FROM t")', 'x = f"DELETE FROM {t}"', '"""Doc."""\nx = "UPDATE t SET a = 1"']
)
def test_sql_outside_query_files_is_detected(source: str) -> None:
    assert sql_texts(ast.parse(source))


def test_docstring_is_not_sql_and_local_import_is_detected() -> None:
    assert not sql_texts(ast.parse('def f():\n    """SELECT a FROM b"""'))
    assert hidden_imports(ast.parse("def f():\n    from heliograph.domain import ids")) == [2, 2]
    assert cycle({"a": {"b"}, "b": {"a"}})


@pytest.mark.parametrize(
    "source",
    ['id_ = msgspec.json.decode(sent.body)["id"]', "record = json.loads(accepted.response)"],
)
def test_decoding_of_our_own_response_is_detected(source: str) -> None:
    assert answers_decoded(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        'if error == "no answer in time": ...',
        'if error.startswith(("no answer", "the connection")): ...',
        'found = "no longer kept" in error',
        'id_, _, why = detail.partition(" was refused: ")',
        "canceled = found.error_message == CANCELED",
        "canceled = found.error_message in (verification.CANCELED, None)",
        'match error:\n    case "no answer in time": ...',
    ],
)
def test_branch_on_a_text_is_detected(source: str) -> None:
    assert branches_on_words(ast.parse(source), {"CANCELED"})


def test_templates_do_not_split_sentences() -> None:
    texts = {path: path.read_text("utf-8") for path in SOURCE.rglob("*.html")}
    assert [path.name for path, text in texts.items() if re.search(r"""partition\(["'][^"']*\W\s""", text)] == []


def test_sentence_constant_is_distinguished_from_a_word() -> None:
    tree = ast.parse('CANCELED = "Canceled by the caller."\nFORM = "application/json"\nSHOWN = 20')
    assert sentences_in(tree).keys() == {"CANCELED"}
