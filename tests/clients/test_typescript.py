"""The TypeScript client: built like its package, and run by Node with the service."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from clients.types_for_typescript import TARGET

from heliograph.webhooks.policy.signature import make_secret, signature_headers
from tests.npm import install
from tests.service import TOKENS, Service

CLIENT = TARGET.parents[1]
SECRET = make_secret(bytes(24))
MAIL = {"from": "a@acme.test", "to": "delivered@simulator.test", "subject": "S", "text": "T"}
BEGIN = {
    "esm": "import { chaos, Heliograph, HeliographError, verifyWebhook } from 'heliograph-client';\n",
    "cjs": "const { chaos, Heliograph, HeliographError, verifyWebhook } = require('heliograph-client');\n",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a program that has the built client in its node_modules."""
    folder = tmp_path_factory.mktemp("npm") / "program" / "node_modules" / "heliograph-client"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    install(folder, "the TypeScript client")
    subprocess.run(["node", "build.mjs"], cwd=folder, check=True, timeout=300)
    return folder.parents[1]


def environment_of(service: Service) -> dict[str, str]:
    url = f"http://127.0.0.1:{service.ports[0]}"
    return {**os.environ, "HELIOGRAPH_URL": url, "HELIOGRAPH_KEY": TOKENS["ACME"]}


def run(package: Path, service: Service, program: str, kind: str = "esm") -> Any:
    """Return the JSON that the program prints."""
    file = package / f"program.{'mjs' if kind == 'esm' else 'cjs'}"
    file.write_text(BEGIN[kind] + program)
    process = subprocess.run(
        ["node", file], env=environment_of(service), cwd=package, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_attachments_may_be_bytes(package: Path, shared_service: Service) -> None:
    program = f"""
    const h = new Heliograph(), octets = new Uint8Array(100_000).map((_, n) => n);
    const mail = content => ({{ ...{json.dumps(MAIL)}, attachments: [{{ filename: "a.txt", content }}] }});
    const given = [octets, Buffer.from("Hi"), new Uint8Array(), "SGk="].map(mail);
    const ids = [];
    for (const one of given) ids.push((await h.emails.send(one)).unwrap().id);
    ids.push((await h.emails.batch({{ messages: given.slice(0, 1) }})).unwrap().data[0].id);
    console.log(JSON.stringify(ids));
    """
    headers = {"Authorization": f"Bearer {TOKENS['ACME']}"}
    sizes = [
        shared_service.get(f"/compat/resend/emails/{id_}/attachments", headers=headers).json["data"][0]["size"]
        for id_ in run(package, shared_service, program)
    ]
    assert sizes == [100_000, 2, 0, 2, 100_000]


@pytest.mark.parametrize("kind", ["esm", "cjs"])
def test_messages_are_sent_read_and_listed(package: Path, shared_service: Service, kind: str) -> None:
    program = f"""
    (async () => {{
      const h = new Heliograph();
      const sent = (await h.emails.send({json.dumps(MAIL)})).unwrap();
      const read = (await h.emails.get(sent.id)).unwrap();
      const refused = await h.emails.send({{ to: "nobody" }});
      const lost = await h.verify.get("ver_none");
      const ids = [];
      for await (const mail of h.emails.list({{ limit: 1 }})) {{ ids.push(mail.id); if (ids.length == 2) break; }}
      const page = (await h.emails.list({{ limit: 1 }})).unwrap();
      const me = (await h.me()).unwrap();
      const batch = (await h.emails.batch({{ messages: [{json.dumps(MAIL)}] }})).unwrap();
      const total = (await h.batches.get(batch.id)).unwrap().total;
      let thrown = null;
      try {{ lost.unwrap(); }} catch (error) {{ thrown = error instanceof HeliographError; }}
      console.log(JSON.stringify({{ sent, read: read.id, refused: refused.error, lost: lost.error.status, ids, thrown,
        page: page.data.length, team: me.team.id, total }}));
    }})();
    """
    shared_service.post("/v1/emails", MAIL)
    output = run(package, shared_service, program, kind)
    assert output["read"] == output["sent"]["id"] == output["ids"][0] and len(set(output["ids"])) == 2
    assert (output["lost"], output["thrown"], output["page"], output["total"], output["team"]) == (
        404,
        True,
        1,
        1,
        "team_acme",
    )
    assert output["refused"]["code"] == "missing_body" and output["refused"]["requestId"].startswith("req_")


@pytest.mark.parametrize(
    ("answers", "asked", "outcome"),
    [
        ([(503, "true"), (202, "")], 2, "eml_1"),
        ([(429, "true"), (500, "true"), (202, "")], 3, "eml_1"),
        ([(503, "true")] * 9, 3, "service_unavailable"),
        ([(409, "true"), (202, "")], 2, "eml_1"),
        ([(400, "false"), (202, "")], 1, "service_unavailable"),
        ([(0, ""), (202, "")], 2, "eml_1"),
    ],
)
def test_client_retries_retryable_responses_with_the_same_key(
    package: Path, shared_service: Service, answers: list[tuple[int, str]], asked: int, outcome: str
) -> None:
    """Each retry has the same Idempotency-Key."""
    program = f"""
    const answers = {json.dumps(answers)}, keys = [];
    const fetch = async (url, init) => {{
      keys.push(init.headers["idempotency-key"]);
      const [status, again] = answers.shift();
      if (!status) throw new TypeError("connection lost");
      const body = status == 202 ? {{ id: "eml_1" }} : {{ error: {{ code: "service_unavailable", message: "" }} }};
      return Response.json(body, {{ status, headers: {{ "heliograph-should-retry": again, "retry-after": "0.01" }} }});
    }};
    const {{ data, error }} = await new Heliograph({{ fetch }}).emails.send({{}});
    console.log(JSON.stringify({{ keys, outcome: data ? data.id : error.code }}));
    """
    output = run(package, shared_service, program)
    assert (len(output["keys"]), len(set(output["keys"])), output["outcome"]) == (asked, 1, outcome)
    assert output["keys"][0]


def test_simulated_failure_is_returned_once(package: Path, shared_service: Service) -> None:
    program = f"""
    const h = new Heliograph({{ key: "{TOKENS["SANDBOX"]}", retries: 0, fetch: chaos("status=503", {{ times: 1 }}) }});
    const mail = {{ to: "delivered@simulator.test", subject: "S", text: "T" }};
    const refused = (await h.emails.send(mail)).error, sent = await h.emails.send(mail);
    console.log(JSON.stringify([refused.status, refused.code, sent.error]));
    """
    assert run(package, shared_service, program) == [503, "service_unavailable", None]


def test_drafts_layouts_and_opt_outs_are_managed(package: Path, shared_service: Service, phone: str) -> None:
    program = f"""
    const h = new Heliograph(), phone = {json.dumps(phone)}, told = {{}};
    const frame = {{ name: "Frame", html: "<p>{{{{content}}}}</p>", text: "{{{{content}}}}" }};
    const layout = (await h.layouts.create(frame)).unwrap();
    told.layout = (await h.layouts.change(layout.id, {{ name: "Plain" }})).unwrap().id === layout.id;
    told.layouts = [];
    for await (const one of h.layouts.list({{ limit: 1 }})) told.layouts.push(one.id === layout.id);
    const made = (await h.templates.create({{ channel: "email", name: "Hi", subject: "Hi", text: "Hello" }})).unwrap();
    told.draft = (await h.templates.change(made.id, {{ subject: "Ho" }})).unwrap().draft.subject;
    told.submitted = (await h.templates.submit(made.id)).unwrap().submitted_at !== null;
    told.read = (await h.templates.get(made.id)).unwrap().id === made.id;
    told.versions = [];
    for await (const one of h.templates.versions(made.id)) told.versions.push(one.version);
    told.archived = (await h.templates.archive(made.id)).error?.code ?? "ok";
    told.archived_layout = (await h.layouts.archive(layout.id)).error?.code ?? "ok";
    told.added = (await h.optOuts.add({{ phone, channel: "sms" }})).unwrap().phone === phone;
    told.found = (await h.optOuts.get(phone, {{ channel: "sms" }})).unwrap().channel;
    told.listed = false;
    for await (const one of h.optOuts.list()) told.listed ||= one.phone === phone;
    told.removed = (await h.optOuts.remove(phone)).error;
    told.gone = (await h.optOuts.get(phone)).error.code;
    console.log(JSON.stringify(told));
    """
    output = run(package, shared_service, program)
    assert True in output.pop("layouts")
    assert output == {
        **dict.fromkeys(("layout", "submitted", "read", "added", "listed"), True),
        "draft": "Ho",
        "versions": [1],
        "archived": "ok",
        "archived_layout": "ok",
        "found": "sms",
        "removed": None,
        "gone": "opt_out_not_found",
    }


def test_inbound_mail_and_its_files_are_read(package: Path, shared_service: Service) -> None:
    """Files are returned as bytes, whatever their type; errors are parsed as usual."""
    program = """
    const asked = [], octets = new Uint8Array([0, 123, 125]);
    const fetch = async (url, init) => {
      const path = new URL(url).pathname;
      asked.push(`${init.method} ${path}`);
      const error = { code: "received_not_found", message: "" };
      const headers = { "content-type": "application/octet-stream" };
      if (path.includes("lost")) return Response.json({ error }, { status: 404 });
      if (path.split("/").length > 4) return new Response(octets, { headers });
      return Response.json({ id: "rcv_1", data: [{ id: "rcv_1" }], has_more: false });
    };
    const h = new Heliograph({ fetch }), ids = [];
    for await (const one of h.received.list()) ids.push(one.id);
    ids.push((await h.received.get("rcv_1")).unwrap().id);
    const files = [await h.received.raw("rcv_1"), await h.received.attachment("rcv_1", "a/b")];
    const lost = (await h.received.raw("lost")).error.code;
    console.log(JSON.stringify({ asked, ids, files: files.map((one) => [...new Uint8Array(one.unwrap())]), lost }));
    """
    assert run(package, shared_service, program) == {
        "asked": [
            "GET /v1/received",
            "GET /v1/received/rcv_1",
            "GET /v1/received/rcv_1/raw",
            "GET /v1/received/rcv_1/attachments/a%2Fb",
            "GET /v1/received/lost/raw",
        ],
        "ids": ["rcv_1", "rcv_1"],
        "files": [[0, 123, 125]] * 2,
        "lost": "received_not_found",
    }


def test_the_feed_continues_from_a_checkpoint(package: Path, shared_service: Service) -> None:
    program = """
    const h = new Heliograph(), seen = [];
    for await (const event of h.events.follow()) { seen.push(event.id); if (seen.length == 2) break; }
    for await (const event of h.events.follow(seen[0])) { seen.push(event.id); break; }
    console.log(JSON.stringify(seen));
    """
    shared_service.post("/v1/emails", MAIL)
    first, second, third = run(package, shared_service, program)
    assert first != second == third


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, "email.sent"),
        ({"body": '{"type":"other"}'}, "No signature was made with this secret."),
        ({"secret": make_secret(bytes(range(24)))}, "No signature was made with this secret."),
        ({"webhook-timestamp": "1"}, "It was signed at another time. Is the clock right?"),
        ({"webhook-id": None}, "There is no header webhook-id."),
        ({"webhook-signature": "v1,-"}, "This is not base64."),
    ],
)
def test_a_webhook_is_verified(package: Path, shared_service: Service, change: dict[str, Any], outcome: str) -> None:
    body = '{"type":"email.sent"}'
    signed = signature_headers([SECRET], "evt_1", int(time.time()), body.encode())
    arguments = {"body": body, "secret": SECRET, **signed, **change}
    program = f"""
    const given = {json.dumps(arguments)};
    const told = await verifyWebhook(given.body, given, given.secret).then((e) => e.type, (error) => error.message);
    console.log(JSON.stringify(told));
    """
    assert run(package, shared_service, program) == outcome


def test_the_readme_installs_the_package_that_npm_makes() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    packed = f"clients/typescript/{package['name']}-{package['version']}.tgz"
    assert f"npm install ./{packed}\n" in (CLIENT / "README.md").read_text()


def test_readme_examples_run(package: Path, demo: Service) -> None:
    examples = re.findall(r"```js\n(.*?)```", (CLIENT / "README.md").read_text(), re.S)
    lines = "\n".join(examples).splitlines()
    imports = [line for line in lines if line.startswith("import")]
    program = "\n".join(line for line in lines if line not in imports)
    (package / "readme.mjs").write_text("\n".join(dict.fromkeys(imports)) + "\n" + program)
    process = subprocess.run(
        ["node", "readme.mjs"],
        env=environment_of(demo),
        cwd=package,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0 and re.match(r"eml_\w+ (queued|sending)\n", process.stdout), process.stderr


def test_the_types_are_strict(package: Path) -> None:
    program = """
    import { Heliograph } from "heliograph-client";
    const h = new Heliograph({ url: "http://localhost", key: "hk_" });
    const { data, error } = await h.emails.send({ to: "a@b.test", subject: "S", text: "T" });
    if (data) { const id: string = data.id; void id; }
    if (error?.code === "recipient_suppressed") void error.details;
    for await (const sms of h.sms.list({ status: "failed" })) { const to: string = sms.to; void to; }
    const file: ArrayBuffer = (await h.received.raw("rcv_1")).unwrap(); void file;
    for await (const one of h.templates.versions("tpl_1")) { const version: number = one.version; void version; }
    for await (const event of h.events.follow("evt_1")) {
      if (event.type === "email.bounced") { const reason: unknown = event.data.bounce?.["text"]; void reason; }
      // @ts-expect-error: an SMS has no bounce
      if (event.type === "sms.failed") void event.data.bounce;
      // @ts-expect-error: there is no such event
      if (event.type === "email.lost") void 0;
    }
    // @ts-expect-error: there is no such channel
    await h.optOuts.get("+15005550006", { channel: "email" });
    // @ts-expect-error: there is no such field
    await h.emails.send({ to: "a@b.test", subjekt: "S" });
    // @ts-expect-error: there is no such state
    h.emails.list({ status: "lost" });
    // @ts-expect-error: there is no such code
    if (error?.code === "lost") void 0;
    """
    (package / "typed.mts").write_text(program)
    tsc = package / "node_modules/heliograph-client/node_modules/.bin/tsc"
    checks = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "", "typed.mts"]
    process = subprocess.run([tsc, *checks], cwd=package, capture_output=True, text=True, timeout=200)
    assert process.returncode == 0, process.stdout
