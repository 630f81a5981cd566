"""`heliograph cell` on a plain PostgreSQL; `make proof PROOFS=citus` moves cells."""

import json

import pytest

from heliograph.cli.cell import _format_cell, _format_size
from heliograph.domain.setup.cells import cell_url
from heliograph.storage.engine.cells import CellStatus
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
    cells = json.loads(run("cell", "list", "--json", *database).out)["data"]
    assert [(cell["name"], cell["node"], cell["version"], cell["queued"]) for cell in cells] == [
        ("cell_01", None, NEWEST, 0),
        ("cell_02", None, NEWEST, 0),
    ]
    size = _format_size(cells[1]["size"])
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
