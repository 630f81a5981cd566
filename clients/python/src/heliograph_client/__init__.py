"""Python client of Heliograph: `Heliograph` blocks, `AsyncHeliograph` is awaited."""

from heliograph_client import codes as codes
from heliograph_client import errors as errors
from heliograph_client.client import AsyncHeliograph as AsyncHeliograph
from heliograph_client.client import Heliograph as Heliograph
from heliograph_client.errors import ApiError as ApiError
from heliograph_client.errors import HeliographError as HeliographError
from heliograph_client.errors import NoAnswer as NoAnswer
from heliograph_client.webhooks import WebhookRefused as WebhookRefused
from heliograph_client.webhooks import verify_webhook as verify_webhook
