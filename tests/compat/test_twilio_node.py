"""A program for Twilio's Node library with our service; only two settings change."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.npm import install
from tests.service import TOKENS, Service

PROGRAM = """
const twilio = require("twilio");
const [base, key, phone] = process.argv.slice(2);
const client = twilio("AC0123456789", key);
client.verify.baseUrl = client.api.baseUrl = base;
const refused = (call) => call.then(() => "not refused", (error) => [error.status, error.code]);
(async () => {
  const service = client.verify.v2.services("VA1");
  const begun = await service.verifications.create({ to: phone, channel: "sms" });
  const wrong = await service.verificationChecks.create({ to: phone, code: "wrong" });
  const right = await service.verificationChecks.create({ to: phone, code: phone.slice(-6) });
  const again = await refused(service.verificationChecks.create({ to: phone, code: phone.slice(-6) }));
  const other = await service.verifications.create({ to: phone, channel: "sms" });
  const canceled = await service.verifications(other.sid).update({ status: "canceled" });
  const content = { contentSid: "tpl_sms", contentVariables: JSON.stringify({ parcel: "4711" }) };
  const sent = [];
  for (let i = 0; i < 3; i++) sent.push(await client.messages.create({ to: phone, ...content }));
  const listed = await client.messages.list({ to: phone, pageSize: 2, limit: 3 });
  const free = await refused(client.messages.create({ to: phone, body: "Hello" }));
  console.log(JSON.stringify({
    begun: begun.status, created: begun.dateCreated instanceof Date, wrong: wrong.valid, right: right.status, again,
    canceled: canceled.status, body: sent[0].body, sentAt: sent[0].dateCreated instanceof Date,
    listed: listed.map((one) => one.sid).join() === sent.map((one) => one.sid).reverse().join(), free,
  }));
})().catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("twilio"), "Twilio's Node library")


def test_verify_and_messages_by_twilio_node(shared_service: Service, node_modules: Path) -> None:
    base = f"http://127.0.0.1:{shared_service.ports[-1]}/compat/twilio"
    (node_modules / "program.js").write_text(PROGRAM)
    process = subprocess.run(
        ["node", "program.js", base, TOKENS["ACME"], "+15005551099"],
        cwd=node_modules,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == {
        "begun": "pending",
        "created": True,
        "wrong": False,
        "right": "approved",
        "again": [404, 20404],
        "canceled": "canceled",
        "body": "Acme: parcel 4711 is on its way. ",
        "sentAt": True,
        "listed": True,
        "free": [400, 21654],
    }
