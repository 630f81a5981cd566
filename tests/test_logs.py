"""A log line states what failed, and never the values of variables."""

import fcntl
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from heliograph.runtime import logs
from heliograph.settings import BadSetting, read_settings
from tests.forks import Forked
from tests.service import PROGRAM, Service


@pytest.fixture
def as_json(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """Yield a function that returns the log lines so far as JSON objects."""
    handlers, level = logging.root.handlers[:], logging.root.level
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    logs.configure(lambda: 0.0, process=3, log_format="json")
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.captureWarnings(False)
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_json_log_line_contains_the_bound_values(as_json: Any) -> None:
    structlog.contextvars.bind_contextvars(request_id="req_1")
    structlog.get_logger().warning("something\nhappened", at="there")
    (line,) = as_json()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "something\nhappened",
        "level": "warning",
        "at": "there",
        "request_id": "req_1",
        "process": 3,
    }


def test_debug_lines_are_not_logged(as_json: Any) -> None:
    structlog.get_logger().debug("a detail")
    structlog.get_logger().info("said")
    assert [line["event"] for line in as_json()] == ["said"]


def test_a_traceback_as_json_shows_no_values(as_json: Any) -> None:
    try:
        token = "hk_" + "secret"
        raise RuntimeError("broke" if token else "")
    except RuntimeError:
        structlog.get_logger().exception("internal error")
    (line,) = as_json()
    assert "RuntimeError: broke" in line["exception"] and "test_logs.py" in line["exception"]
    assert "hk_secret" not in json.dumps(line)


def test_json_log_redacts_addresses(as_json: Any) -> None:
    structlog.get_logger().error("refused", error="first line\nsome.one@example.test +4915112345678")
    (line,) = as_json()
    assert line["error"].startswith("first line\n") and "example" not in line["error"] and "151" not in line["error"]


def test_library_log_lines_are_json(as_json: Any) -> None:
    logging.getLogger("asyncio").error("Task was destroyed but it is pending!")
    logging.getLogger("asyncio").info("chatter")
    (line,) = as_json()
    assert (line["event"], line["logger"], line["level"]) == ("library log message", "asyncio", "error")


@pytest.mark.parametrize(
    "value",
    [["some.one@example.test"], {"to": {"who": "some.one@example.test"}}, ValueError("some.one@example.test")],
    ids=str,
)
def test_json_log_redacts_addresses_inside_values(as_json: Any, value: Any) -> None:
    structlog.get_logger().warning("refused", value=value, count=3, share=0.5, none=None)
    (line,) = as_json()
    assert "example" not in json.dumps(line)
    assert (line["count"], line["share"], line["none"]) == (3, 0.5, None)


LAST_WORDS = """
import logging, threading, warnings
from heliograph.runtime import logs
logs.configure(lambda: 0.0, log_format="json")

def fail():
    raise RuntimeError("broken on purpose")

class Unraisable:
    def __del__(self):
        fail()

logging.getLogger("asyncio").error("%d tasks", "seven")
warnings.warn("old\\nhabits")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
Unraisable()
fail()
"""


def test_uncaught_exceptions_are_logged_as_json() -> None:
    done = subprocess.run([sys.executable, "-c", LAST_WORDS], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert [line["event"] for line in lines] == ["library log message"] * 2 + ["uncaught exception"] * 3
    assert lines[0]["text"] == "%d tasks" and "habits" in lines[1]["text"]
    assert all("in fail" in line["exception"] for line in lines[2:])


MANY_LINES = """
from heliograph.runtime import logs
import structlog
logs.configure(lambda: 0.0, log_format="json")
for number in range(30):
    structlog.get_logger().info("long", text="x" * 10_000)
"""


@pytest.mark.slow
def test_long_lines_of_several_processes_stay_whole() -> None:
    """All processes share the standard error of their parent."""
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 1 << 20)  # one that is full takes a part at a time, whatever is done
    processes = [subprocess.Popen([sys.executable, "-c", MANY_LINES], stderr=theirs) for _ in range(3)]
    os.close(theirs)
    with open(ours) as lines:
        assert [len(json.loads(line)["text"]) for line in lines] == [10_000] * 90
    assert [process.wait() for process in processes] == [0, 0, 0]


def test_log_format_setting_is_validated() -> None:
    assert read_settings({}, {"HELIOGRAPH_LOG_FORMAT": "json"}).log_format == "json"
    with pytest.raises(BadSetting, match="expected text or json"):
        read_settings({}, {"HELIOGRAPH_LOG_FORMAT": "xml"})


FAULT = """
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.storage.messages import Messages

async def broken(*_):
    raise RuntimeError("broken on purpose")

EmailSimulator.send_message = Messages.get = broken
"""
MAIL = {"from": "hi@acme.test", "to": "delivered@simulator.test", "subject": "canary-subject", "text": "Hi"}


def test_every_line_of_the_service_is_json_with_its_id(tmp_path: Path) -> None:
    with Service(f"sqlite:///{tmp_path / 'h.db'}", tmp_path / "data", log_format="json") as service:
        service.apply()
        process = Forked(FAULT + PROGRAM, ["serve", "--listen", "127.0.0.1:0"], service._environment)
        service.processes.append(process)
        greeted = next(line for line in process.stdout if line.startswith("Heliograph is "))
        service.ports.append(int(greeted.split("127.0.0.1:")[1].split()[0]))
        sent, missed = service.post("/v1/emails", MAIL), service.get("/v1/emails/eml_1")
        assert (sent.status, missed.status) == (202, 500)
        ids = {"internal error": missed.headers["x-request-id"], "send failed with an exception": sent.json["id"]}
        seen: dict[str, str] = {}
        for text in process.stdout:
            if text.startswith("{"):
                line = json.loads(text)
                seen[line["event"]] = line.get("request_id") or line.get("message")
                assert "canary" not in text and "@" not in text
            else:
                assert text.startswith("First operator: "), text
            if ids.items() <= seen.items():
                break
        assert ids.items() <= seen.items()


def test_a_traceback_shows_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(lambda: 0.0)
    try:
        token = "hk_" + "secret"
        raise RuntimeError("broke" if token else "")
    except RuntimeError:
        structlog.get_logger().exception("internal error", request_id="req_1")
    finally:
        structlog.reset_defaults()
    output = capsys.readouterr().err
    assert "RuntimeError: broke" in output
    assert "request_id=req_1" in output
    assert "hk_secret" not in output


@pytest.mark.parametrize(
    ("said", "logged"),
    [
        ("DETAIL: Key (email)=(zoe.c@example.com) exists", "DETAIL: Key (email)=([address]) exists"),
        ("/v1/suppressions/zoe%40example.com", "/v1/suppressions/[address]"),
        ("550 <+44 7700 900777> unknown", "550 <[address]> unknown"),
        ("cannot reach postgresql://heliograph@db.example.com/x", "postgresql://heliograph@db.example.com/x"),
    ],
)
def test_log_redacts_addresses_in_errors(capsys: pytest.CaptureFixture[str], said: str, logged: str) -> None:
    """The text of an error contains no address either."""
    logs.configure(lambda: 0.0)
    try:
        raise RuntimeError(said)
    except RuntimeError as error:
        structlog.get_logger().exception("internal error", error=str(error))
    finally:
        structlog.reset_defaults()
    assert capsys.readouterr().err.count(logged) >= 2


def test_repeated_error_is_logged_once_and_then_counted() -> None:
    seconds = [0.0]
    fold = logs.FoldErrors(lambda: seconds[0])

    def told(**line: Any) -> Any:
        try:
            return fold(None, "", {"event": "store unavailable", **line})
        except structlog.DropEvent:
            return None

    assert [bool(told(error="gone", request_id=str(n))) for n in range(4)] == [True, False, False, False]
    assert told(error="another")
    assert told(request_id="no error, no folding") and told(request_id="no error, no folding")
    seconds[0] = logs.FOLD_INTERVAL_S
    assert told(error="gone")["more"] == 3
    assert told(error="gone") is None
