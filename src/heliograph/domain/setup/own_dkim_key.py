"""Parses a DKIM key that a team imports."""

from heliograph.domain.mail.dkim import Algorithm, public_record, read_private_key
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.dkim_names import selector_error

PRIVATE_KEY_MAX = 20_000  # characters


def read_own_key(private_key: str | None, selector: str | None) -> tuple[bytes, Algorithm, str]:
    """Return the private key, its algorithm and its TXT value; raise InvalidRequest if key or selector is invalid."""
    if not private_key:
        raise InvalidRequest("selector needs private_key.", param="private_key")
    if not selector:
        raise InvalidRequest("private_key needs the selector under which its record is published.", param="selector")
    if error := selector_error(selector):
        raise InvalidRequest(error, param="selector")
    try:
        private, algorithm = read_private_key(private_key[:PRIVATE_KEY_MAX])
    except ValueError as error:
        raise InvalidRequest(str(error), param="private_key") from None
    return private, algorithm, public_record(private)
