"""A shop that mails receipts, and stops writing to addresses that bounce.

pip install heliograph-client flask
HELIOGRAPH_URL=… HELIOGRAPH_KEY=… HELIOGRAPH_FROM=… WEBHOOK_SECRET=whsec_… flask --app shop run --port 3000
"""

import os

from flask import Flask, request

from heliograph_client import Heliograph
from heliograph_client.errors import ApiError
from heliograph_client.flask import webhook
from heliograph_client.results import Event

heliograph = Heliograph()
unreachable = set[str]()
app = Flask(__name__)


@app.post("/orders/<id>")
def order(id: str) -> tuple[dict[str, str], int]:
    to = request.get_json()["email"]
    if to in unreachable:
        return {"error": "This address bounced."}, 409
    mail = {"from_": os.environ["HELIOGRAPH_FROM"], "to": to, "subject": f"Order {id}", "text": "Thank you."}
    try:
        return {"mail": heliograph.emails.send(**mail, idempotency_key=f"order {id}").id}, 200
    except ApiError as error:
        return {"error": error.code}, 502


@app.post("/webhooks")
@webhook(os.environ["WEBHOOK_SECRET"])
def receive(event: Event) -> None:
    if event.type == "email.bounced":
        unreachable.add(event.data["recipient"])
