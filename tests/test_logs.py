"""A log line tells what broke, and never what was in the variables."""

import pytest
import structlog

from heliograph import logs


def test_a_traceback_shows_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
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
