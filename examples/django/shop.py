"""A shop that mails receipts, and stops writing to addresses that bounce.

pip install heliograph-client django
HELIOGRAPH_URL=… HELIOGRAPH_KEY=… HELIOGRAPH_FROM=… WEBHOOK_SECRET=whsec_… python shop.py runserver 3000
"""

import json
import os
import secrets
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.management import execute_from_command_line
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from heliograph_client.django import tracking, webhook
from heliograph_client.errors import ApiError

settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY=secrets.token_hex(),
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    DEFAULT_FROM_EMAIL=os.environ["HELIOGRAPH_FROM"],
    EMAIL_BACKEND="heliograph_client.django.EmailBackend",
    HELIOGRAPH_WEBHOOK_SECRET=os.environ["WEBHOOK_SECRET"],
)
unreachable = set[str]()


@csrf_exempt
@require_POST
def order(request: HttpRequest, id: str) -> HttpResponse:
    to = json.loads(request.body)["email"]
    if to in unreachable:
        return JsonResponse({"error": "This address bounced."}, status=409)
    mail = EmailMessage(f"Order {id}", "Thank you.", to=[to])
    mail.esp_extra = {"idempotency_key": f"order {id}"}
    try:
        mail.send()
    except ApiError as error:
        return JsonResponse({"error": error.code}, status=502)
    return JsonResponse({"mail": mail.heliograph_id})


@receiver(tracking)
def heard(event: Any, **_: object) -> None:
    if event.event_type == "bounced" and event.recipient:
        unreachable.add(event.recipient)


urlpatterns = [path("orders/<id>", order), path("webhooks", webhook)]

if __name__ == "__main__":
    execute_from_command_line()
