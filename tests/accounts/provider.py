"""Fake identity provider on loopback that can return invalid data. It checks PKCE, the client secret and single use
of each code."""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.clocks import TestClock
from tests.fast_crypto import RSA_KEYS

CLIENT, SECRET = "heliograph", "a secret: 100% ours"
KEY, OTHER_KEY = (
    RSAKey.import_key(pem, {"kid": kid, "use": "sig"}) for kid, pem in zip(("first", "second"), RSA_KEYS, strict=False)
)
HUGE = b'{"padding": "' + b"x" * 1_000_000 + b'"}'

Claims = dict[str, Any]


class FakeProvider:
    def __init__(self, clock: TestClock) -> None:
        self.clock = clock
        self.issuer = ""
        self.key = KEY
        self.published = [KEY.as_dict(private=False)]
        self.discovery: Claims = {}  # overrides for the discovery document
        self.sign: Callable[[Claims], str] = self.sign_other  # function that signs a token
        self.userinfo: Claims = {}
        self.hangs = self.is_huge = False
        self.forgives = False  # whether a code can be redeemed twice
        self._used: set[str] = set()
        self.asked: list[str] = []
        self._codes: dict[str, tuple[Claims, str, str]] = {}  # claims, challenge, redirect_uri

    def sign_other(self, claims: Claims) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def authorize(self, url: str, **claims: Any) -> str:
        """Sign in at the provider with these claims and return the callback path of the client."""
        params = dict(parse_qsl(urlsplit(url).query))
        assert url.startswith(f"{self.issuer}/authorize?"), url
        assert (params["response_type"], params["client_id"]) == ("code", CLIENT)
        assert (params["code_challenge_method"], len(params["code_challenge"])) == ("S256", 43)
        assert "openid" in params["scope"].split()
        now = self.clock.now() // 1000
        usual = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": params["nonce"]}
        code = secrets.token_urlsafe()
        self._codes[code] = ({**usual, **claims}, params["code_challenge"], params["redirect_uri"])
        return f"{urlsplit(params['redirect_uri']).path}?code={code}&state={params['state']}"

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path)
        if self.hangs:
            await asyncio.sleep(60)
        if self.is_huge:
            return web.Response(body=HUGE)
        match request.path:
            case "/.well-known/openid-configuration":
                names = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "end_session_endpoint")
                claim_sources = {name: f"{self.issuer}/{name.partition('_')[0]}" for name in names}
                usual = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"}
                return web.json_response({**usual, **claim_sources, **self.discovery})
            case "/jwks":
                return web.json_response({"keys": self.published})
            case "/token":
                return await self._token(request)
            case "/userinfo" if request.headers.get("Authorization") == "Bearer access":
                return web.json_response(self.userinfo)
        return web.Response(status=404)

    async def _token(self, request: web.BaseRequest) -> web.Response:
        form = await request.post()
        kind, _, pair = request.headers["Authorization"].partition(" ")
        id_, _, secret = base64.b64decode(pair).decode().partition(":")
        code = str(form["code"])
        claims, challenge, redirect_uri = self._codes.get(code, ({}, "", ""))
        if code in self._used and not self.forgives:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self._used.add(code)
        verifier = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        is_good = (
            (kind, unquote_plus(id_), unquote_plus(secret)) == ("Basic", CLIENT, SECRET)
            and form["grant_type"] == "authorization_code"
            and form["redirect_uri"] == redirect_uri
            and base64.urlsafe_b64encode(verifier).rstrip(b"=").decode() == challenge
        )
        if not is_good:
            return web.json_response({"error": "invalid_grant"}, status=400)
        tokens = {"access_token": "access", "token_type": "Bearer", "id_token": self.sign(claims)}
        return web.json_response(tokens)


@asynccontextmanager
async def running_idp(clock: TestClock) -> AsyncIterator[FakeProvider]:
    idp = FakeProvider(clock)
    server = web.ServerRunner(web.Server(idp.answer), shutdown_timeout=0.1)
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    idp.issuer = f"http://127.0.0.1:{server.addresses[0][1]}"
    idp.discovery = {"authorization_endpoint": f"{idp.issuer}/authorize"}
    try:
        yield idp
    finally:
        await server.cleanup()
