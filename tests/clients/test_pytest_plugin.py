"""The pytest plugin as a program's tests use it: in a separate pytest run, with the service that it starts."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import re
import pytest
from heliograph_client import Heliograph
from heliograph_client.errors import RateLimitError

def invite(to):
    with Heliograph() as client:
        link = '<a href="https://example.com/join/7">Join</a>'
        client.emails.send(to=to, subject="Welcome", html=link, text="Code 246810")

def test_an_invitation(heliograph):
    invite("delivered+ada@simulator.test")
    message = heliograph.wait(to="delivered+ada@simulator.test")
    assert (message.subject, message.code, message.links) == ("Welcome", "246810", ["https://example.com/join/7"])

def test_what_the_setup_adds(heliograph):
    heliograph.client.sms.send(to="+447400123456", template_id="tpl_test")
    assert heliograph.wait(to="+447400123456").text == "Hello"

def test_messages_of_other_tests_are_not_seen(heliograph):
    try:
        heliograph.wait(to="delivered+ada@simulator.test", timeout=0)
    except AssertionError as error:
        assert "no message to" in str(error)
    else:
        raise RuntimeError

def test_five_days(heliograph):
    sent = heliograph.client.emails.send(to="deferred@simulator.test", subject="Later", text="Hello")
    heliograph.clock.advance(days=5)
    assert heliograph.client.emails.get(sent.id).status == "failed"
    heliograph.client.emails.send(to="delivered+late@simulator.test", subject="Now", text="Hello")
    assert heliograph.wait(to="delivered+late@simulator.test").subject == "Now"

def test_a_bad_day(heliograph):
    with heliograph.chaos("status=503", times=1):
        invite("delivered+again@simulator.test")  # its client tries again
    assert heliograph.wait(to="delivered+again@simulator.test").subject == "Welcome"
    with heliograph.chaos("rate_limit"), pytest.raises(RateLimitError):
        Heliograph(max_retries=0).emails.send(to="delivered@simulator.test", subject="Never", text="Hello")
    invite("delivered+well@simulator.test")

def test_codes(heliograph):
    begun = heliograph.client.verify.start(to="+447400123456")
    code = heliograph.wait(to="+447400123456", channel="verification").code
    assert heliograph.client.verify.check(begun.id, code=code).status == "verified"
"""
SETUP = """
  [[teams.recipients]]
  address = "+447400123456"
  [[teams.templates]]
  id = "tpl_test"
  channel = "sms"
  name = "Test"
  body = "Hello"
"""


def run(folder: Path, setup: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_program.py").write_text(PROGRAM)
    (folder / "team.toml").write_text(setup)
    (folder / "pytest.ini").write_text("[pytest]\nheliograph_setup = team.toml\n")
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(str(root / path) for path in ("src", "clients/python/src"))
    plugins = ["-p", "heliograph_client.pytest_plugin", "-p", "no:schemathesis", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, str(folder)],
        env=os.environ | {"PYTHONPATH": paths, "CI": ""},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_the_plugin_runs_a_service_for_tests(tmp_path: Path) -> None:
    process = run(tmp_path, SETUP)
    assert process.returncode == 0 and "6 passed" in process.stdout, process.stdout + process.stderr


def test_a_failed_setup_is_reported(tmp_path: Path) -> None:
    process = run(tmp_path, 'unknown = "?"')
    assert process.returncode and "could not be set up" in process.stdout and "unknown" in process.stdout
