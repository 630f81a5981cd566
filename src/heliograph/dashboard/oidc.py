"""OpenID Connect client for sign-in with an identity provider: authorization code flow with PKCE.

An ID token is accepted if it comes from the provider's endpoints, is signed with one of the provider's keys by an
asymmetric algorithm, and is issued for this client and this sign-in.

The JWT library is imported lazily: only services with a provider have it installed.
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

DISCOVERY = "/.well-known/openid-configuration"
KEPT_MS = HOUR_MS  # cache lifetime of discovery document and keys
AWAY_MS = 5 * SECOND_MS  # delay before an unavailable provider is called again
LEEWAY_S = 60  # allowed difference between the provider's clock and ours
AGE_S = 600  # maximum age of an ID token
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
SUBJECT_MAX = 255  # characters, limit of the OpenID Connect standard
GROUPS_MAX = 1000
FEWER = "let it send those of this client alone"

T = TypeVar("T")

# (method, URL, headers, body) → (status, body); raises ProviderAway if there is no response.
Ask = Callable[[str, str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]


class ProviderAway(Exception):
    """The provider is unavailable or its response is invalid; retry later."""


class NotBelieved(Exception):
    """The provider's response is not valid for this sign-in. The text is for the log."""


class ProviderOptions(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str
    client_id: str
    client_secret: str = ""  # empty for a public client
    name: str
    scopes: str = "openid email profile"
    groups_claim: str = "groups"
    roles: tuple[GroupRole, ...] = ()
    email_trusted: bool = False  # trust an email address if the `email_verified` claim is missing
    callback: str  # redirect URI of the sign-in


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of the provider's discovery document that are used here."""

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


class Visitor(msgspec.Struct, frozen=True):
    """Identity and groups of a user authenticated by the provider."""

    identity: Identity
    groups: tuple[str, ...]
    entered_at: int = 0  # when the user last authenticated at the provider (`auth_time`); 0 if not reported


class Provider:
    """Client of the configured identity provider; caches its discovery document and keys."""

    def __init__(self, options: ProviderOptions, ask: Ask, now: Callable[[], int]) -> None:
        self.options = options
        self._ask = ask
        self._now = now
        self._discovery: tuple[int, Discovery] | None = None  # (expiry, document)
        self._keys: tuple[int, KeySet] | None = None
        self._away_until = 0

    async def address(self, state: str, nonce: str, verifier: str, *, anew: bool = False) -> str:
        """Return the authorization URL. `anew` makes the provider ask a signed-in user to authenticate again."""
        found = await self._discover()
        asked = {
            "response_type": "code",
            "client_id": self.options.client_id,
            "redirect_uri": self.options.callback,
            "scope": self.options.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64url(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        } | ({"prompt": "login", "max_age": "0"} if anew else {})
        return _with_query(found.authorization_endpoint, asked)

    async def leaving(self, back: str) -> str | None:
        """Return the URL that ends the session at the provider; None if the provider has no logout endpoint."""
        found = await self._discover()
        asked = {"client_id": self.options.client_id, "post_logout_redirect_uri": back}
        return _with_query(found.end_session_endpoint, asked) if found.end_session_endpoint else None

    async def receive(self, query: Mapping[str, str], nonce: str, verifier: str) -> Visitor:
        """Redeem the authorization code and return the authenticated user. The caller must check `state`."""
        found = await self._discover()
        said = query.get("iss")  # RFC 9207: issuer of the response
        if said not in (None, found.issuer) or (said is None and found.authorization_response_iss_parameter_supported):
            raise NotBelieved("the answer is another provider's")
        tokens = await self._redeem(found, query.get("code", ""), verifier)
        claims = await self._verified(found, tokens.id_token, nonce)
        entered = claims.get("auth_time")
        if tokens.access_token and found.userinfo_endpoint and not {"email", self.options.groups_claim} <= set(claims):
            more = await self._more(found, tokens.access_token, claims["sub"])
            if "email" not in claims:
                claims.pop("email_verified", None)  # applies only to the address of the same document
            claims = more | claims
        elsewhere = claims.get("_claim_names")
        if isinstance(elsewhere, dict) and self.options.groups_claim in elsewhere.keys() - claims.keys():
            raise NotBelieved(f"it leaves out the groups, being too many: {FEWER}")
        entered_at = entered * SECOND_MS if type(entered) is int else 0
        return msgspec.structs.replace(self._visitor(claims), entered_at=entered_at)

    # -- requests to the provider ---------------------------------------------------------------------------

    async def _discover(self) -> Discovery:
        now = self._now()
        if self._discovery and self._discovery[0] > now:
            return self._discovery[1]
        if self._away_until > now:
            raise ProviderAway("it did not answer a moment ago")
        try:
            found = await self._get(self.options.issuer.rstrip("/") + DISCOVERY, Discovery)
            if found.issuer != self.options.issuer:
                raise ProviderAway(f"it calls itself {found.issuer[:200]!r}, not as oidc_issuer has it")
            secure = self.options.issuer.startswith("https://")
            for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                _check_url(url, secure)
            for url in (found.userinfo_endpoint, found.end_session_endpoint):
                _check_url(url or found.token_endpoint, secure)
        except ProviderAway:
            self._away_until = now + AWAY_MS
            raise
        self._discovery = (now + KEPT_MS, found)
        return found

    async def _redeem(self, found: Discovery, code: str, verifier: str) -> Tokens:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.options.callback,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        id_, secret = self.options.client_id, self.options.client_secret
        if secret and "client_secret_basic" in found.token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(id_)}:{quote_plus(secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        else:
            form |= {"client_id": id_} | ({"client_secret": secret} if secret else {})
        status, body = await self._ask("POST", found.token_endpoint, headers, urlencode(form).encode())
        if 400 <= status < 500 and status != 429:
            raise NotBelieved(f"the provider refuses the code with {status}: {_error_of(body)}")
        return _read(status, body, Tokens)

    async def _more(self, found: Discovery, token: str, subject: str) -> dict[str, Any]:
        """Return the claims of the userinfo endpoint, for claims that the ID token lacks."""
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        status, body = await self._ask("GET", found.userinfo_endpoint, headers, b"")
        claims = _read(status, body, dict[str, Any])
        if claims.get("sub") != subject:
            raise NotBelieved("userinfo is about somebody else")
        return claims

    async def _get(self, url: str, kind: type[T]) -> T:
        status, body = await self._ask("GET", url, {"Accept": "application/json"}, b"")
        return _read(status, body, kind)

    # -- verification ---------------------------------------------------------------------------------------

    async def _verified(self, found: Discovery, token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token after checking issuer, audience, nonce, expiry and age."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            claims = await self._opened(found, token)
            rules = jwt.JWTClaimsRegistry(
                now=self._now() // SECOND_MS,
                leeway=LEEWAY_S,
                iss={"essential": True, "value": found.issuer},
                aud={"essential": True, "value": self.options.client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            rules.validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            raise NotBelieved(f"the ID token is refused: {type(error).__name__}: {str(error)[:200]}") from None
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else self.options.client_id) != self.options.client_id:
            raise NotBelieved("the ID token was made for another client")
        if claims["iat"] < self._now() // SECOND_MS - AGE_S:
            raise NotBelieved("the ID token is old")
        subject = claims["sub"]
        if not (isinstance(subject, str) and 0 < len(subject) <= SUBJECT_MAX and subject.isprintable()):
            raise NotBelieved("the subject is no name")
        return claims

    async def _opened(self, found: Discovery, token: str) -> dict[str, Any]:
        """Verify the token with the cached keys; if that fails, with newly fetched keys (key rotation)."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        now = self._now()
        if self._keys and self._keys[0] > now:
            try:
                return jwt.decode(token, self._keys[1], algorithms=ALGORITHMS).claims
            except (JoseError, ValueError):
                pass
        keys = _key_set(await self._get(found.jwks_uri, dict[str, Any]))
        self._keys = (now + KEPT_MS, keys)
        return jwt.decode(token, keys, algorithms=ALGORITHMS).claims

    def _visitor(self, claims: Mapping[str, Any]) -> Visitor:
        email, name, groups = (claims.get(key) for key in ("email", "name", self.options.groups_claim))
        verified = claims.get("email_verified", self.options.email_trusted)
        is_verified = verified is True or verified == "true"  # some providers send a string
        address = parse_address(email) if isinstance(email, str) and is_verified else None
        called = " ".join(name.split())[:200] if isinstance(name, str) and name.isprintable() else ""
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        if len(listed) > GROUPS_MAX:
            raise NotBelieved(f"it names {len(listed)} groups, {GROUPS_MAX} are the most: {FEWER}")
        return Visitor(
            Identity(
                issuer=self.options.issuer,
                subject=claims["sub"],
                email=address.normal if address else "",
                name=called or (address.normal if address else ""),
            ),
            tuple(group for group in listed if isinstance(group, str)),
        )


def base64url(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def _key_set(found: Mapping[str, Any]) -> "KeySet":
    """Return the set of public signing keys; other and unsupported keys are ignored."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, JWKRegistry, KeySet, OKPKey, RSAKey

    keys: list[Key] = []
    for one in found.get("keys") or ():
        try:
            key = JWKRegistry.import_key(one)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, RSAKey | ECKey | OKPKey) and one.get("use", "sig") == "sig":
            keys.append(key)
    return KeySet(keys)


def _check_url(url: str, secure: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and (secure or parts.scheme != "http"):
        raise ProviderAway("its discovery document has an address without TLS")
    if not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        raise ProviderAway("its discovery document has an address that is none")


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query)}"


def _read(status: int, body: bytes, kind: type[T]) -> T:
    if status != 200:
        raise ProviderAway(f"it answered {status}")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # including a response truncated for its length
        raise ProviderAway("its answer cannot be read") from None


def _error_of(body: bytes) -> str:
    try:
        said = msgspec.json.decode(body, type=dict[str, Any]).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = None
    return said[:100] if isinstance(said, str) and said.isprintable() else "no reason"
