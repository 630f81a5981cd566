"""Exceptions of the client. Each error code has a class in `codes`, a subclass of its error type's class here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class HeliographError(Exception):
    """Base class of all errors of the client."""


class NoAnswer(HeliographError):
    """The service could not be reached or did not respond in time, and all retries failed too."""


class ApiError(HeliographError):
    """The service responded with an error."""

    def __init__(self, error: Mapping[str, Any], status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(error.get("message") or f"the service answered {status}")
        self.raw = error
        self.status = status  # HTTP status; 0 for the error of one message in a batch
        self.retry_after = retry_after  # seconds to wait, from the response
        self.code: str = error.get("code", "")
        self.param: str | None = error.get("param")
        self.details: Mapping[str, Any] = error.get("details") or {}
        self.request_id: str = error.get("request_id", "")
        self.doc_url: str = error.get("doc_url", "")

    @property
    def addresses(self) -> list[str]:
        """Return the suppressed addresses."""
        return list(self.details.get("addresses", ()))


class InvalidRequestError(ApiError):
    """The request is invalid and must be corrected."""


class AuthenticationError(ApiError):
    """The key is missing or invalid."""


class PermissionDenied(ApiError):
    """The key or the team is not allowed to do this."""


class NotFoundError(ApiError):
    """The object does not exist."""


class ConflictError(ApiError):
    """The request conflicts with the object's current state."""


class IdempotencyError(ApiError):
    """The Idempotency-Key is invalid, was used for another request, or its request is still running."""


class RateLimitError(ApiError):
    """Too many requests; retry after `retry_after` seconds."""


class ServerError(ApiError):
    """The service failed or is unavailable."""


KINDS: dict[str, type[ApiError]] = {
    "invalid_request_error": InvalidRequestError,
    "authentication_error": AuthenticationError,
    "permission_error": PermissionDenied,
    "not_found_error": NotFoundError,
    "conflict_error": ConflictError,
    "idempotency_error": IdempotencyError,
    "rate_limit_error": RateLimitError,
    "api_error": ServerError,
}


def to_error(error: Mapping[str, Any], status: int = 0, retry_after: float | None = None) -> ApiError:
    from heliograph_client import codes  # imported here because it imports this module

    name = "".join(map(str.capitalize, error.get("code", "").split("_")))
    unknown = ServerError if status >= 500 else ApiError
    kind: type[ApiError] = getattr(codes, name, None) or KINDS.get(error.get("type", ""), unknown)
    return kind(error, status, retry_after)
