"""Finds words of the project's former private vocabulary in names, docstrings, comments, docs and texts for users.

Also finds names of constants in docstrings and comments that the module does not have, as after a renaming.

`python -m tests.banned_words [PATH …]` lists them, each with the standard term. `make check` runs it and fails if
any is found. Without a path it reads everything that users, operators and developers read, except tests and bench.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Pattern → standard term. Patterns match whole words in any case, also across a line break.
BANNED = {
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again, or a verb with re- (regenerate, re-encrypt)",
    r"told": "notified, reported, sent; as a name: status, reply, event",
    r"whoever|whomever": "the caller, anyone who",
    r"somebody": "a user, someone, the operator",
    r"so many": "the number or the parameter's name",
    r"what (became|becomes|came|comes) of": "the result, the outcome",
    r"what comes back": "bounces and inbound mail",
    r"by (itself|themselves)": "automatically, alone",
    r"puts? off|putting off": "defer",
    r"puts? aside": "move to the dead-letter queue",
    r"gives? up": "stop retrying, fail permanently",
    r"hand(s|ed|ing)?( |-|)over": "send, delivery attempt, accepted by the carrier",
    r"(goes|went|go) by": "uses, is keyed by",
    r"lets? (through|in)|letting (through|in)": "allow, authenticate",
    r"turn(s|ed)? back": "restored from an older backup",
    r"the other side": "the peer, the remote server",
    r"(an operator's|the world's|other's) word": "a decision, an external report",
    r"all that": "everything that, or the plural noun",
    r"as it (is|stands|came)": "unchanged, raw",
    r"none: (it|there) is none": "None if not found",
    r"when it is none": "if it is invalid, if not found",
    r"in work": "in progress",
}
# Names of values, functions and classes, word by word: these are ordinary English in a sentence, but private as a name.
BANNED_NAMES = {
    r"told": "status, reply, event",
    r"mend(ed)?": "fix",
    r"anew": "again",
    r"story|stories": "transaction, or the name of what it does",
    r"parcel": "message",
    r"passage": "hooks",
    r"barred": "cancelled",
    r"bell": "wakeup",
    r"seat": "slot",
    r"teller": "sender, reporter",
    r"stranger": "unknown",
    r"whoever|nobody|somebody": "a role: caller, user, unknown",
}
# (start of the path, pattern) → why the word stays there.
EXCEPTIONS = {
    ("src/heliograph/domain/setup/domain_records.py", "mend"): "stored documents have the field under this name",
    ("src/heliograph/storage/schema/", "told"): "columns of existing databases",
    ("src/heliograph/storage/queries/", "told"): "columns of existing databases",
    ("docs/upgrading.md", "mend"): "the name of a removed API field",
}
# Words in capitals that are no names of constants: abbreviations, and keywords of protocols, formats and linters.
CAPITALS = frozenset(
    """
    AAAA ADR ANALYZE API ARF ASCII AUTH AUTHENTICATION BCP BODY CBOR CLDR CNAME COSE CPU CR CRLF CSRF CSS CSV DANE DATA
    DELIVERED DELIVRD DER DKIM DMARC DNS DNSSEC DSN EHLO ESMTP EUR FULL GB GET GIL GSM HELO HMAC HTML HTTP HTTPS IANA
    ID IP ISO JMRP JSON JWK JWT KB LF LIMIT LISTEN LMTP MAIL MARKETING MB MCP MIME MJML MX NORMAL NOTIFY NPI NUL PATCH
    PDU PEM PID PIN PKCE PKI POST PUT QR QUIT RCPT RFC RSA RSET SELECT SES SID SIGHUP SIGTERM SIZE SMPP SMS SMSC SMTP
    SNS SOA SPF SQL SQLSTATE SSRF START STARTTLS STOP SVG TCP TLS TLSA TLV TOML TON TOTP TTL TXT UDP ULID URI URL USD
    UTC VACUUM VERP W3C WAL WHERE XML EMAIL_BACKEND ENCODING_DER EX_SOFTWARE INSTALLED_APPS POSTMARK_API_TEST
    SQLITE_BUSY WEBHOOK_SECRET X509_V_ERR_CERT_HAS_EXPIRED
    """.split()
)
SKIPPED = (
    "bench/results/",  # generated
    "docs/internals/proof/",  # generated
    "src/heliograph/dashboard/static/inter-OFL.txt",  # licence of the font
    "tests/banned_words.py",
    "tests/test_banned_words.py",
)
CHECKED = ("src", "docs", "clients", "deploy", "examples", "Makefile", "pyproject.toml")
SUFFIXES = (".py", ".md", ".html", ".sql", ".toml", ".yaml", ".js", ".ts", ".css", ".txt")
# A space in a pattern also matches a line break in text, in a comment, and between two string literals.
LINE_BREAK = r"(?:\s[\"']\n\s+f?[\"']|\s+(?:(?:#|--|//|\*)\s+)?)"
_PATTERN = re.compile(rf"\b(?:{'|'.join(BANNED)})\b".replace(" ", LINE_BREAK))
_NAMES = re.compile("|".join(BANNED_NAMES))
_IDENTIFIER = re.compile(r"\b(?:class|def|for|as|import)\s+(\w+)|\b(\w+)\s*(?::[^=\n]+)?=[^=]")
_WORDS = re.compile(r"[A-Z]?[a-z]+")
# B018 is a rule of a linter, P14 a promise of reliability.md, HELIOGRAPH_URL an environment variable.
_CONSTANT = re.compile(r"(?<![\w/.$'\"<{-])_?(?!HELIOGRAPH_|[A-Z]+\d+\b)[A-Z][A-Z0-9_]*[A-Z0-9]\b(?![\w-]|\.\w|…)")
_Finding = tuple[int, str]  # offset in the text, message


def find(paths: list[Path]) -> Iterator[str]:
    """Yield one line for each banned word: its location, the word, and the standard term."""
    for path in paths:
        text, name = path.read_text(), str(path.relative_to(ROOT))
        findings = [*_banned_words(name, text)]
        if path.suffix == ".py":
            findings += [*_banned_names(text), *_missing_constants(name, text)]
        for offset, message in sorted(findings):
            yield f"{name}:{text.count(chr(10), 0, offset) + 1}: {message}"


def _banned_words(name: str, text: str) -> Iterator[_Finding]:
    allowed = {word for (start, word) in EXCEPTIONS if name.startswith(start)}
    for match in _PATTERN.finditer(text.lower()):
        if match[0] not in allowed:
            words = re.sub(LINE_BREAK, " ", match[0])
            yield match.start(), f"“{words}”: say {_term(BANNED, words)}"


def _banned_names(text: str) -> Iterator[_Finding]:
    for identifier in _IDENTIFIER.finditer(text):
        name = identifier[1] or identifier[2]
        for word in map(str.lower, _WORDS.findall(name)):
            if _NAMES.fullmatch(word):
                yield identifier.start(), f"name {name}: say {_term(BANNED_NAMES, word)}"


def _missing_constants(name: str, text: str) -> Iterator[_Finding]:
    """Yield the constants that docstrings and comments name and that do not occur in the module's code.

    A constant of another module is named with its module: `limits.DAY_MS`. Docstrings of commands name arguments.
    """
    tokens = [*tokenize.generate_tokens(io.StringIO(text).readline)]
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    if "/cli/" in name:
        names |= {name.upper() for name in names} | {*re.findall(r'metavar="(\w+)"', text)}
    line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
    docs = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (docstring := ast.get_docstring(node, clean=False)) is not None:
            docs.append((node.body[0].lineno, docstring))
    for first_line, doc in docs:
        for match in _CONSTANT.finditer(doc):
            constant = match[0]
            if not {constant, f"_{constant}", constant.removesuffix("s")} & (names | CAPITALS):
                line = first_line - 1 + doc.count("\n", 0, match.start())
                yield line_starts[line], f"{constant} is not in this module: correct the name, or add its module"


def _term(terms: dict[str, str], words: str) -> str:
    return next(term for pattern, term in terms.items() if re.fullmatch(pattern, words))


def readable_files(arguments: list[str]) -> list[Path]:
    """Return the given files and those below the given folders; by default CHECKED and the pages of the root folder."""
    roots = [Path(argument).resolve() for argument in arguments] or [
        *(ROOT / name for name in CHECKED),
        *sorted(ROOT.glob("*.md")),
    ]
    paths = [path for root in roots for path in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return [path for path in paths if _is_readable(path)]


def _is_readable(path: Path) -> bool:
    name = str(path.relative_to(ROOT))
    is_text = path.suffix in SUFFIXES or path.name == "Makefile"
    return path.is_file() and is_text and not name.startswith(SKIPPED) and "node_modules" not in name


def main(arguments: list[str]) -> int:
    """Print the banned words; return the exit status."""
    findings = list(find(readable_files(arguments)))
    if findings:
        print(*findings, f"{len(findings)} banned words", sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
