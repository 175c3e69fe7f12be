"""Digests of who has trained where, kept in the registry when the names are gone; holds no names itself."""

from __future__ import annotations

import hashlib
import hmac

from relay.core.ledger.fields import Claim
from relay.people.owners import folded


def claim_of(store: str, provider: str, owner: str) -> Claim:
    """16 hexadecimal digits: HMAC-SHA256 of provider and folded owner under the store's random identity.

    Different stores have different digests of one person. Who can read the store and guesses a name can test the
    guess: it is a pseudonym, not anonymity.
    """
    text = f"{provider}\n{folded(owner)}".encode()
    return hmac.new(store.encode(), text, hashlib.sha256).hexdigest()[:16]
