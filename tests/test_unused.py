"""Unused code is reported: queries, templates, and module-level names that occur only once."""

import re
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "heliograph"
TOP = re.compile(r"^(?:(?:(?:async )?def|class) (\w+)|(\w+)(?:: [^=\n]+)? = )", re.M)  # functions, classes, constants


def test_source_has_no_unused_names() -> None:
    texts = {path: path.read_text("utf-8") for path in SOURCE.rglob("*") if path.suffix in (".py", ".html")}
    words, quoted = Counter[str](), set[str]()
    for text in texts.values():
        words.update(re.findall(r"\w+", text))
        quoted.update(re.findall(r'"([\w.]+)"', text))
    sql = "\n".join(file.read_text("utf-8") for file in (SOURCE / "storage" / "queries").glob("*.sql"))
    queries = set(re.findall(r"^-- name: (\w+)", sql, re.M))
    # `storage/erase.py` builds the names of `scan_` and `erase_` queries from table names.
    unused = {name for name in queries - quoted if name.removeprefix("scan_").removeprefix("erase_") not in quoted}
    unused |= {path.name for path in texts if path.suffix == ".html"} - quoted
    names = {name for text in texts.values() for name in map("".join, TOP.findall(text)) if not name.startswith("__")}
    unused |= {name for name in names if words[name] == 1}
    assert len(queries) > 300 and len(names) > 3000 and unused == set()
