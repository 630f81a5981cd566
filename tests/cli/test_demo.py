import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

import heliograph
from heliograph.cli.demo import demo, in_demo_folder, smtp_port_note, with_loopback, with_mail_listeners, with_mcp
from heliograph.settings import Settings, SettingSource
from tests.service import until

OTHERS = ("Resend ", "Twilio ", "Postmark ", "Postal ", "SMTP ")
CAME_BACK = {"email.received", "email.delayed", "sms.received", "opt_out.created"}
HOME = Path("heliograph-demo")
SCREEN_LINES_MAX = 25


@pytest.mark.parametrize(
    ("given", "data", "database"),
    [
        (Settings(), HOME, "sqlite:///heliograph-demo/heliograph.db"),
        (Settings(data=Path("/x")), Path("/x"), "sqlite:////x/heliograph.db"),
        (Settings(database="postgresql://h/n"), HOME, "postgresql://h/n"),
    ],
)
def test_the_demo_has_its_own_folder(given: Settings, data: Path, database: str) -> None:
    settings = in_demo_folder(given)
    assert (settings.data, settings.database) == (data, database)


def test_disabled_listeners_stay_disabled() -> None:
    off = SettingSource("environment", "HELIOGRAPH_…=off")
    settings = with_mail_listeners(Settings(sources={"bounce_listen": off, "submission_listen": off}))
    assert settings.bounce_listen is None
    assert not settings.submission()


@pytest.mark.parametrize("is_taken", [True, False])
def test_another_smtp_port_is_mentioned(is_taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        if not is_taken:
            other.close()
        monkeypatch.setattr("heliograph.cli.demo.SUBMISSION_ADDRESS", ("127.0.0.1", port))
        settings = with_mail_listeners(Settings())
        assert settings.submission_listen == (("127.0.0.1", 0 if is_taken else port),)
        assert [f"Port {port} is in use" in line for line in smtp_port_note(settings)] == [True] * is_taken


def test_webhooks_may_use_loopback_unless_configured() -> None:
    assert with_loopback(Settings()).webhook_allow_private == ("127.0.0.0/8", "::1/128")
    configured = Settings(sources={"webhook_allow_private": SettingSource("environment", "HELIOGRAPH_…")})
    assert with_loopback(configured).webhook_allow_private == ()


def test_mcp_is_on_unless_configured() -> None:
    assert with_mcp(Settings()).mcp
    assert not with_mcp(Settings(sources={"mcp": SettingSource("environment", "HELIOGRAPH_MCP=off")})).mcp


def test_help_shows_the_demos_defaults() -> None:
    help_by_option = {option.name: option.to_info_dict()["help"] for option in demo.params}
    assert "Default: heliograph.db in the --data folder." in help_by_option["database"]
    assert "Default: heliograph-demo." in help_by_option["data"]


@contextmanager
def running(folder: Path) -> Iterator[list[str]]:
    """Return the lines of a running demo."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    environment["PYTHONPATH"] = str(Path(heliograph.__file__).parents[1])
    command = [sys.executable, "-P", "-m", "heliograph.cli.main", "demo", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            if lines or line == "\n":  # log lines come first
                lines.append(line.rstrip("\n"))
            if line.startswith("Stop with"):
                break
        try:
            yield lines
        finally:
            process.send_signal(signal.SIGTERM)
            log = process.stdout.read().splitlines()
    assert process.returncode == 0
    assert [line.split()[3] for line in log if "[info " in line] == ["stopping"]  # the link stays the last line


def event_types(lines: list[str]) -> set[str]:
    """Return the types of all events so far, read by the command that the demo prints."""
    line = lines[lines.index("# events: bounces and replies") + 1]
    return set(re.findall('"type":"([^"]+)"', subprocess.check_output(["sh", "-c", line], text=True)))


def more_requests(lines: list[str], folder: Path) -> list[str]:
    """Return the output of the command that prints more requests."""
    (command,) = (line.removeprefix("More requests: ") for line in lines if line.startswith("More requests: "))
    (base,) = (line.split()[1] for line in lines if line.startswith("API "))
    words = command.split()
    assert words[:4] == ["heliograph", "demo", "--examples", "--listen"] and base == f"http://{words[4]}/v1"
    program = [sys.executable, "-P", "-m", "heliograph.cli.main", *words[1:]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    environment["PYTHONPATH"] = str(Path(heliograph.__file__).parents[1])
    return subprocess.check_output(program, cwd=folder, env=environment, text=True).splitlines()


def keys(lines: list[str]) -> list[str]:
    return [line.split()[-1] for line in lines if " key " in line]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the printed lines need curl")
def test_every_printed_command_works_and_keys_are_stable(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        requests = more_requests(first, tmp_path)
        shown = [title for title, line in pairwise(first) if line.startswith("curl ")]
        assert shown == ["# email", "# sms", "# whatsapp", "# verify"]
        assert len([line for line in first if " is in use, " not in line]) <= SCREEN_LINES_MAX
        assert first[-1].split()[-1] == first[1].split()[-1]  # the link to the dashboard
        answers = {}
        for title, line in pairwise([*first, *requests]):
            if line.startswith("curl "):
                process = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
                answers[title] = process.stdout
    assert len(answers) == 16
    assert answers.pop("# events: bounces and replies").startswith(
        '{"object":"list"'
    )  # a moment later it has all: see below
    assert [title for title, answer in answers.items() if '"error":' in answer or '"id":"' not in answer] == []
    assert '"text":"From the sandbox."' in answers[next(title for title in answers if title.startswith("# test inbox"))]
    assert '"verified":true' in answers["# verify, start and check"]
    assert '"sandbox":true' in answers["# email, in the sandbox"]
    assert [line for line in requests if "verify.inbox = true" in line]  # not the default
    others = {line.split()[0]: line.split()[1:] for line in first if line.startswith(OTHERS)}
    sandbox, base = (
        keys(first)[1],
        next(line.split()[1] for line in first if line.startswith("API ")).removesuffix("/v1"),
    )
    assert others.pop("Twilio") == [f"{base}/compat/twilio", "AC" + 32 * "0", sandbox]
    address, user, password = others.pop("SMTP")
    assert (address.startswith("127.0.0.1:"), user, password) == (True, "heliograph", sandbox)
    [(address, agent)] = [line.split()[1:] for line in first if line.startswith("MCP ")]
    assert address == f"{base}/mcp" and agent not in keys(first)
    assert others == {name: [f"{base}/compat/{name.lower()}", sandbox] for name in ("Resend", "Postmark", "Postal")}
    with running(tmp_path) as second:
        requests = more_requests(second, tmp_path)
        until(lambda: event_types(requests) >= CAME_BACK)
        assert keys(second) == keys(first)
        assert len(keys(first)) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("level", "advice"), [("1", "HELIOGRAPH_LISTEN=127.0.0.1:8701 make run"), (None, "--listen")])
def test_a_busy_port_is_reported_with_a_command_that_works(tmp_path: Path, level: str | None, advice: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HELIOGRAPH_", "MAKE"))}
    environment |= {"PYTHONPATH": str(Path(heliograph.__file__).parents[1])} | ({"MAKELEVEL": level} if level else {})
    with socket.create_server(("127.0.0.1", 0)) as other:
        command = [sys.executable, "-P", "-m", "heliograph.cli.main", "demo", "--listen"]
        address = f"127.0.0.1:{other.getsockname()[1]}"
        process = subprocess.run([*command, address], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 1
    last = process.stderr.splitlines()[-1]
    assert last.startswith(f"heliograph: cannot listen on {address}: Address already in use. Stop the other program")
    assert advice in last and "Traceback" not in process.stderr
