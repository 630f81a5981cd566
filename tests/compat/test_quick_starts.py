"""Each service's first steps, as its own pages have them, against what `heliograph demo` prints (docs/compat.md)."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.cli.test_demo import OTHERS, running
from tests.compat import quick_starts as steps
from tests.npm import install, miss
from tests.service import PATIENCE_S, Service, until

PHPMAILER = Path("/usr/share/php/libphp-phpmailer/src")
COMPAT = Path(__file__).parents[2] / "docs" / "compat.md"
# as a line of /etc/hosts would do: hosts of compat_hosts resolve to this machine
NAMES = """
import socket
_asked = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: _asked(
    "127.0.0.1" if str(host).endswith(".demo.test") else host, *more, **named
)
"""


class Demo:
    def __init__(self, lines: list[str], folder: Path) -> None:
        self.folder = folder
        self.credentials = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(OTHERS)}
        self.key = self.credentials["Resend"][-1]
        self.base = self.credentials["Resend"][0].removesuffix("/compat/resend")

    def get(self, path: str) -> Any:
        request = urllib.request.Request(self.base + path, headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def captured(self, to: str, text: str) -> bool:
        """Return whether the inbox has the message."""
        entries = self.get(f"/v1/inbox?to={quote(to)}&wait=5")["data"]
        return any(text in json.dumps(entry, ensure_ascii=False) for entry in entries)

    def fill(self, steps: str, service: str) -> str:
        base, *rest = self.credentials[service]
        host, _, port = base.rpartition(":")
        names = {"KEY": rest[-1], "BASE": base, "ACCOUNT": rest[0], "USER": rest[0], "HOST": host, "PORT": port}
        names["ROOT"] = f"http://postmark.demo.test:{self.base.rpartition(':')[2]}/"
        return re.sub(rf"\b(?:{'|'.join(names)})\b", lambda match: names[match[0]], steps)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    install(folder, "the Node libraries of Resend, Twilio and nodemailer")
    (folder / "sitecustomize.py").write_text(NAMES)
    with running(folder) as lines:
        data = folder / "heliograph-demo"
        (folder / "hosts.toml").write_text('[platform]\ncompat_hosts = { "postmark.demo.test" = "postmark" }\n')
        Service(f"sqlite:///{data / 'heliograph.db'}", data).apply(folder / "hosts.toml")
        yield Demo(lines, folder)


PROGRAMS = {"py": sys.executable, "mjs": "node", "cjs": "node", "php": "php", "sh": "sh"}
HELLO = "Hello</strong> dear Postmark user"


@pytest.mark.parametrize(
    ("service", "ending", "given", "prints", "to", "words"),
    [
        ("Resend", "py", steps.RESEND_PYTHON, "'id': 'eml_", "delivered@resend.dev", "hello world"),
        ("Resend", "mjs", steps.RESEND_NODE, "id: 'eml_", "delivered@resend.dev", "Hello World"),
        ("Twilio", "py", steps.TWILIO_PYTHON, "Like Kevin Bacon.", "+15558675310", "Like Kevin Bacon."),
        ("Twilio", "cjs", steps.TWILIO_NODE, "in fourteen parsecs?", "+15558675310", "in fourteen parsecs?"),
        ("Twilio", "py", steps.VERIFY_PYTHON, "pending\npending", "+15017122661", '"code"'),
        ("Twilio", "cjs", steps.VERIFY_NODE, "pending\npending", "+15017122662", '"code"'),
        ("Postmark", "sh", steps.POSTMARK_CURL, '"ErrorCode":0', "receiver@example.com", HELLO),
        ("Postmark", "cjs", steps.POSTMARK_NODE, "ErrorCode: 0", "recipient@example.com", "Hello from Postmark!"),
        ("Postmark", "py", steps.POSTMARKER, "'ErrorCode': 0", "receiver@example.com", HELLO),
        ("Postal", "sh", steps.POSTAL_CURL, '"status":"success"', "sarah@example.com", "Hello world!"),
        ("SMTP", "cjs", steps.NODEMAILER, "Message sent: <", "baz@example.com", "Hello ✔"),
        ("SMTP", "py", steps.SMTPLIB, "sent", "you@example.net", "The contents of textfile"),
        ("SMTP", "py", steps.DJANGO, "1", "to@example.com", "Subject here"),
        ("SMTP", "php", steps.PHPMAILER, "Message has been sent", "bcc@example.com", "Here is the subject"),
    ],
    ids=[
        *("resend-python", "resend-node", "twilio-python", "twilio-node", "verify-python", "verify-node"),
        *(
            "postmark-curl",
            "postmark-node",
            "postmarker",
            "postal-curl",
            "nodemailer",
            "smtplib",
            "django",
            "phpmailer",
        ),
    ],
)
def test_quick_starts_run_unchanged(
    demo: Demo, service: str, ending: str, given: str, prints: str, to: str, words: str
) -> None:
    if shutil.which(PROGRAMS[ending]) is None or (ending == "php" and not PHPMAILER.exists()):
        miss(service, f"{PROGRAMS[ending]} and its library are not installed")
    output = run(demo, service, ending, given)
    assert prints in output, output
    assert until(lambda: demo.captured(to, words))


def run(demo: Demo, service: str, ending: str, program: str) -> str:
    file = demo.folder / f"steps.{ending}"
    file.write_text(demo.fill(program, service))
    base = demo.credentials["Resend"][0]
    settings = {"RESEND_API_URL": base, "RESEND_BASE_URL": base, "PYTHONPATH": str(demo.folder)}
    command = [PROGRAMS[ending], str(file)]
    process = subprocess.run(
        command, cwd=demo.folder, env=os.environ | settings, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_postmarks_test_token_works_in_the_demo(demo: Demo) -> None:
    output = run(demo, "Postmark", "sh", steps.POSTMARK_CURL.replace("KEY", "POSTMARK_API_TEST"))
    assert '"ErrorCode":0' in output


def test_every_quick_start_is_documented() -> None:
    table = COMPAT.read_text().partition("<!-- quick starts: begin -->")[2].partition("<!-- quick starts: end -->")[0]
    assert table.count("| works |") == 14
