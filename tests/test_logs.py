"""A log line tells what broke, and never what was in the variables."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from heliograph import logs
from heliograph.settings import BadSetting, read_settings
from tests.forks import Forked
from tests.service import PROGRAM, Service


@pytest.fixture
def as_json(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """What was logged so far, a JSON object a line."""
    handlers, level = logging.root.handlers[:], logging.root.level
    logs.configure(lambda: 0.0, process=3, form="json")
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_a_line_is_a_json_object_with_what_is_bound(as_json: Any) -> None:
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


def test_a_traceback_as_json_shows_no_values(as_json: Any) -> None:
    try:
        token = "hk_" + "secret"
        raise RuntimeError("broke" if token else "")
    except RuntimeError:
        structlog.get_logger().exception("internal error")
    (line,) = as_json()
    assert "RuntimeError: broke" in line["exception"] and "test_logs.py" in line["exception"]
    assert "hk_secret" not in json.dumps(line)


def test_json_names_nobody(as_json: Any) -> None:
    structlog.get_logger().error("refused", error="first line\nsome.one@example.test +4915112345678")
    (line,) = as_json()
    assert line["error"].startswith("first line\n") and "example" not in line["error"] and "151" not in line["error"]


def test_what_libraries_say_is_json_too(as_json: Any) -> None:
    logging.getLogger("asyncio").error("Task was destroyed but it is pending!")
    logging.getLogger("asyncio").info("chatter")
    (line,) = as_json()
    assert (line["event"], line["logger"], line["level"]) == ("a library says", "asyncio", "error")


def test_setting() -> None:
    assert read_settings({}, {"HELIOGRAPH_LOG_FORMAT": "json"}).log_format == "json"
    with pytest.raises(BadSetting, match="expected text or json"):
        read_settings({}, {"HELIOGRAPH_LOG_FORMAT": "xml"})


FAULT = """
from heliograph.channels.email.simulator import EmailSimulator
from heliograph.storage.messages import Messages

async def broken(*_):
    raise RuntimeError("broken on purpose")

EmailSimulator.hand_over = Messages.get = broken
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
        ids = {"internal error": missed.headers["x-request-id"], "hand-over broke off": sent.json["id"]}
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
    said = capsys.readouterr().err
    assert "RuntimeError: broke" in said
    assert "request_id=req_1" in said
    assert "hk_secret" not in said


@pytest.mark.parametrize(
    ("said", "logged"),
    [
        ("DETAIL: Key (email)=(zoe.c@example.com) exists", "DETAIL: Key (email)=([address]) exists"),
        ("/v1/suppressions/zoe%40example.com", "/v1/suppressions/[address]"),
        ("550 <+44 7700 900777> unknown", "550 <[address]> unknown"),
        ("cannot reach postgresql://heliograph@db.example.com/x", "postgresql://heliograph@db.example.com/x"),
    ],
)
def test_nobodys_address_is_logged(capsys: pytest.CaptureFixture[str], said: str, logged: str) -> None:
    """Nor is it in the text of an error."""
    logs.configure(lambda: 0.0)
    try:
        raise RuntimeError(said)
    except RuntimeError as error:
        structlog.get_logger().exception("internal error", error=str(error))
    finally:
        structlog.reset_defaults()
    assert capsys.readouterr().err.count(logged) >= 2


def test_the_same_error_is_told_once_and_then_counted() -> None:
    seconds = [0.0]
    fold = logs.Fold(lambda: seconds[0])

    def told(**line: Any) -> Any:
        try:
            return fold(None, "", {"event": "store unavailable", **line})
        except structlog.DropEvent:
            return None

    assert [bool(told(error="gone", request_id=str(n))) for n in range(4)] == [True, False, False, False]
    assert told(error="another")
    assert told(request_id="no error, no folding") and told(request_id="no error, no folding")
    seconds[0] = logs.FOLD_S
    assert told(error="gone")["more"] == 3
    assert told(error="gone") is None
