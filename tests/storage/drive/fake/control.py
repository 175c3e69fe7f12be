"""What tests do to the fake Drive from outside its protocol: users, sharing, faults, damage, and looking in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.storage.drive.fake import oauth
from tests.storage.drive.fake.faults import Fault
from tests.storage.drive.fake.tree import FOLDER, Content, File
from tests.storage.drive.fake.world import CLIENT, SECRET, SharedDrive, World, scopes


def control(world: World, verb: str, told: dict[str, Any]) -> Any:
    """Do one thing; its result as JSON. Raises KeyError for a verb that is none."""
    with world.lock:
        return VERBS[verb](world, told)


def _account(world: World, told: dict[str, Any]) -> None:
    """Make or change a user; `lists_stand` is true for lists that stay as they are now."""
    account = world.account(told["name"], told.get("service", False))
    if "lists_stand" in told:
        told["lists_stand"] = len(world.tree.history) if told["lists_stand"] else None
    for name, value in told.items():
        if name not in ("name", "service"):
            setattr(account, name, value)


def _grant(world: World, told: dict[str, Any]) -> dict[str, Any]:
    """Let a user allow a client something; what its owner holds then."""
    account = world.account(told["account"])
    client = account.email if account.service else told.get("client", CLIENT)
    refresh, access = world.grant(account, client, scopes(told["scopes"]))
    holds = {"access_token": access, "refresh_token": refresh, "client_id": client, "client_secret": SECRET}
    holds |= {"email": account.email, "root": account.root}
    return holds | ({"private_key": account.pem()} if account.service else {})


def _expire(world: World, told: dict[str, Any]) -> None:
    """All access tokens of a user expire; with `revoke`, the refresh tokens die too."""
    for token, (grant, _) in world.tokens.items():
        if grant.account.name == told["account"]:
            world.tokens[token] = (grant, 0.0)
            grant.revoked = grant.revoked or bool(told.get("revoke"))


def _share(world: World, told: dict[str, Any]) -> None:
    """Give users, by their names, roles on a file; no role takes it away."""
    file = world.tree.files[told["file"]]
    roles = {world.account(name).email: role for name, role in told["roles"].items()}
    given = {email: role for email, role in {**file.permissions, **roles}.items() if role}
    world.tree.put(replace(file, permissions=given, version=file.version + 1))


def _drive(world: World, told: dict[str, Any]) -> str:
    """Make a shared drive with members; its id."""
    id_, now = world.tree.new_id("0A", 19), world.now()
    world.drives[id_] = SharedDrive(id_, told["name"], now)
    members = {world.account(name).email: role for name, role in told["roles"].items()}
    world.tree.put(File(id_, told["name"], FOLDER, None, id_, (), "", "", now, now, 1, permissions=members))
    return id_


def _fault(world: World, told: dict[str, Any]) -> None:
    """Plan a fault of a user."""
    world.account(told.pop("account")).faults.planned.append(Fault(**told))


def _heal(world: World, told: dict[str, Any]) -> None:
    """Forget all planned faults of a user."""
    world.account(told["account"]).faults.planned = deque()


def _set(world: World, told: dict[str, Any]) -> None:
    """What the service does where its documentation is silent, and its clock: see World."""
    for name in ("ids", "sees", "race", "ahead"):
        setattr(world, name, told.get(name, getattr(world, name)))


def _expire_sessions(world: World, told: dict[str, Any]) -> None:
    """A week passes for a user's upload sessions."""
    for session in world.uploads.sessions.values():
        if session.call.access.grant.account.name == told["account"]:
            session.used = 0.0


def _touch(world: World, told: dict[str, Any]) -> None:
    """Something of the service's own changes a file's state and nothing that anybody sees; moves the etag."""
    file = world.tree.files[told["file"]]
    world.tree.put(replace(file, version=file.version + 1))


def _damage(world: World, told: dict[str, Any]) -> None:
    """The stored bytes change: one bit at `at`, or all after `keep` is gone. Checksums are told of what is stored."""
    file = world.tree.files[told["file"]]
    data = bytearray(file.content.data if file.content else b"")
    if "keep" in told:
        del data[told["keep"] :]
    else:
        data[told["at"]] ^= 1
    content = Content(bytes(data))
    if told.get("hidden") and file.content:
        content.sums = file.content.sums
    world.tree.put(replace(file, content=content, version=file.version + 1))


def _remove(world: World, told: dict[str, Any]) -> None:
    """A person deletes a file for ever, or puts it into the trash, by hand."""
    file = world.tree.files[told["file"]]
    if told.get("trash"):
        world.tree.put(replace(file, trashed=True, version=file.version + 1))
    else:
        world.tree.delete(file)


def _look(world: World, told: dict[str, Any]) -> dict[str, Any]:
    """All there is to see of a user: the files owned or made, requests by route, faults met, sessions."""
    account, tree = world.account(told["account"]), world.tree
    made = [file for file in tree.files.values() if account.email in (file.owner, file.maker) and file.parents]
    uploads = [s for s in world.uploads.sessions.values() if s.call.access.grant.account is account]
    return {
        "files": {file.id: {"name": file.name, "mimeType": file.mime, "size": file.size, "owner": file.owner,
                            "parents": list(file.parents), "trashed": tree.is_trashed(file), "drive": file.drive,
                            "properties": dict(file.properties)} for file in made},
        "reserved": sum(reserved.user == account.email for reserved in tree.reserved.values()),
        "used": world.used(account),
        "counts": dict(account.counts),
        "met": account.faults.met,
        "received": account.received,
        "sessions": [{"id": s.id, "held": len(s.data), "total": s.total, "done": s.answer is not None,
                      "status": s.answer.status if s.answer else None} for s in uploads],
    }  # fmt: skip


def _code(world: World, told: dict[str, Any]) -> str:
    """The code that a browser would bring back after a user allowed what was asked."""
    form = {"grant_type": "authorization_code", "code": f"4/code-{told['account']}"}
    if oauth.owner(world, form) is None:
        raise LookupError(told["account"])
    return form["code"]


VERBS: dict[str, Callable[[World, dict[str, Any]], Any]] = {
    "account": _account, "grant": _grant, "expire": _expire, "share": _share, "drive": _drive, "fault": _fault,
    "heal": _heal, "set": _set, "expire_sessions": _expire_sessions, "touch": _touch, "damage": _damage,
    "remove": _remove, "look": _look, "code": _code,
}  # fmt: skip
