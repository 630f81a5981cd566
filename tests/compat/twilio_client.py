"""Twilio's own client, configured for our service."""

from twilio.rest import Client

from tests.service import TOKENS, Service

PREFIX = "/compat/twilio"


def client_for(service: Service, key: str = "ACME") -> Client:
    client = Client("AC0123456789", TOKENS[key])
    client.verify.base_url = client.api.base_url = f"http://127.0.0.1:{service.ports[-1]}{PREFIX}"
    return client
