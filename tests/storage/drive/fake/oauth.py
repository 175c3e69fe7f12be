"""Google's token endpoints: access tokens for refresh tokens, codes and signed claims, and what a token allows."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives import serialization
from google.auth import exceptions, jwt

from tests.storage.drive.fake.answers import Answer
from tests.storage.drive.fake.world import Grant, World, scopes

ENDPOINT = "https://oauth2.googleapis.com/token"
TOKEN = {("oauth2.googleapis.com", "/token"), ("www.googleapis.com", "/oauth2/v4/token")}
TOKENINFO = {
    ("oauth2.googleapis.com", "/tokeninfo"),
    *(("www.googleapis.com", f"/oauth2/{version}/tokeninfo") for version in ("v1", "v2", "v3")),
}


def error(status: int, name: str, description: str) -> Answer:
    return Answer.json({"error": name, "error_description": description}, status)


def owner(world: World, form: dict[str, str]) -> Grant | None:
    """The grant that a request to the token endpoint is about."""
    if form.get("grant_type") == "authorization_code":
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
