"""Software WebAuthn authenticator that creates and signs with a passkey; tests can make it return wrong values."""

import hashlib
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40
ORIGIN = "https://mail.example.com"


def encode_base64url(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Authenticator:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.id = os.urandom(16)
        self.handle = b""  # id of the passkey's owner
        self.count = 0
        self.flags = PRESENT | VERIFIED
        self.origin = ORIGIN
        self.party = ""  # relying party id; empty to use the requested one

    def make(self, options_json: str, **client: Any) -> str:
        options = json.loads(options_json)
        self.handle = decode_base64url(options["user"]["id"])
        numbers = self._key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        attested = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + cbor2.dumps(cose)
        data = self._data(options["rp"]["id"], self.flags | ATTESTED) + attested
        client_data = self._client("webauthn.create", options, client)
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer(
            {"clientDataJSON": encode_base64url(client_data), "attestationObject": encode_base64url(attestation)}
        )

    def sign(self, options_json: str, **client: Any) -> str:
        options = json.loads(options_json)
        self.count += self.count > 0
        data = self._data(options["rpId"], self.flags)
        client_data = self._client("webauthn.get", options, client)
        signature = self._key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        parts = {
            "clientDataJSON": client_data,
            "authenticatorData": data,
            "signature": signature,
            "userHandle": self.handle,
        }
        return self._answer({name: encode_base64url(part) for name, part in parts.items()})

    def _data(self, party: str, flags: int) -> bytes:
        party = self.party or party
        return hashlib.sha256(party.encode()).digest() + bytes([flags]) + self.count.to_bytes(4, "big")

    def _client(self, kind: str, options: dict[str, Any], client: dict[str, Any]) -> bytes:
        usual = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps(usual | client).encode()

    def _answer(self, response: dict[str, str]) -> str:
        id_ = encode_base64url(self.id)
        return json.dumps(
            {"id": id_, "rawId": id_, "type": "public-key", "response": response, "clientExtensionResults": {}}
        )
