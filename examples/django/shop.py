"""A shop that mails receipts, and stops writing to addresses that bounce.

pip install heliograph-client django
HELIOGRAPH_URL=… HELIOGRAPH_KEY=… HELIOGRAPH_FROM=… WEBHOOK_SECRET=whsec_… python shop.py runserver 3000
"""

import json
import os
import secrets

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from heliograph_client import WebhookRefused, verify_webhook
from heliograph_client.errors import ApiError

settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY=secrets.token_hex(),
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    DEFAULT_FROM_EMAIL=os.environ["HELIOGRAPH_FROM"],
    EMAIL_BACKEND="heliograph_client.django.EmailBackend",
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


@csrf_exempt
@require_POST
def receive(request: HttpRequest) -> HttpResponse:
    try:
        event = verify_webhook(request.body, request.headers, os.environ["WEBHOOK_SECRET"])
    except WebhookRefused as refused:
        return HttpResponse(str(refused), status=400)
    if event["type"] == "email.bounced":
        unreachable.add(event["data"]["recipient"])
    return HttpResponse(status=204)


urlpatterns = [path("orders/<id>", order), path("webhooks", receive)]

if __name__ == "__main__":
    execute_from_command_line()
