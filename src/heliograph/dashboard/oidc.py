"""OpenID Connect client for sign-in with an identity provider: authorization code flow with PKCE.

An ID token is accepted if it comes from the provider's endpoint, has an asymmetric signature by one of the provider's
keys, and was issued for this client and this sign-in. The JWT library is imported only when needed, because only
services with a provider have it.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from heliograph.domain.accounts.idp_groups import GroupRole
from heliograph.domain.limits import HOUR_MS, SECOND_MS
from heliograph.domain.mail.address import parse_address
from heliograph.storage.people import Identity

if TYPE_CHECKING:
    from joserfc.jwk import Key, KeySet

DISCOVERY_PATH = "/.well-known/openid-configuration"
CACHE_MS = HOUR_MS  # how long the discovery document and the keys are cached
RETRY_DELAY_MS = 5 * SECOND_MS  # delay before an unavailable provider is called again
LEEWAY_S = 60  # allowed difference between the provider's clock and ours
TOKEN_AGE_MAX_S = 600  # maximum age of an ID token
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
SUBJECT_MAX = 255  # maximum characters (OpenID Connect)
GROUPS_MAX = 1000
FEWER_GROUPS_ADVICE = "configure the provider to send only the groups of this client"

T = TypeVar("T")

# (method, URL, headers, body) → (status, body); raises ProviderUnavailable without a response
SendRequest = Callable[[str, str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]


class ProviderUnavailable(Exception):
    """The provider is unavailable or sent an invalid response. A retry may succeed."""


class InvalidProviderResponse(Exception):
    """The provider's response is not valid for this sign-in. The text is for the log only."""


class ProviderOptions(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str
    client_id: str
    client_secret: str = ""  # empty for a public client
    name: str
    scopes: str = "openid email profile"
    groups_claim: str = "groups"
    roles: tuple[GroupRole, ...] = ()
    email_trusted: bool = False  # whether an address without the claim `email_verified` is trusted
    callback: str  # redirect URI


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the provider's discovery document that are used here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class Tokens(msgspec.Struct, frozen=True):
    id_token: str
    access_token: str = ""


class ProviderUser(msgspec.Struct, frozen=True):
    """Identity and groups of a user authenticated by the provider."""

    identity: Identity
    groups: tuple[str, ...]
    authenticated_at: int = 0  # `auth_time` claim: when the user last authenticated at the provider; 0 if missing


class Provider:
    """Client of the configured identity provider; caches its discovery document and keys."""

    def __init__(self, options: ProviderOptions, send_request: SendRequest, now: Callable[[], int]) -> None:
        self.options = options
        self._send_request = send_request
        self._now = now
        self._discovery: tuple[int, Discovery] | None = None  # (expiry, document)
        self._keys: tuple[int, KeySet] | None = None
        self._unavailable_until = 0

    async def authorization_url(self, state: str, nonce: str, verifier: str, *, reauthenticate: bool = False) -> str:
        """Return the authorization URL. `reauthenticate`: ask the user to authenticate again, even if signed in."""
        discovery = await self._discover()
        params = {
            "response_type": "code",
            "client_id": self.options.client_id,
            "redirect_uri": self.options.callback,
            "scope": self.options.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": encode_base64url(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        } | ({"prompt": "login", "max_age": "0"} if reauthenticate else {})
        return _add_query(discovery.authorization_endpoint, params)

    async def logout_url(self, return_url: str) -> str | None:
        """Return the URL that ends the session at the provider; None if the provider has no logout endpoint."""
        discovery = await self._discover()
        params = {"client_id": self.options.client_id, "post_logout_redirect_uri": return_url}
        return _add_query(discovery.end_session_endpoint, params) if discovery.end_session_endpoint else None

    async def authenticate(self, query: Mapping[str, str], nonce: str, verifier: str) -> ProviderUser:
        """Redeem the authorization code and return the authenticated user. The caller must have checked `state`."""
        discovery = await self._discover()
        issuer = query.get("iss")  # issuer of the response (RFC 9207)
        if issuer not in (None, discovery.issuer) or (
            issuer is None and discovery.authorization_response_iss_parameter_supported
        ):
            raise InvalidProviderResponse("the response comes from another issuer")
        tokens = await self._redeem_code(discovery, query.get("code", ""), verifier)
        claims = await self._verify_id_token(discovery, tokens.id_token, nonce)
        auth_time = claims.get("auth_time")
        if (
            tokens.access_token
            and discovery.userinfo_endpoint
            and not {"email", self.options.groups_claim} <= set(claims)
        ):
            userinfo = await self._fetch_userinfo(discovery, tokens.access_token, claims["sub"])
            if "email" not in claims:
                claims.pop("email_verified", None)  # the claim applies only to an address in the ID token
            claims = userinfo | claims
        claim_sources = claims.get("_claim_names")
        if isinstance(claim_sources, dict) and self.options.groups_claim in claim_sources.keys() - claims.keys():
            raise InvalidProviderResponse(f"the groups are missing because there are too many: {FEWER_GROUPS_ADVICE}")
        authenticated_at = auth_time * SECOND_MS if type(auth_time) is int else 0
        return msgspec.structs.replace(self._to_provider_user(claims), authenticated_at=authenticated_at)

    # -- requests to the provider ---------------------------------------------------------------------------

    async def _discover(self) -> Discovery:
        now = self._now()
        if self._discovery and self._discovery[0] > now:
            return self._discovery[1]
        if self._unavailable_until > now:
            raise ProviderUnavailable("the provider did not respond a moment ago")
        try:
            discovery = await self._fetch(self.options.issuer.rstrip("/") + DISCOVERY_PATH, Discovery)
            if discovery.issuer != self.options.issuer:
                raise ProviderUnavailable(f"the provider's issuer is {discovery.issuer[:200]!r}, unlike oidc_issuer")
            requires_tls = self.options.issuer.startswith("https://")
            for url in (discovery.authorization_endpoint, discovery.token_endpoint, discovery.jwks_uri):
                _check_url(url, requires_tls)
            for url in (discovery.userinfo_endpoint, discovery.end_session_endpoint):
                _check_url(url or discovery.token_endpoint, requires_tls)
        except ProviderUnavailable:
            self._unavailable_until = now + RETRY_DELAY_MS
            raise
        self._discovery = (now + CACHE_MS, discovery)
        return discovery

    async def _redeem_code(self, discovery: Discovery, code: str, verifier: str) -> Tokens:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.options.callback,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        client_id, client_secret = self.options.client_id, self.options.client_secret
        if client_secret and "client_secret_basic" in discovery.token_endpoint_auth_methods_supported:
            credentials = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
        else:
            form |= {"client_id": client_id} | ({"client_secret": client_secret} if client_secret else {})
        status, body = await self._send_request("POST", discovery.token_endpoint, headers, urlencode(form).encode())
        if 400 <= status < 500 and status != 429:
            raise InvalidProviderResponse(f"the provider rejected the code with {status}: {_error_code(body)}")
        return _decode_response(status, body, Tokens)

    async def _fetch_userinfo(self, discovery: Discovery, access_token: str, subject: str) -> dict[str, Any]:
        """Return the claims of the userinfo endpoint, which may include claims that the ID token lacks."""
        headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
        status, body = await self._send_request("GET", discovery.userinfo_endpoint, headers, b"")
        claims = _decode_response(status, body, dict[str, Any])
        if claims.get("sub") != subject:
            raise InvalidProviderResponse("userinfo has another subject than the ID token")
        return claims

    async def _fetch(self, url: str, response_type: type[T]) -> T:
        status, body = await self._send_request("GET", url, {"Accept": "application/json"}, b"")
        return _decode_response(status, body, response_type)

    # -- verification ---------------------------------------------------------------------------------------

    async def _verify_id_token(self, discovery: Discovery, token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token after checking issuer, audience, nonce, expiry and age."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            claims = await self._decode_token(discovery, token)
            registry = jwt.JWTClaimsRegistry(
                now=self._now() // SECOND_MS,
                leeway=LEEWAY_S,
                iss={"essential": True, "value": discovery.issuer},
                aud={"essential": True, "value": self.options.client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            registry.validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            raise InvalidProviderResponse(f"invalid ID token: {type(error).__name__}: {str(error)[:200]}") from None
        has_several_audiences = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if has_several_audiences else self.options.client_id) != self.options.client_id:
            raise InvalidProviderResponse("the ID token was issued for another client")
        if claims["iat"] < self._now() // SECOND_MS - TOKEN_AGE_MAX_S:
            raise InvalidProviderResponse("the ID token is too old")
        subject = claims["sub"]
        if not (isinstance(subject, str) and 0 < len(subject) <= SUBJECT_MAX and subject.isprintable()):
            raise InvalidProviderResponse("invalid subject")
        return claims

    async def _decode_token(self, discovery: Discovery, token: str) -> dict[str, Any]:
        """Verify the token with the cached keys; if that fails, with newly fetched keys, because keys are rotated."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        now = self._now()
        if self._keys and self._keys[0] > now:
            try:
                return jwt.decode(token, self._keys[1], algorithms=ALGORITHMS).claims
            except (JoseError, ValueError):
                pass
        keys = _parse_key_set(await self._fetch(discovery.jwks_uri, dict[str, Any]))
        self._keys = (now + CACHE_MS, keys)
        return jwt.decode(token, keys, algorithms=ALGORITHMS).claims

    def _to_provider_user(self, claims: Mapping[str, Any]) -> ProviderUser:
        email, name, groups = (claims.get(key) for key in ("email", "name", self.options.groups_claim))
        verified = claims.get("email_verified", self.options.email_trusted)
        is_verified = verified is True or verified == "true"  # some providers send a string
        address = parse_address(email) if isinstance(email, str) and is_verified else None
        display_name = " ".join(name.split())[:200] if isinstance(name, str) and name.isprintable() else ""
        group_list = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        if len(group_list) > GROUPS_MAX:
            raise InvalidProviderResponse(
                f"{len(group_list)} groups, at most {GROUPS_MAX} are supported: {FEWER_GROUPS_ADVICE}"
            )
        return ProviderUser(
            Identity(
                issuer=self.options.issuer,
                subject=claims["sub"],
                email=address.normal if address else "",
                name=display_name or (address.normal if address else ""),
            ),
            tuple(group for group in group_list if isinstance(group, str)),
        )


def encode_base64url(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def _parse_key_set(jwks: Mapping[str, Any]) -> "KeySet":
    """Return the public signing keys of a JWK set. Keys for other purposes and unsupported keys are ignored."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, JWKRegistry, KeySet, OKPKey, RSAKey

    keys: list[Key] = []
    for raw_key in jwks.get("keys") or ():
        try:
            key = JWKRegistry.import_key(raw_key)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, RSAKey | ECKey | OKPKey) and raw_key.get("use", "sig") == "sig":
            keys.append(key)
    return KeySet(keys)


def _check_url(url: str, requires_tls: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and (requires_tls or parts.scheme != "http"):
        raise ProviderUnavailable("the discovery document has a URL without TLS")
    if not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        raise ProviderUnavailable("the discovery document has an invalid URL")


def _add_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query)}"


def _decode_response(status: int, body: bytes, response_type: type[T]) -> T:
    if status != 200:
        raise ProviderUnavailable(f"the provider responded with status {status}")
    try:
        return msgspec.json.decode(body, type=response_type)
    # Also raised if the response was truncated at the maximum length.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProviderUnavailable("the provider's response cannot be decoded") from None


def _error_code(body: bytes) -> str:
    try:
        code = msgspec.json.decode(body, type=dict[str, Any]).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        code = None
    return code[:100] if isinstance(code, str) and code.isprintable() else "no reason"
