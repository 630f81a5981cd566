"""`heliograph cell` on a plain PostgreSQL; `make proof PROOFS=citus` moves cells."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from heliograph.cli.cell import _format_cell, _format_size
from heliograph.domain.setup.cells import cell_url
from heliograph.storage.engine import cells
from heliograph.storage.engine.cells import CellError, CellStatus
from heliograph.storage.engine.migrate import schema_files
from tests.conftest import fresh_database
from tests.postgres_server import MISSING, is_installed

from .conftest import Run

NEWEST = schema_files()[-1][0]


@pytest.mark.skipif(not is_installed(), reason=MISSING)
def test_cells_are_added_and_listed_and_need_citus_to_move(run: Run, postgres: str) -> None:
    database = ("--database", fresh_database(postgres, "template1"))
    assert run("cell", "list", *database).out == "There is no cell. To add one: heliograph cell add cell_01\n"
    for name in ("cell_02", "cell_01"):
        added = run("cell", "add", name, *database)
        assert added.out.splitlines()[1] == f"To serve it, add {name} to HELIOGRAPH_CELLS."
    again = run("cell", "add", "cell_01", *database)
    assert (again.code, again.err) == (1, "heliograph: the cell cell_01 exists already\n")
    listed = json.loads(run("cell", "list", "--json", *database).out)["data"]
    assert [(cell["name"], cell["node"], cell["version"], cell["queued"]) for cell in listed] == [
        ("cell_01", None, NEWEST, 0),
        ("cell_02", None, NEWEST, 0),
    ]
    size = _format_size(listed[1]["size"])
    assert (
        run("cell", "status", "cell_02", *database).out
        == f"cell_02  on the server of the database URL  {size}  schema {NEWEST}  0 queued\n"
    )
    missing = run("cell", "status", "cell_03", *database)
    assert missing.err == "heliograph: there is no cell cell_03. See: heliograph cell list\n"
    moved = run("cell", "move", "cell_01", "--to", "10.0.0.2:5432", *database)
    assert (moved.code, moved.out) == (1, "")
    assert moved.err == "heliograph: moving a cell needs Citus, and this database is a plain PostgreSQL\n"


@pytest.mark.skipif(not is_installed(), reason=MISSING)
def test_interrupted_add_is_continued_and_other_cells_are_not_touched(run: Run, postgres: str) -> None:
    url = fresh_database(postgres)
    assert [cell["name"] for cell in json.loads(run("cell", "list", "--json", "--database", url).out)["data"]] == [
        "public"
    ]
    assert run("migrate", "--database", cell_url(url, "cell_01")).code == 1  # its schema does not exist
    assert run("cell", "add", "cell_01", "--database", cell_url(url, "public")).code == 0
    planned = run("migrate", "--plan", "--database", cell_url(url, "cell_01")).out
    assert planned == "Nothing was changed; 0 schema files would be applied\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["list"], "cells need PostgreSQL: give its URL with --database or HELIOGRAPH_DATABASE"),
        (["add", "Cell-1"], "'Cell-1' is not a name such as cell_01"),
        (["add", "cell_"], "'cell_' is not a name such as cell_01"),
        (["status", "pg_catalog"], "'pg_catalog' is not a name such as cell_01"),
        (["move", "cell_01", "--to", "worker2"], "'worker2' is not a worker such as 10.0.0.2:5432"),
    ],
)
def test_wrong_input_is_named(run: Run, arguments: list[str], error: str) -> None:
    ended = run("cell", *arguments)
    assert ended.code != 0 and error in ended.err


def test_cell_of_another_version_is_shown_with_ours() -> None:
    cell = CellStatus(name="cell_01", node="10.0.0.2:5432", size=3 * 2**30, version=47, queued=5)
    assert _format_cell(cell) == f"cell_01  on 10.0.0.2:5432  3.0 GiB  schema 47 (this Heliograph: {NEWEST})  5 queued"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:secret@db/heliograph", "postgresql://me:secret@db/heliograph?search_path=cell_01"),
        ("postgresql:///db?search_path=other&host=/run", "postgresql:///db?host=/run&search_path=cell_01"),
    ],
)
def test_url_of_a_cell_keeps_the_other_parameters(url: str, expected: str) -> None:
    assert cell_url(url, "cell_01") == expected


FAKE_CITUS = """
    CREATE SCHEMA cell_01;
    CREATE TABLE pg_dist_cleanup (object_type int, object_name text);
    INSERT INTO pg_dist_cleanup VALUES (1, 'cell_01.message_102008'), (1, 'cell_01.event_102009'), (1, 'cell_02.t_1');
    CREATE PROCEDURE citus_cleanup_orphaned_resources() LANGUAGE sql AS $$
        DELETE FROM pg_dist_cleanup WHERE object_name = (SELECT min(object_name) FROM pg_dist_cleanup
            WHERE object_name LIKE 'cell_01.%') $$;
    CREATE FUNCTION citus_schema_move(regnamespace, text, int, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        IF EXISTS (SELECT FROM pg_dist_cleanup WHERE object_name LIKE 'cell_01.%') THEN
            RAISE 'shard move failed as the orphaned shard could not be cleaned up';
        END IF; END $$"""


@pytest.mark.skipif(not is_installed(), reason=MISSING)
def test_move_waits_until_citus_has_removed_the_tables_of_the_last_move(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_database(postgres, "template1")

    async def is_citus(_: Any) -> bool:
        return True

    async def find_cell(*_: str) -> CellStatus:
        return CellStatus(name="cell_01", node="10.0.0.1:5432", size=1, version=NEWEST, queued=0)

    async def move_after(statements: str) -> None:
        connection: Any = await asyncpg.connect(url)
        await connection.execute(statements)
        await connection.close()
        await cells.move_cell(url, "cell_01", "10.0.0.2", 5432, lambda *_: None)

    monkeypatch.setattr(cells, "is_citus", is_citus)
    monkeypatch.setattr(cells, "find_cell", find_cell)
    asyncio.run(move_after(FAKE_CITUS))
    monkeypatch.setattr(cells, "CLEANUP_TIMEOUT_S", 0.5)
    with pytest.raises(CellError, match=r"^the cell cell_01 is still on 10\.0\.0\.1:5432: Citus .* of its last move"):
        asyncio.run(
            move_after(
                "INSERT INTO pg_dist_cleanup VALUES (1, 'cell_01.message_102008'); "
                "CREATE OR REPLACE PROCEDURE citus_cleanup_orphaned_resources() LANGUAGE sql AS ''"
            )
        )
