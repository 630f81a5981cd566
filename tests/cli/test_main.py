import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest

from heliograph import __version__
from heliograph.cli import main
from heliograph.cli.options import progress

from .conftest import Run

SHARED = {"main", "options", "printing", "service_client"}
FILES = {path.stem for path in Path(main.__file__).parent.glob("[a-z]*.py")} - SHARED


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_listed_command_exists(run: Run, name: str) -> None:
    output = run(name, "--help")
    assert output.code == 0
    assert output.out.startswith(f"Usage: heliograph {name} ")


def test_every_help_has_an_example() -> None:
    commands: dict[str, click.Command] = {"heliograph": main.cli}
    for name in main.COMMANDS:
        command = main.load_command(name)
        own = command.commands if isinstance(command, click.Group) else {"": command}
        commands |= {f"heliograph {name} {word}".strip(): item for word, item in own.items()}
    commands["heliograph import"] = commands.pop("heliograph import run")  # default command
    assert [words for words, command in commands.items() if words not in (command.help or "")] == []


def test_every_command_is_listed_on_one_line(run: Run) -> None:
    assert {main.MODULE_BY_COMMAND.get(name, name) for name in main.COMMANDS} == FILES
    assert list(main.COMMANDS) == sorted(main.COMMANDS)
    output = run("--help").out
    assert [line for line in main.COMMANDS.values() if line not in output] == []


def test_commands_are_imported_lazily() -> None:
    program = (
        "import sys; from heliograph.cli.main import cli; cli.main(['--help'], standalone_mode=False); "
        "print(sorted(name for name in sys.modules if name.startswith('heliograph')), file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    names = ["heliograph", "heliograph.cli", "heliograph.cli.main", "heliograph.webhooks"]
    assert process.stderr.strip() == str([*names, "heliograph.webhooks.verification"])


@pytest.mark.slow
def test_rarely_used_libraries_are_imported_lazily() -> None:
    few = {"aiohttp", "webauthn", "obstore", "joserfc", "opentelemetry", "markdown_it", "mjml"}
    program = f"import sys, heliograph.cli.serve; print({few} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "set()"


@pytest.mark.parametrize(("is_terminal", "said"), [(True, "Reading …\r\x1b[K"), (False, "")])
def test_progress_is_shown_only_on_terminals(
    is_terminal: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with suppress(ValueError), progress("Reading"):
        raise ValueError
    assert capsys.readouterr().err == said


def test_the_package_runs_as_a_module() -> None:
    process = subprocess.run([sys.executable, "-m", "heliograph", "--version"], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, f"heliograph, version {__version__}\n")


@pytest.mark.parametrize(("words", "completed"), [("heliograph aud", "audit"), ("heliograph audit ex", "export")])
def test_shell_completion_completes_commands(words: str, completed: str) -> None:
    environment = os.environ | {"_HELIOGRAPH_COMPLETE": "bash_complete", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    process = subprocess.run([sys.executable, "-m", "heliograph"], capture_output=True, text=True, env=environment)
    assert f"plain,{completed}" in process.stdout.splitlines()


def test_shell_completion_prints_the_script_that_the_documentation_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    for shell in ("bash", "zsh", "fish"):
        assert f"_HELIOGRAPH_COMPLETE={shell}_source heliograph" in page
        environment = os.environ | {"_HELIOGRAPH_COMPLETE": f"{shell}_source"}
        process = subprocess.run([sys.executable, "-m", "heliograph"], capture_output=True, text=True, env=environment)
        assert "_HELIOGRAPH_COMPLETE=" in process.stdout
