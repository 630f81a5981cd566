"""A shop that mails receipts, and stops writing to addresses that bounce.

pip install heliograph-client fastapi uvicorn
HELIOGRAPH_URL=… HELIOGRAPH_KEY=… HELIOGRAPH_FROM=… WEBHOOK_SECRET=whsec_… uvicorn shop:app --port 3000
"""

import os
from typing import Annotated

from fastapi import Body, Depends, FastAPI
from fastapi.responses import JSONResponse

from heliograph_client import AsyncHeliograph
from heliograph_client.errors import ApiError
from heliograph_client.fastapi import webhook_event
from heliograph_client.results import Event

heliograph = AsyncHeliograph()
unreachable = set[str]()
app = FastAPI()


@app.post("/orders/{id}")
async def order(id: str, email: Annotated[str, Body(embed=True)]) -> JSONResponse:
    if email in unreachable:
        return JSONResponse({"error": "This address bounced."}, 409)
    mail = {"from_": os.environ["HELIOGRAPH_FROM"], "to": email, "subject": f"Order {id}", "text": "Thank you."}
    try:
        sent = await heliograph.emails.send(**mail, idempotency_key=f"order {id}")
    except ApiError as error:
        return JSONResponse({"error": error.code}, 502)
    return JSONResponse({"mail": sent.id})


@app.post("/webhooks", status_code=204)
async def receive(event: Annotated[Event, Depends(webhook_event(os.environ["WEBHOOK_SECRET"]))]) -> None:
    if event.type == "email.bounced":
        unreachable.add(event.data["recipient"])
