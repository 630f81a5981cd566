"""A device with a passkey, in software: what it makes and signs, and what it may be told to get wrong."""

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


def text(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def octets(given: str) -> bytes:
    return urlsafe_b64decode(given + "=" * (-len(given) % 4))


class Authenticator:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.id = os.urandom(16)
        self.handle = b""  # whose passkey it is
        self.count = 0
        self.flags = PRESENT | VERIFIED
        self.origin = ORIGIN
        self.party = ""  # another than it is asked for

    def make(self, question: str, **client: Any) -> str:
        asked = json.loads(question)
        self.handle = octets(asked["user"]["id"])
        numbers = self._key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        attested = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + cbor2.dumps(cose)
        data = self._data(asked["rp"]["id"], self.flags | ATTESTED) + attested
        said = self._client("webauthn.create", asked, client)
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer({"clientDataJSON": text(said), "attestationObject": text(attestation)})

    def sign(self, question: str, **client: Any) -> str:
        asked = json.loads(question)
        self.count += self.count > 0
        data = self._data(asked["rpId"], self.flags)
        said = self._client("webauthn.get", asked, client)
        signature = self._key.sign(data + hashlib.sha256(said).digest(), ec.ECDSA(hashes.SHA256()))
        parts = {"clientDataJSON": said, "authenticatorData": data, "signature": signature, "userHandle": self.handle}
        return self._answer({name: text(part) for name, part in parts.items()})

    def _data(self, party: str, flags: int) -> bytes:
        party = self.party or party
        return hashlib.sha256(party.encode()).digest() + bytes([flags]) + self.count.to_bytes(4, "big")

    def _client(self, kind: str, asked: dict[str, Any], client: dict[str, Any]) -> bytes:
        usual = {"type": kind, "challenge": asked["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps(usual | client).encode()

    def _answer(self, response: dict[str, str]) -> str:
        id_ = text(self.id)
        return json.dumps(
            {"id": id_, "rawId": id_, "type": "public-key", "response": response, "clientExtensionResults": {}}
        )
