import json

from .conftest import Run

CARRIERS = """
[[carriers]]
id = "one"
channel = "email"
kind = "simulator"

[[carriers]]
id = "two"
channel = "email"
kind = "simulator"
priority = 20
"""


def test_carriers_are_disabled_and_reordered(run: Run, tmp_path: object) -> None:
    with open("setup.toml", "w") as file:
        file.write(CARRIERS)
    run("apply", "setup.toml")
    changed = run("carriers", "change", "two", "--disable", "--priority", "5")
    assert (changed.code, changed.out) == (0, "two is disabled, with priority 5\n")
    carriers = json.loads(run("carriers", "--json").out)["data"]
    assert [(carrier["id"], carrier["priority"], carrier["enabled"]) for carrier in carriers] == [
        ("two", 5, False),
        ("one", 10, True),
    ]
    assert run("carriers", "change", "two", "--enable").out == "two is enabled, with priority 5\n"
    assert run("carriers").out == run("carriers", "show").out
    missing = run("carriers", "change", "three", "--enable")
    assert (missing.code, missing.err) == (1, "heliograph: There is no carrier three.\n")
