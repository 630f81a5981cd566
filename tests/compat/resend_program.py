"""A typical program for Resend: it sends a mail and waits until its webhook reports the result."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import resend

requests: list[tuple[str, dict[str, str]]] = []


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        requests.append((body, {name: self.headers[f"svix-{name}"] for name in ("id", "timestamp", "signature")}))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


server = HTTPServer(("127.0.0.1", 0), Hook)
address = f"http://127.0.0.1:{server.server_port}/"
hook = resend.Webhooks.create({"endpoint": address, "events": ["email.delivered", "email.opened"]})
mail: Any = {"from": "hello@acme.test", "to": "delivered@simulator.test", "subject": "Hello", "html": "<p>Hello</p>"}
sent = resend.Emails.send(mail)
answer: Any = {"data": {}}
while answer["data"].get("email_id") != sent["id"]:
    server.handle_request()
    body, headers = requests[-1]
    answer = resend.Webhooks.verify(
        {"payload": body, "headers": headers, "webhook_secret": hook["signing_secret"]}  # type: ignore[typeddict-item]
    )
resend.Webhooks.remove(hook["id"])
print(answer["type"])
