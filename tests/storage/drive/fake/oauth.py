"""Google's page of consent, and its token endpoints: for refresh tokens, codes, signed claims; what a token allows."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from urllib.parse import unquote_plus, urlencode, urlsplit

from cryptography.hazmat.primitives import serialization
from google.auth import exceptions, jwt

from tests.storage.drive.fake.answers import Answer
from tests.storage.drive.fake.schema import SCOPE
from tests.storage.drive.fake.world import Grant, World, scopes

ENDPOINT = "https://oauth2.googleapis.com/token"
TOKEN = {("oauth2.googleapis.com", "/token"), ("www.googleapis.com", "/oauth2/v4/token")}
CONSENT = ("accounts.google.com", "/o/oauth2/auth")
TOKENINFO = {
    ("oauth2.googleapis.com", "/tokeninfo"),
    *(("www.googleapis.com", f"/oauth2/{version}/tokeninfo") for version in ("v1", "v2", "v3")),
}


def error(status: int, name: str, description: str) -> Answer:
    return Answer.json({"error": name, "error_description": description}, status)


def consent(world: World, query: dict[str, str]) -> Answer:
    """GET /o/oauth2/auth, as the person `login_hint` answers it: `person` is allow, deny, untick or more."""
    if query.get("response_type") != "code" or query.get("client_id") not in world.clients:
        return error(400, "invalid_request", "Required parameter is missing, or unknown.")
    redirect = query["redirect_uri"]
    if urlsplit(redirect).hostname not in ("127.0.0.1", "localhost"):
        return error(400, "redirect_uri_mismatch", "Only loopback addresses, of any port, for a desktop app.")
    does, wanted = query["person"], query["scope"].split()
    if does == "deny":
        return _back(redirect, {"error": "access_denied", "state": query["state"]})
    scope = {"untick": ["openid"], "more": [*wanted, SCOPE + "drive"]}.get(does, wanted)
    world.grant(world.account(query["login_hint"]), query["client_id"], tuple(scope))
    grant = list(world.refresh.values())[-1]
    code = f"4/0A-{len(world.consents):06d}-code-of-consent"
    challenge = query.get("code_challenge", "") if query.get("code_challenge_method") == "S256" else ""
    world.consents[code] = (grant, challenge, redirect)
    return _back(redirect, {"state": query["state"], "code": code, "scope": " ".join(scope)})


def _back(redirect: str, told: dict[str, str]) -> Answer:
    return Answer(302, headers={"Location": f"{redirect}/?{urlencode(told)}"})


def _proved(form: dict[str, str], challenge: str, redirect: str) -> bool:
    """Whether a code is presented by whoever asked for it."""
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    expected = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return form.get("redirect_uri") == redirect and challenge in ("", expected)


def basic(header: str) -> dict[str, str]:
    """The client, where it names itself in a header, as requests_oauthlib does."""
    if not header.startswith("Basic "):
        return {}
    name, _, secret = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
    return {"client_id": unquote_plus(name), "client_secret": unquote_plus(secret)}


def owner(world: World, form: dict[str, str]) -> Grant | None:
    """The grant that a request to the token endpoint is about."""
    if form.get("grant_type") == "authorization_code":
        found = world.consents.pop(form.get("code", ""), None)
        if found:
            return found[0] if _proved(form, found[1], found[2]) else None
        codes = {f"4/code-{grant.account.name}": grant for grant in world.refresh.values()}
        return codes.get(form.get("code", ""))
    if form.get("grant_type", "").endswith(":jwt-bearer"):
        return _claimed(world, form.get("assertion", ""))
    return world.refresh.get(form.get("refresh_token", ""))


def token(world: World, form: dict[str, str], grant: Grant | None) -> Answer:
    """POST /token."""
    signed = form.get("grant_type", "").endswith(":jwt-bearer")
    if not signed and world.clients.get(form.get("client_id", "")) != form.get("client_secret"):
        return error(401, "invalid_client", "The OAuth client was not found.")
    if grant is None and form.get("grant_type") == "authorization_code":
        return error(400, "invalid_grant", "Malformed auth code.")
    if grant is None or grant.revoked or (not signed and grant.client != form.get("client_id")):
        return error(400, "invalid_grant", "Token has been expired or revoked.")
    life = grant.account.token_life
    told: dict[str, Any] = {"access_token": world.token(grant, life), "expires_in": life, "token_type": "Bearer"}
    if not signed:
        told["scope"] = " ".join(grant.scopes)
    if form.get("grant_type") == "authorization_code":
        told["refresh_token"] = next(name for name, known in world.refresh.items() if known is grant)
    return Answer.json(told)


def tokeninfo(world: World, version: str, access_token: str) -> Answer:
    """GET or POST /tokeninfo, in the words of its versions."""
    grant = world.of_token(access_token)
    if grant is None:
        return error(400, "invalid_token", "Invalid Value")
    until = min(world.tokens[access_token][1], world.now() + grant.account.token_life)
    left, scope = int(until - world.now()), " ".join(grant.scopes)
    if version in ("v1", "v2"):
        told = {"issued_to": grant.client, "audience": grant.client, "scope": scope, "expires_in": left}
        return Answer.json(told | {"access_type": "offline"})
    told = {"azp": grant.client, "aud": grant.client, "scope": scope, "exp": str(int(until)), "expires_in": str(left)}
    return Answer.json(told | {"access_type": "offline"})


def _claimed(world: World, assertion: str) -> Grant | None:
    """The service account that signed a claim, with the scopes it claims."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(assertion.split(".")[1] + "=="))
        account = world.by_email(claims["iss"])
        if account is None or not account.service:
            return None
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public = account.key.public_key().public_bytes(serialization.Encoding.PEM, form)
        jwt.decode(assertion, certs=public, audience=ENDPOINT, clock_skew_in_seconds=300)
    except (ValueError, LookupError, exceptions.GoogleAuthError):
        return None
    return Grant(account, claims["iss"], scopes(claims.get("scope", "").split()))
