"""verify_webhook(), and the programs and test vectors of docs/webhooks.md, each run where its language is installed."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from heliograph.webhooks.policy.signature import make_secret, signature_headers
from heliograph.webhooks.verification import WebhookRefused, verify_webhook

PAGE = (Path(__file__).parents[1] / "docs" / "webhooks.md").read_text("utf-8")
T = 1_794_735_000
NEW, OLD, OTHER = (make_secret(bytes(range(start, start + 24))) for start in (0, 100, 200))
BODY = '{"id":"evt_1","name":"Zürich"}'.encode()
STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")


def made(scheme: str, secrets: list[str], body: bytes = BODY) -> dict[str, str]:
    every = signature_headers(secrets, "evt_1", T, body)
    retained = {"both": list(every), "service": ["X-Service-Signature"], "standard": STANDARD}[scheme]
    return {name: every[name] for name in retained}


# -- verify_webhook ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["both", "service", "standard"])
@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
@pytest.mark.parametrize("age", [-300, 0, 300])
def test_webhook_with_a_valid_signature_is_accepted(scheme: str, case: Callable[[str], str], age: int) -> None:
    values = {case(name): value for name, value in made(scheme, [NEW, OLD]).items()}
    for secret in (NEW, OLD, [OTHER, OLD], (NEW,)):
        assert verify_webhook(BODY, values, secret, now=T + age) == json.loads(BODY)


def change(name: str, value: str) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda values: {**values, name: value}


def without(name: str) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda values: {other: value for other, value in values.items() if other != name}


RIGHT = {scheme: made(scheme, [NEW]) for scheme in ("service", "standard")}
SUM = RIGHT["service"]["X-Service-Signature"].partition("v1=")[2]


@pytest.mark.parametrize(
    ("scheme", "changed", "words"),
    [
        ("both", lambda _: {}, "not signed"),
        ("service", change("X-Service-Signature", ""), "t of X-Service-Signature is missing"),
        ("service", change("X-Service-Signature", f"v1={SUM}"), "t of X-Service-Signature is missing"),
        ("service", change("X-Service-Signature", f"t=,v1={SUM}"), "not a time in Unix seconds"),
        ("service", change("X-Service-Signature", f"t=1_794_735_000,v1={SUM}"), "not a time in Unix seconds"),
        ("service", change("X-Service-Signature", f"t=١,v1={SUM}"), "not a time in Unix seconds"),
        ("service", change("X-Service-Signature", f"t={'9' * 5000},v1={SUM}"), "not a time in Unix seconds"),
        ("service", change("X-Service-Signature", f"t={T},t={T},v1={SUM}"), "not a time in Unix seconds"),
        ("service", change("X-Service-Signature", f"t={T}"), "no signature matches"),
        ("service", change("X-Service-Signature", f"t={T + 1},v1={SUM}"), "no signature matches"),
        ("service", change("X-Service-Signature", f"t={T},v0={SUM}"), "no signature matches"),
        ("service", change("X-Service-Signature", f"t={T},v1={SUM[:-1]}"), "no signature matches"),
        ("service", change("X-Service-Signature", f"t={T},v1=é"), "no signature matches"),
        ("service", change("X-Service-Signature", f"t={T},v1=\udcff"), "no signature matches"),
        ("standard", without("webhook-timestamp"), "webhook-timestamp is missing"),
        ("standard", without("webhook-id"), "no signature matches"),
        ("standard", change("webhook-id", "evt_2"), "no signature matches"),
        ("standard", change("webhook-id", "\udcff"), "no signature matches"),
        ("standard", change("webhook-timestamp", str(T + 1)), "no signature matches"),
        ("standard", change("webhook-timestamp", "soon"), "not a time in Unix seconds"),
        ("standard", change("webhook-signature", ""), "no signature matches"),
        ("standard", change("webhook-signature", "v1,"), "no signature matches"),
        ("standard", change("webhook-signature", "v1a,abc v2,def"), "no signature matches"),
        ("both", change("webhook-signature", "v1,wrong"), "no signature matches"),  # the other one is no way around it
    ],
)
def test_webhook_with_changed_headers_is_refused(
    scheme: str, changed: Callable[[dict[str, str]], dict[str, str]], words: str
) -> None:
    with pytest.raises(WebhookRefused, match=words) as caught:
        verify_webhook(BODY, changed(made(scheme, [NEW])), NEW, now=T)
    assert NEW not in str(caught.value)


@pytest.mark.parametrize("scheme", ["service", "standard"])
@pytest.mark.parametrize(
    ("body", "secret", "now", "words"),
    [
        (BODY + b" ", NEW, T, "no signature matches"),
        (BODY, OTHER, T, "no signature matches"),
        (BODY, [], T, "no signature matches"),
        (BODY, NEW, T + 301, "signed 301 s ago, more than 300 s"),
        (BODY, NEW, T - 301, "signed -301 s ago"),
        (BODY, NEW, None, "s ago"),  # the real clock
    ],
)
def test_webhook_invalid_in_both_schemes_is_refused(
    scheme: str, body: bytes, secret: Any, now: float | None, words: str
) -> None:
    with pytest.raises(WebhookRefused, match=words):
        verify_webhook(body, made(scheme, [NEW]), secret, now=now)


def test_webhook_older_than_the_tolerance_is_refused() -> None:
    values = made("both", [NEW])
    assert verify_webhook(BODY, values, NEW, tolerance_s=10, now=T + 10)
    with pytest.raises(WebhookRefused, match="more than 10 s"):
        verify_webhook(BODY, values, NEW, tolerance_s=10, now=T + 11)


@pytest.mark.parametrize("body", [b"", b"[]", b"nul", b'"\xff"'])
def test_webhook_signed_but_not_an_event_is_refused(body: bytes) -> None:
    with pytest.raises(WebhookRefused, match="not a JSON object"):
        verify_webhook(body, made("both", [NEW], body), NEW, now=T)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!", "whsec_é", NEW.removeprefix("whsec_"), [NEW, ""]])
@pytest.mark.parametrize("scheme", ["service", "standard"])
def test_webhook_malformed_secret_raises_a_distinct_error(scheme: str, secret: str) -> None:
    """An unset variable must not become the empty key, with which anyone can sign."""
    with pytest.raises(ValueError, match="a webhook secret is whsec_") as caught:
        verify_webhook(BODY, made(scheme, [NEW]), secret, now=T)
    assert not isinstance(caught.value, WebhookRefused)


def test_only_the_standard_library_is_loaded() -> None:
    program = (
        "import sys; before = set(sys.modules); import heliograph.webhooks.verification; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert loaded == {"heliograph", "heliograph.webhooks", "heliograph.webhooks.verification"}


# -- docs/webhooks.md --------------------------------------------------------------------------------------


def vectors() -> list[tuple[list[str], bytes, dict[str, str]]]:
    """Return the secrets, body and headers of each test vector."""
    result = []
    for block in re.findall(r"^```vector\n(.*?)^```", PAGE, re.M | re.S):
        lines = [line.split(": ", 1) for line in block.splitlines()]
        rest = dict(lines)
        body, _ = rest.pop("body").encode(), rest.pop("secret")
        result.append(([value for name, value in lines if name == "secret"], body, rest))
    return result


def snippets(heading: str) -> list[str]:
    """Return the programs below a heading."""
    part = PAGE.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    return re.findall(rf"^```{LANGUAGES[heading]}\n(.*?)^```", part, re.M | re.S)


def test_documented_test_vectors_match_our_signatures() -> None:
    assert [len(secrets) for secrets, _, _ in vectors()] == [1, 2]
    for secrets, body, values in vectors():
        # Svix's names are beside them
        assert values.items() <= signature_headers(secrets, values["webhook-id"], T, body).items()
        for secret in secrets:
            assert verify_webhook(body, values, secret, now=T)["type"] == "email.bounced"


def test_documented_receiver_with_this_package_works() -> None:
    scope: dict[str, Any] = {}
    exec(snippets("Python")[0], scope)
    (secret,), body, values = vectors()[0]
    with pytest.raises(WebhookRefused, match="s ago"):  # well signed, but not now
        scope["receive"](body, values, secret)
    with pytest.raises(WebhookRefused, match="no signature"):
        scope["receive"](body, values, OTHER)


Case = tuple[bytes, str, str, int]  # body, X-Service-Signature, secret, now


def cases() -> dict[str, tuple[Case, bool]]:
    (_, body, item), ((new, old), _, two) = vectors()[0], vectors()[1]
    single, double = item["X-Service-Signature"], two["X-Service-Signature"]
    return {
        "one secret": ((body, single, new, T), True),
        "rotation, new": ((body, double, new, T), True),
        "rotation, old": ((body, double, old, T), True),
        "just in time": ((body, single, new, T + 300), True),
        "other secret": ((body, single, old, T), False),
        "other body": ((body + b" ", single, new, T), False),
        "too late": ((body, single, new, T + 301), False),
        "too early": ((body, single, new, T - 301), False),
        "other time": ((body, single.replace(str(T), str(T + 1)), new, T), False),
        "no signature": ((body, f"t={T}", new, T), False),
        "no time": ((body, single.partition(",")[2], new, T), False),
        "nothing": ((body, "", new, T), False),
        "odd": ((body, f"t={T},v1,v1=,v1=zz,=,x", new, T), False),
    }


# Each driver reads [[base64 of the body, header, secret, now], …] and prints one true or false a line.
DRIVERS = {
    "Python": "import base64, json, sys\nfor body, *rest in json.load(sys.stdin):\n"
    "    print(json.dumps(verify(base64.b64decode(body), *rest)))",
    "Node": "for (const [body, ...rest] of JSON.parse(require('fs').readFileSync(0)))\n"
    "  console.log(verify(Buffer.from(body, 'base64'), ...rest));",
    "PHP": "foreach (json_decode(file_get_contents('php://stdin')) as [$body, $signature, $secret, $now])\n"
    '  echo json_encode(verify(base64_decode($body), $signature, $secret, $now)), "\\n";',
    "Go": """package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

func main() {
	var cases [][4]any
	json.NewDecoder(os.Stdin).Decode(&cases)
	for _, c := range cases {
		var body []byte
		quoted, _ := json.Marshal(c[0])
		json.Unmarshal(quoted, &body)
		fmt.Println(Verify(body, c[1].(string), c[2].(string), time.Unix(int64(c[3].(float64)), 0)))
	}
}
""",
    "Shell": "while read -r file signature secret now; do\n"
    '  if NOW=$now verify "$file" "${signature#:}" "$secret"; then echo true; else echo false; fi\ndone',
}
LANGUAGES = {"Python": "python", "Node": "js", "PHP": "php", "Go": "go", "Shell": "sh"}


def command(language: str, folder: Path) -> list[str]:
    """Write the program to a file and return the command that runs it."""
    program, driver = snippets(language)[-1], DRIVERS[language]
    if language == "Go":
        (folder / "verify.go").write_text(program, "utf-8")
        (folder / "main.go").write_text(driver, "utf-8")
        return ["go", "run", "verify.go", "main.go"]
    (folder / "program").write_text(f"{program}\n{driver}\n", "utf-8")
    return [{"Python": sys.executable, "Node": "node", "PHP": "php", "Shell": "sh"}[language], "program"]


def asked(language: str, folder: Path, values: list[Case]) -> str:
    if language != "Shell":
        return json.dumps([[base64.b64encode(body).decode(), *rest] for body, *rest in values])
    lines = []
    for number, (body, signature, secret, now) in enumerate(values):
        (folder / f"{number}").write_bytes(body)
        lines.append(f"{number} :{signature} {secret} {now}\n")
    return "".join(lines)


@pytest.mark.parametrize("language", LANGUAGES)
def test_documented_receiver_programs_work(language: str, tmp_path: Path) -> None:
    run = command(language, tmp_path)
    for tool in [run[0], *(["openssl"] if language == "Shell" else [])]:
        if shutil.which(tool) is None:
            pytest.skip(f"{language} on docs/webhooks.md is not run: {tool} is not installed")
    every = cases()
    environment: Mapping[str, str] = {**os.environ, "HOME": str(tmp_path), "GO111MODULE": "off"}
    done = subprocess.run(
        run,
        cwd=tmp_path,
        input=asked(language, tmp_path, [case for case, _ in every.values()]),
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert dict(zip(every, map(json.loads, done.stdout.split()), strict=True)) == {
        name: good for name, (_, good) in every.items()
    }
