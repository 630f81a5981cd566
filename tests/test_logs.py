"""A log line tells what broke, and never what was in the variables."""

from typing import Any

import pytest
import structlog

from heliograph import logs


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
