"""Finds words of our former private vocabulary in names, docstrings, comments, docs and text that users read.

`python -m tests.banned_words [PATH …]` lists them, each with the standard term; `make check` fails when there are any.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The pattern → what to say. A pattern is compared with whole words; names are split at underscores and capitals first.
BANNED = {
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again, or a verb with re- (regenerate, re-encrypt)",
    r"(is|are|was|were|be|been|gets?) told|told (of|by|as|apart)": "receives, is notified, is reported",
    r"whoever|whomever": "the caller, anyone who",
    r"somebody": "a user, someone, the operator",
    r"so many": "the number or the parameter's name",
    r"what (became|becomes|came|comes) of": "the result, the outcome",
    r"what comes back": "bounces and inbound mail",
    r"by (itself|themselves)": "automatically",
    r"puts? off|putting off": "defer",
    r"puts? aside": "move to the dead-letter queue",
    r"gives? up": "stop retrying, fail permanently",
    r"hand(s|ed|ing)?[ -]?over": "send, delivery attempt, accepted by the carrier",
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
# In names alone: ordinary English in a sentence, but not what a reader expects a value or function to be called.
BANNED_NAMES = {
    r"told": "status, reply, event",
    r"mend(ed)?": "fix",
    r"story|stories": "transaction, or the name of what it does",
    r"anew": "again",
    r"parcel": "message",
    r"passage": "hooks",
    r"barred": "cancelled",
    r"bell": "wakeup",
    r"seat": "slot",
    r"teller": "sender, reporter",
    r"stranger": "unknown",
    r"whoever|nobody|somebody": "a role: caller, user, unknown",
}
SKIPPED = ("bench/results/", "docs/proof/", "tests/banned_words.py", "tests/test_banned_words.py")
PROSE = (".md", ".html", ".sql", ".toml", ".yaml", ".js", ".txt")
_PATTERN = re.compile("|".join(rf"(?P<w{n}>\b(?:{text})\b)" for n, text in enumerate(BANNED)), re.I)
_NAMES = re.compile("|".join(rf"(?P<w{n}>(?:{text}))" for n, text in enumerate(BANNED_NAMES)))
_IDENTIFIER = re.compile(r"\b(?:class|def|for|as|import)\s+(\w+)|\b(\w+)\s*(?::[^=]+)?=[^=]")
_WORDS = re.compile(r"[A-Z]?[a-z]+")


def find(paths: list[Path]) -> Iterator[str]:
    """Yield one line for each banned word: where it stands, the word, and what to say instead."""
    terms, name_terms = list(BANNED.values()), list(BANNED_NAMES.values())
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            place = f"{path.relative_to(ROOT)}:{number}"
            for match in _PATTERN.finditer(line):
                yield f"{place}: “{match[0]}”: say {terms[int(str(match.lastgroup)[1:])]}"
            if path.suffix == ".py":
                for word, match in _banned_names(line):
                    yield f"{place}: name {word}: say {name_terms[int(str(match.lastgroup)[1:])]}"


def _banned_names(line: str) -> Iterator[tuple[str, re.Match[str]]]:
    for groups in _IDENTIFIER.findall(line):
        name = groups[0] or groups[1]
        for word in _WORDS.findall(name):
            if match := _NAMES.fullmatch(word.lower()):
                yield name, match


def readable_files(arguments: list[str]) -> list[Path]:
    """Return the given files and those below the given folders; by default everything that people read."""
    roots = [Path(argument).resolve() for argument in arguments] or [
        *(ROOT / name for name in ("src", "tests", "docs", "bench", "clients", "deploy", "examples", "Makefile")),
        *sorted(ROOT.glob("*.md")),
    ]
    paths = [path for root in roots for path in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return [path for path in paths if _is_read(path)]


def _is_read(path: Path) -> bool:
    name = str(path.relative_to(ROOT))
    is_text = path.suffix in (".py", *PROSE) or path.name == "Makefile"
    return path.is_file() and is_text and not name.startswith(SKIPPED) and "node_modules" not in name


if __name__ == "__main__":
    findings = list(find(readable_files(sys.argv[1:])))
    print(*findings, f"{len(findings)} banned words", sep="\n")
    sys.exit(bool(findings))
