"""Checkpoints, their upload, forks and the way back broken in one place each (P6, P7)."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from relay.core.checkpoint import packing, restore
from relay.core.checkpoint.commit import Writer
from relay.core.checkpoint.committer import CommitRecord
from relay.core.checkpoint.local import LocalCheckpoint, LocalFolder
from relay.core.checkpoint.packing import put_manifest
from relay.core.checkpoint.restore import Damaged
from relay.core.errors import BadData
from relay.core.ledger import keeping
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.names import Names
from relay.core.runs import fork
from relay.core.session import starting
from storage import transfer
from storage.base import Ref, Store, Unavailable
from storage.memory import MemoryStore
from storage.transfer import Uploaded
from tests.simulation.mutations.base import Patches, mutation, patch, rule
from tests.simulation.mutations.scenes import (
    all_damaged,
    damaged_head,
    dies,
    forked,
    killed_before_append,
    left_behind,
    silence_after,
    silent_at_restore,
)


@mutation("entry-before-files", "I3: the entry is appended before its files are uploaded", "I3: ")
def _entry_before_files() -> Patches:
    def commit(writer: Writer, item: Any, packed: LocalCheckpoint) -> None:
        real, writer.store = writer.store, MemoryStore()
        try:
            files = writer._upload(item, packed)
            item.checkpoint = put_manifest(
                writer.store, writer.names, CommitRecord(packed, None, None), files, writer.facts.code_version
            )
        finally:
            waiting, writer.store = writer.store, real
        writer._append(item, item.checkpoint)
        for stat in waiting.list(""):
            real.put(stat.name, waiting.get(stat.ref))

    return [patch(Writer, "_commit", commit)]


@mutation(
    "upload-unverified",
    "P6: an upload without an answer counts as done",
    "I3: ",
    scene=silence_after("put", "ema.json"),
    pinned=2,
)
def _upload_unverified() -> Patches:
    def upload(store: Store, path: Path, name: str, key: str, *_: Any) -> Uploaded:
        data = path.read_bytes()
        with suppress(Unavailable):
            store.put(key, data)
        return Uploaded(name, key, Ref(key), len(data), sha256(data).hexdigest())

    return [patch(transfer, "_upload", upload)]


@mutation(
    "manifest-told-anew",
    "P6: a manifest that is sent again says what is known by then",
    scene=silence_after("put", "manifest"),
    pinned=3,
    covered_by="a manifest is created: what says otherwise goes to a folder of its own; put: `manifest-put-anew`",
)
def _manifest_told_anew() -> Patches:
    def commit(writer: Writer, item: Any, packed: LocalCheckpoint) -> None:
        item.record = None
        real(writer, item, packed)

    real = Writer._commit
    return [patch(Writer, "_commit", commit), patch(Writer, "_await_ready", lambda *_: None)]


@mutation(
    "manifest-put-anew",
    "P6: the same, and it takes the place of the first",
    "P6: ",
    "I3: ",
    scene=silence_after("put", "manifest"),
    pinned=3,
)
def _manifest_put_anew() -> Patches:
    put = patch(packing, "create", lambda store, key, data: store.put(key, data))
    return [*_manifest_told_anew(), put, patch(Writer, "_is_taken", lambda *_: False)]


@mutation("key-without-epoch", "P6: a step's key is the same in every epoch", "P6: ", "I3: ", pinned=2)
def _key_without_epoch() -> Patches:
    return [patch(Names, "checkpoint", lambda names, step, epoch, token="": f"{names.checkpoints}step_{step}.e1/")]


@mutation("content-addressed", "P6: files are named by their content and shared between checkpoints", "P6: ")
def _content_addressed() -> Patches:
    def upload(writer: Writer, item: Any, packed: LocalCheckpoint) -> list[Uploaded]:
        keys = {f.name: f"{writer.names.checkpoints}step_{int(f.sha256[:8], 16)}.e0/{f.name}" for f in packed.files}
        return transfer.upload(writer.store, writer.local_folder.folder(packed.key), keys, workers=1)

    return [patch(Writer, "_upload", upload)]


@mutation(
    "names-unretained",
    "P6: bytes that an earlier epoch has left are named, not sent again",
    "P6: ",
    scene=killed_before_append,
)
def _names_unretained() -> Patches:
    def upload(writer: Writer, item: Any, packed: LocalCheckpoint) -> list[Uploaded]:
        listed = list(writer.store.list(writer.names.checkpoints))
        return [_already(writer, file, listed) or _sent(writer, item, packed, file) for file in packed.files]

    real = Writer._upload

    def _already(writer: Writer, file: Any, listed: list[Any]) -> Uploaded | None:
        for stat in listed:
            if stat.name.endswith("/" + file.name) and transfer.digest(writer.store, stat.ref)[1] == file.sha256:
                return Uploaded(file.name, stat.name, stat.ref, file.size, file.sha256)
        return None

    def _sent(writer: Writer, item: Any, packed: LocalCheckpoint, file: Any) -> Uploaded:
        return real(writer, item, packed.model_copy(update={"files": (file,)}))[0]

    return [patch(Writer, "_upload", upload)]


@mutation("fork-shares", "P7: a fork names its parent's files", "I3: ", scene=forked)
def _fork_shares() -> Patches:
    def upload(target: Store, folder: Path, keys: dict[str, str], **_: Any) -> list[Uploaded]:
        files = []
        for name in keys:
            data = (folder / name).read_bytes()
            for stat in target.list("checkpoints/"):
                if stat.name.endswith("/" + name) and target.get(stat.ref) == data:
                    files.append(Uploaded(name, stat.name, stat.ref, len(data), sha256(data).hexdigest()))
                    break
        return files

    from relay.core.checkpoint.manifest import Manifest

    manifest = patch(packing, "Manifest", lambda **values: Manifest.model_construct(**values))
    return [patch(fork, "upload", upload), manifest]


@mutation(
    "push-to-any-head",
    "P6: an unsent checkpoint is committed whatever became the head meanwhile",
    "I7: ",
    "I6: ",
    scene=left_behind,
)
def _push_to_any_head() -> Patches:
    def pushable(local_folder: LocalFolder, state: RunState) -> LocalCheckpoint | None:
        found = [
            p for p in local_folder.all() if p.run_id == state.run_id and p.step > state.step and local_folder.intact(p)
        ]
        return found[-1] if found else None

    return [patch(LocalFolder, "pushable", pushable)]


@mutation(
    "silence-is-damage",
    "P7: a store that does not answer is evidence against a checkpoint",
    "P7: ",
    scene=silent_at_restore,
)
def _silence_is_damage() -> Patches:
    def fetch(checkpoint: Checkpoint, *more: Any) -> Any:
        try:
            return real(checkpoint, *more)
        except Unavailable as error:
            raise Damaged("it cannot be read") from error

    real = restore.fetch
    return [patch(restore, "fetch", fetch)]


@mutation("rewind-without-evidence", "I6: the head of a session that died is distrusted unread", "P7: ", scene=dies)
def _rewind_without_evidence() -> Patches:
    def fetch(checkpoint: Checkpoint, state: RunState, *more: Any) -> Any:
        died = [link.epoch for link in state.links if link.end == "no sign of life"]
        if checkpoint == state.head and checkpoint.epoch in died and len(state.undamaged) > 1:
            raise Damaged("its session died")
        return real(checkpoint, state, *more)

    real = restore.fetch
    return [patch(restore, "fetch", fetch)]


@mutation("rewind-too-far", "P7: a rewind goes to the oldest retained checkpoint", "P7: ", "I6: ", scene=damaged_head)
def _rewind_too_far() -> Patches:
    def unchecked(state: RunState, change: Any, by: Any) -> RunState:
        target = state.undamaged[0]
        bad = {*change.damaged} - {target.key}
        retained = tuple(c.model_copy(update={"damaged": c.key in bad or c.damaged}) for c in state.retained)
        return state.model_copy(update={"step": target.step, "head": target, "retained": retained, "best": None})

    return [rule("rewind", unchecked)]


@mutation(
    "restart-at-0",
    "I6: where nothing can be loaded, training begins again at step 0, until the rules refuse its commit",
    "p2 ends with 65: commit: .* not beyond",
    scene=all_damaged,
)
def _restart_at_0() -> Patches:
    def begin_again(parts: Any) -> Any:
        try:
            return real(parts)
        except BadData:
            parts.ctx.workload.start()
            return None

    real = starting.restore_or_start
    return [patch(starting, "restore_or_start", begin_again)]


@mutation("restart-at-0-committed", "I6: the same, and the rules let it", "I6: ", scene=all_damaged)
def _restart_at_0_committed() -> Patches:
    return [*_restart_at_0(), patch(keeping, "_check_new", lambda *_: None)]
