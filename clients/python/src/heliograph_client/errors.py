"""What can go wrong. Each code of the service has a class in `codes`, below the class of its kind here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class HeliographError(Exception):
    """Anything that went wrong with a call."""


class NoAnswer(HeliographError):
    """The service could not be reached, or did not answer in time, however often it was tried."""


class ApiError(HeliographError):
    """The service refused."""

    def __init__(self, error: Mapping[str, Any], status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(error.get("message") or f"the service answered {status}")
        self.raw = error
        self.status = status  # 0: of an entry of a batch
        self.retry_after = retry_after  # seconds
        self.code: str = error.get("code", "")
        self.param: str | None = error.get("param")
        self.details: Mapping[str, Any] = error.get("details") or {}
        self.request_id: str = error.get("request_id", "")
        self.doc_url: str = error.get("doc_url", "")

    @property
    def addresses(self) -> list[str]:
        """Those that are suppressed."""
        return list(self.details.get("addresses", ()))


class InvalidRequestError(ApiError):
    """The request is invalid and must be corrected."""


class AuthenticationError(ApiError):
    """The key is missing or does not work."""


class PermissionDenied(ApiError):
    """The key or the team may not do this."""


class NotFoundError(ApiError):
    """There is no such thing."""


class ConflictError(ApiError):
    """It does not fit what is there."""


class IdempotencyError(ApiError):
    """Something about the Idempotency-Key."""


class RateLimitError(ApiError):
    """Too many; `retry_after` says when to come again."""


class ServerError(ApiError):
    """The service's own trouble."""


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
    from heliograph_client import codes  # they are made from the kinds here

    name = "".join(map(str.capitalize, error.get("code", "").split("_")))
    unknown = ServerError if status >= 500 else ApiError
    kind: type[ApiError] = getattr(codes, name, None) or KINDS.get(error.get("type", ""), unknown)
    return kind(error, status, retry_after)
