"""Runs every command of the operators' docs pages as written, on a machine of its own (tests/confined)."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from heliograph.storage.engine.migrate import BASE, CONTRACT_START, schema_files
from tests.confined.machine import Machine
from tests.proof.size import FULL

ROOT = Path(__file__).parents[1]
PAGES = ("deploy.md", "operations.md", "monitoring.md", "cli.md")
SECONDS = 900

# What cannot be run here, by the first word that needs it. The page's source says so too, above the block.
NOT_RUN = {
    "downloads packages": ("sudo python3 -m venv", "sudo /opt/heliograph/bin/pip install", "make dist"),
    "needs a container engine": ("make image",),
    "needs a cluster": ("kubectl ",),
    "needs Litestream": ("echo 'checkpoint", "sudo install -d -m 0700 -o heliograph /var/lib"),
}
# Headings of what only one database has, or what is the same on both.
ALIKE = ("Attachments in an object store", "Reputation", "Teams", "Suppressions")
ONLY = {"sqlite": ("Backup and restore", *ALIKE), "postgres": ("On PostgreSQL",)}
# What is different here.
HERE = {
    "https://minio.example.com:9000": "http://127.0.0.1:9000",
}
FILES = {
    "setup.toml": """
        [[teams]]
        id = "team_acme"
        name = "Acme"
        [[teams.domains]]
        id = "dom_acme"
        name = "acme.test"
        brand = "Acme"
        verified = true
        approved = true
        [[teams.sender_ids]]
        country = "GB"
        value = "ACME"
        [[teams.templates]]
        id = "tpl_code"
        channel = "sms"
        name = "Code"
        body = "Hello"
        status = "draft"
        """,
    "bounced.csv": "ada@example.com,complaint\n",
}


class Block:
    def __init__(self, heading: str, reason: str, text: str) -> None:
        self.heading, self.reason = heading, reason
        self.commands = list(commands(text))


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / "docs" / page).read_text("utf-8")
    heading = ""
    shape = r"^#+ ([^\n]+)$|^(?:<!-- not run by a test: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$"
    for result in re.finditer(shape, text, re.M | re.S):
        if result[1]:
            heading = result[1]
        elif result[3] in ("sh", "bash", ""):
            yield Block(heading, result[2] or "", result[4])


def commands(text: str) -> Iterator[str]:
    """Yield each command with its continuation lines."""
    whole, until = "", ""
    for line in text.splitlines():
        whole += f"{line}\n"
        until = until or "".join(re.findall(r"<<'(\w+)'", line))
        if (until and line != until) or line.endswith("\\"):
            continue
        yield whole.rstrip("\n")
        whole = until = ""


def test_docs_command_not_run_is_marked_with_a_reason() -> None:
    marked = [(block.reason, block.commands[0]) for page in PAGES for block in blocks(page) if block.reason]
    for reason, command in marked:
        assert command.startswith(NOT_RUN[reason]), f"{command} can be run, or NOT_RUN does not know why not"
    assert {reason for reason, _ in marked} == NOT_RUN.keys()


def test_docs_about_rollback_match_the_schema_files() -> None:
    """The docs are right as long as no schema file excludes an older version."""
    [section] = re.findall(r"^## Rollback\n(.*?)^## ", (ROOT / "docs/operations.md").read_text("utf-8"), re.M | re.S)
    assert f"from schema {BASE} on" in section
    if any(text.startswith(CONTRACT_START) for number, text in schema_files() if number > BASE):
        assert "No schema file so far" not in section


def here(command: str) -> str:
    for there, ours in HERE.items():
        command = command.replace(there, ours)
    return command


def to_run(kind: str) -> list[dict[str, Any]]:
    others = [heading for other, headings in ONLY.items() if other != kind for heading in headings]
    pages = PAGES if FULL or kind == "sqlite" else PAGES[:1]  # tests/cli runs the commands themselves on both
    result = [block for page in pages for block in blocks(page) if not block.reason and block.heading not in others]
    return [
        {
            "commands": [here(item) for item in block.commands],
            "instead": any(item.startswith("heliograph serve") for item in block.commands),
        }
        for block in result
    ]


@pytest.fixture
def sockets(request: pytest.FixtureRequest) -> list[Path]:
    if "postgres" not in request.node.name:
        return []
    url = request.getfixturevalue("postgres")

    async def make() -> None:
        connection: Any = await asyncpg.connect(url)
        for statement in ("CREATE ROLE heliograph LOGIN", "CREATE DATABASE heliograph OWNER heliograph"):
            await connection.execute(statement)
        await connection.close()

    asyncio.run(make())
    return [Path(parse_qs(urlsplit(url).query)["host"][0])]


@pytest.mark.apart
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_docs_commands_run(kind: str, sockets: list[Path], tmp_path: Path) -> None:
    expected = to_run(kind)
    done = Machine(tmp_path, FILES, sockets).run(expected, SECONDS)
    last = done[-1]
    print(*(f"$ {item['command']}\n{item['said']}" for item in done), sep="\n")
    assert last["code"] in (0, 1 if "preflight" in last["command"] else 0), f"{last['command']}\n{last['said']}"
    ran = {item["command"] for item in done}
    assert [item for block in expected for item in block["commands"] if item not in ran] == []
    output = {item["command"]: item["said"] for item in done}
    assert kind in output["heliograph doctor"]
