"""`heliograph migrate`: its output before and after a migration."""

from pathlib import Path

import pytest

from heliograph.storage.engine import migrate as migrations
from heliograph.storage.engine.migrate import BASE, schema_files
from tests.cli.conftest import Run

NEXT = schema_files()[-1][0] + 1
ONLY_POSTGRES = 1  # schema file without a statement for SQLite
MORE = (NEXT, "ALTER TABLE schema_version ADD COLUMN b BIGINT;\nUPDATE schema_version SET b = 1;")


def test_a_plan_changes_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = run("migrate", "--plan")
    assert planned.out.startswith(f"schema {BASE}: new table ")
    assert planned.out.endswith(f"Nothing was changed; {NEXT - BASE - ONLY_POSTGRES} schema files would be applied\n")
    assert list(tmp_path.iterdir()) == []
    assert run("migrate").out.endswith("sqlite:///heliograph.db is up to date\n")
    assert run("migrate", "--plan").out == "Nothing was changed; 0 schema files would be applied\n"
    files = [*schema_files(), MORE]
    monkeypatch.setattr(migrations, "schema_files", lambda: files)
    assert run("migrate", "--plan").out.splitlines() == [
        f"schema {NEXT}: columns schema_version, immediate",
        f"schema {NEXT}: rows schema_version ({NEXT - BASE} rows), about 0.0 s, blocks writes",
        "Nothing was changed; 1 schema files would be applied",
    ]
