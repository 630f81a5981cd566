"""Signs golden payloads as each mail provider does."""

import base64
import datetime
import gzip
import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from heliograph.carriers.email.providers.ses import DIGEST_BY_SIGNATURE_VERSION, SIGNED_FIELDS_BY_TYPE
from tests.fast_crypto import RSA_KEYS

GOLDEN = Path(__file__).parent / "golden" / "providers"
OWN = "eml_01J8ZQ4V6N7M8K9P0R1S2T3V4W"  # the message in the golden payloads
TO = "ada@example.com"
TOPIC = "arn:aws:sns:eu-central-1:123456789012:heliograph"

EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = cast(rsa.RSAPrivateKey, load_pem_private_key(RSA_KEYS[0], None, unsafe_skip_rsa_key_validation=True))
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
CERT = (
    x509.CertificateBuilder()
    .subject_name(_NAME)
    .issuer_name(_NAME)
    .public_key(RSA_KEY.public_key())
    .serial_number(1)
    .not_valid_before(datetime.datetime(2026, 1, 1))
    .not_valid_after(datetime.datetime(2036, 1, 1))
    .sign(RSA_KEY, hashes.SHA256())
    .public_bytes(Encoding.PEM)
    .decode()
)
SVIX = base64.b64encode(b"a secret of at least 24 bytes").decode()
PUBLIC = base64.b64encode(EC_KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()

OPTIONS: dict[str, dict[str, str]] = {
    "ses": {"callback_topic": TOPIC, "callback_cert": CERT},
    "postmark": {"callback_secret": "hook:s3cret"},
    "mailgun": {"callback_secret": "key-0123456789"},
    "sendgrid": {"callback_key": PUBLIC},
    "resend": {"callback_secret": f"whsec_{SVIX}"},
    "brevo": {"callback_secret": "token-0123456789"},
}

Signed = tuple[dict[str, str], bytes]  # headers in lower case, body


def payload(provider: str, name: str, id_: str = OWN, to: str = TO) -> bytes:
    text = (GOLDEN / provider / f"{name}.json").read_text()
    return text.replace(OWN, id_).replace(TO, to).encode()


def signed(provider: str, body: bytes, now: int, once: str = "") -> Signed:
    """Return the signed callback.

    `once`: the callback id, for providers that assign one; empty to keep that of the payload.
    """
    return _SIGN[provider](body, now // 1000, once)


def _postmark(body: bytes, _: int, __: str) -> Signed:
    return {"authorization": "Basic " + base64.b64encode(b"hook:s3cret").decode()}, body


def _brevo(body: bytes, _: int, __: str) -> Signed:
    return {"authorization": "Bearer token-0123456789"}, body


def _mailgun(body: bytes, seconds: int, once: str) -> Signed:
    event = msgspec.json.decode(body)
    token = once or event["signature"]["token"]
    signature = hmac.new(b"key-0123456789", f"{seconds}{token}".encode(), hashlib.sha256).hexdigest()
    event["signature"] = {"timestamp": str(seconds), "token": token, "signature": signature}
    return {}, msgspec.json.encode(event)


def _resend(body: bytes, seconds: int, once: str) -> Signed:
    id_ = once or "msg_2Lh9KRb0pzN4LePd3XiA4v9Axj1"
    digest = hmac.digest(base64.b64decode(SVIX), f"{id_}.{seconds}.".encode() + body, "sha256")
    signature = f"v1,bm90IHRoaXM= v1,{base64.b64encode(digest).decode()}"
    return {"svix-id": id_, "svix-timestamp": str(seconds), "svix-signature": signature}, body


def _sendgrid(body: bytes, seconds: int, _: str) -> Signed:
    signature = EC_KEY.sign(str(seconds).encode() + body, ec.ECDSA(hashes.SHA256()))
    head = "x-twilio-email-event-webhook-"
    return {f"{head}signature": base64.b64encode(signature).decode(), f"{head}timestamp": str(seconds)}, body


def gzipped(body: bytes, now: int) -> Signed:
    return _sendgrid(gzip.compress(body), now // 1000, "")


def _ses(body: bytes, _: int, once: str) -> Signed:
    envelope: dict[str, Any] = msgspec.json.decode(body)
    envelope |= {"MessageId": once} if once else {}
    text = "".join(
        f"{name}\n{envelope[name]}\n" for name in SIGNED_FIELDS_BY_TYPE[envelope["Type"]] if name in envelope
    )
    signature = RSA_KEY.sign(
        text.encode(), padding.PKCS1v15(), DIGEST_BY_SIGNATURE_VERSION[envelope["SignatureVersion"]]
    )
    return {}, msgspec.json.encode(envelope | {"Signature": base64.b64encode(signature).decode()})


_SIGN: dict[str, Callable[[bytes, int, str], Signed]] = {
    "ses": _ses,
    "postmark": _postmark,
    "mailgun": _mailgun,
    "sendgrid": _sendgrid,
    "resend": _resend,
    "brevo": _brevo,
}
