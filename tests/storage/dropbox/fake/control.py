"""What tests do to the fake Dropbox from outside its protocol: accounts, shared folders, faults, and looking in."""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.storage.dropbox.fake.faults import Fault
from tests.storage.dropbox.fake.tree import File
from tests.storage.dropbox.fake.world import World


def control(world: World, verb: str, told: dict[str, Any]) -> Any:
    """Do one thing; its result as JSON. Raises KeyError for a verb that is none."""
    verbs = {"account": _account, "share": _share, "fault": _fault, "heal": _heal, "set": _set, "look": _look}
    with world.lock:
        return verbs[verb](world, told)


def _account(world: World, told: dict[str, Any]) -> dict[str, str]:
    """Make or change an account; what its owner would hold."""
    account = world.account(told["name"])
    for name, value in told.items():
        if name != "name":
            setattr(account, name, tuple(value) if name == "scopes" else value)
    return {
        "access_token": f"sl.static-{account.name}-0123456789",
        "refresh_token": account.refresh_token,
        "app_key": account.app_key,
    }


def _share(world: World, told: dict[str, Any]) -> None:
    """Share a namespace with accounts, each of which mounts it under a path of its own, or under none."""
    world.namespace(told["id"])
    for name, path in told["accounts"].items():
        account = world.account(name)
        account.shared.add(told["id"])
        if path:
            account.mounts[path.lower()] = told["id"]


def _fault(world: World, told: dict[str, Any]) -> None:
    """Plan a fault of an account."""
    name = told.pop("account")
    world.account(name).faults.planned.append(Fault(**told))


def _heal(world: World, told: dict[str, Any]) -> None:
    """Forget all planned faults of an account."""
    world.account(told["account"]).faults.planned = deque()


def _set(world: World, told: dict[str, Any]) -> None:
    """How far the clock is ahead, and what becomes of pieces sent twice."""
    world.ahead = told.get("ahead", world.ahead)
    world.uploads.twice = told.get("twice", world.uploads.twice)
    for session in world.uploads.sessions.values() if told.get("expire_sessions") else ():
        session.born = 0.0


def _look(world: World, told: dict[str, Any]) -> dict[str, Any]:
    """All there is to see of an account, or of a namespace by its id."""
    account = world.account(told["account"])
    namespace = world.namespace(told["namespace"]) if "namespace" in told else account.home
    nodes = namespace.nodes
    sessions = [s for s in world.uploads.sessions.values() if s.owner == account.name]
    return {
        "files": {path: len(node.data) for path, node in nodes.items() if isinstance(node, File)},
        "folders": [path for path, node in nodes.items() if not isinstance(node, File)],
        "counts": dict(account.counts),
        "met": account.faults.met,
        "received": account.received,
        "sessions": [
            {"id": s.id, "concurrent": s.concurrent, "closed": s.closed, "committed": s.committed,
             "pieces": {offset: len(piece) for offset, piece in s.pieces.items()}}
            for s in sessions
        ],
    }  # fmt: skip
