import json
from pathlib import Path

from .conftest import Run

TEAM = ("--team", "team_acme")


def test_a_file_is_imported(run: Run, example: str) -> None:
    run("apply", example)
    Path("list.csv").write_text("email\nada@example.com\nbob@example.com,bounce\nnobody\n")
    first = json.loads(run("suppression", "import", "list.csv", *TEAM, "--json").out)
    assert first.pop("id").startswith("imp_")
    assert first == {"state": "done", "lines": 3, "added": 2, "existing": 0, "skipped": 1}
    assert run("suppression", "import", "list.csv", *TEAM).out.endswith(": added 0, existing 2, skipped 1\n")
    assert "There is no team" in run("suppression", "import", "list.csv", "--team", "team_none").err
