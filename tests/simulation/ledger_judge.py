"""The judge of ledger entries: what each kind may change, seen in the raw JSON of the state before and after."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.simulation.actor import Actor, Look
from tests.simulation.truth import NAN, Key, Values, advanced, after, first, hash_of, stored

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle, Run

Json = dict[str, Any]
QUIET_S = 2 * 3600.0 + 300.0
"""A step, a restore, a compilation and an evaluation in a row may take this long, and are signs of life."""
HELD = ("commit", "retire", "rewind", "release")
"""Kinds that only the holder may append (I5)."""


def key_of(checkpoint: Json) -> Key:
    return checkpoint["step"], checkpoint["epoch"]


class LedgerJudge:
    """Judges each new slot of each run."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.require = oracle, oracle.require
        self.signs: dict[tuple[str, int], list[float]] = {}

    def signs_between(self, run: Run, epoch: int, begin: float, end: float) -> list[float]:
        """When the holder of an epoch gave signs of life: its lease and its heartbeats."""
        beats = self.signs.get((run.name, epoch), [])
        return sorted(t for t in [run.leased_at[epoch], *beats] if begin <= t <= end)

    def beat(self, run: Run, epoch: int, by: Actor) -> None:
        """P5: a heartbeat is a sign of life, and only sent while work is being done; asleep, nothing can be."""
        self.signs.setdefault((run.name, epoch), []).append(self.oracle.now)
        moved = by.trained_at[-1][0] if by.trained_at else by.began
        quiet = self.oracle.now - max(moved, by.woke_at, run.leased_at[epoch])
        self.require(quiet <= QUIET_S, f"P5: a heartbeat of {by.name}, {quiet:.0f} s after its last step")

    def entry(self, run: Run, seq: int, data: bytes, by: Actor) -> None:
        """One slot was filled."""
        from tests.simulation.oracle import Slot, sha

        body = json.loads(data)["body"]
        kind, now = body["kind"], body["state"]
        self.oracle.sky.summary.entries += 1
        self.oracle.sky.summary.kinds[kind] += 1
        self.require(seq == len(run.digests), f"I1: slot {seq} was filled after {len(run.digests)} entries")
        self.oracle.passing.entry(run, body, by, "slot")
        before = run.state
        twice = body["nonce"] in run.nonces and run.nonces[body["nonce"]] in run.chain_at(body["base"])
        self.require(not twice, f"P2: the intent of slot {seq} landed twice")
        run.nonces[body["nonce"]] = seq
        self._epoch(run, body, by)
        if kind == "genesis":
            self._genesis(run, body)
        else:
            self._step(run, body)
            self._checkpoints(run, body)
            self._usage(run, body)
            self.oracle.rest.entry(run, body, by)
        if kind in HELD or (kind == "incident" and not by.outsider):
            self._by_the_holder(run, body, by)
        check = {"lease": self._lease, "commit": self._commit, "rewind": self._rewind, "retire": self._retire}.get(kind)
        if check:
            check(run, body, by)
        if body["change"].get("failure") or (now.get("halted") and not before.get("halted")):
            self._halt(before, body)
        run.entries[sha(data)] = seq
        run.digests.append(sha(data))
        run.slots.append(Slot(body["base"], kind, body["nonce"], now, by))
        run.state = now
        if run.steps:
            run.steps[-1] = (run.steps[-1][0], self.oracle.now)
        run.steps.append((now["step"], float("inf")))

    def _epoch(self, run: Run, body: Json, by: Actor) -> None:
        """I4, and one epoch is one process's."""
        before, now = run.state.get("epoch", 0), body["state"]["epoch"]
        if body["kind"] in ("lease", "archive") and run.state.get("holder"):
            run.taken[before] = run.slot_name(body["seq"])
        if body["kind"] == "lease":
            skips = len(run.chain_at(body["base"])) < body["seq"]
            most = body["seq"] if skips else before + 1  # each slot that was passed over may have begun one or more
            self.require(before < now <= most, f"I4: a lease takes epoch {now} after {before}")
            self.require(now not in run.holders, f"I4: epoch {now} was taken before")
            run.holders[now], run.leased_at[now], by.run = by, self.oracle.now, run.name
            run.strange = run.strange or by.impure != 0
            if beat := body["state"]["holder"].get("beat"):  # where its heartbeats will be, if it lives to write one
                self.oracle.sky.shelf.names[beat] = f"runs/{run.project}/{run.name}/heartbeat.{now}"
        else:
            self.require(now == before, f"I4: {body['kind']} changes the epoch from {before} to {now}")
        self.require(body["epoch"] == now, f"I4: an entry of epoch {body['epoch']} in epoch {now}")

    def _by_the_holder(self, run: Run, body: Json, by: Actor) -> None:
        """I5."""
        holder, kind = run.state.get("holder"), body["kind"]
        self.require(holder is not None, f"I5: {kind} although nobody holds the lease")
        self.require(holder["session"] == body["session"], f"I5: {kind} by a session without the lease")
        self.require(run.holders[holder["epoch"]] is by, f"I5: {kind} by {by.name}, which is not the epoch's process")

    def _genesis(self, run: Run, body: Json) -> None:
        origin, head = body["state"].get("origin"), body["state"].get("head")
        if origin is None:
            self.require(body["state"]["step"] == 0, "I6: a new run begins beyond step 0")
            return
        parent = self.oracle.runs[origin["project"], origin["run"]]
        self.require(origin["entry"] in parent.entries, "P7: a fork names an entry that its parent does not have")
        self.require(key_of(head)[1] == 0, "P7: a fork's checkpoint is of another epoch than 0")
        values = self._files(run, head)
        alike = [k for k, v in parent.values.items() if k[0] == head["step"] and v == values]
        self.require(bool(alike), f"P7: a fork of step {head['step']} holds another state than its parent")
        run.strange = parent.strange

    def _step(self, run: Run, body: Json) -> None:
        """I6, as far as it can be checked for every kind."""
        before, now, kind = run.state["step"], body["state"]["step"], body["kind"]
        if kind == "commit":
            self.require(now > before, f"I6: a commit goes from step {before} to {now}")
        elif kind == "rewind":
            self.require(now < before, f"I6: a rewind goes from step {before} to {now}")
            self.require(now > 0, "I6: a run that has committed restarts at step 0")
        else:
            self.require(now == before, f"I6: {kind} moves the step from {before} to {now}")

    def _usage(self, run: Run, body: Json) -> None:
        """P12: only sessions give; a commit's steps are its account's, on the GPU that its link names."""
        kind, before, now = body["kind"], run.state, body["state"]
        if kind not in ("lease", "commit", "release", "archive"):
            same = [before.get(name) == now.get(name) for name in ("usage", "gpus")]
            self.require(all(same), f"P12: {kind} changes what accounts have given")
        if kind == "commit":
            was, use = (state["usage"][body["account"]] for state in (before, now))
            gained = now["step"] - before["step"]
            self.require(use["steps"] - was["steps"] == gained, f"P12: {gained} steps are not counted as such")
            told = now["links"][-1].get("gpu") in now.get("gpus", [])
            on = sum(row[2] for row in use.get("by_gpu", [])) - sum(row[2] for row in was.get("by_gpu", []))
            self.require(on == (gained if told else 0), f"P12: {gained} steps are counted as {on} on a GPU")

    def _checkpoints(self, run: Run, body: Json) -> None:
        """Only a commit adds to the retained checkpoints, only `retire` takes away; the head is one of them."""
        kind, state = body["kind"], body["state"]
        before, now = set(run.retained), [key_of(c) for c in state["retained"]]
        self.require(len(now) == len(set(now)), "a checkpoint is retained twice")
        self.require(kind == "commit" or not set(now) - before, f"{kind} adds a checkpoint")
        self.require(kind in ("retire", "delete") or not before - set(now), f"{kind} removes a checkpoint")
        if state["head"] is not None:
            self.require(key_of(state["head"]) in now, f"{kind}: the head is not retained")
            self.require(state["head"]["step"] == state["step"], f"{kind}: the head is of another step")
            self.require(not state["head"]["damaged"], f"I9: {kind}: the head is marked as damaged")

    def _lease(self, run: Run, body: Json, by: Actor) -> None:
        """P5: no holder is taken over without one of the four proofs."""
        holder = run.state.get("holder")
        self.require(not run.state.get("halted"), "P10: a lease on a halted run")
        self.require(body["state"]["holder"]["session"] == body["session"], "I5: a lease for another session")
        self.taken_over(holder, run, by)

    def taken_over(self, holder: Json | None, run: Run, by: Actor) -> None:
        """By the session that takes the lease, or the one that archives the run."""
        if holder is None:
            return
        self.oracle.sky.summary.faults["takeover"] += 1
        gone = run.holders[holder["epoch"]]
        if not gone.alive and gone.machine == by.machine:  # its lock is free
            self.oracle.sky.summary.faults["takeover-same-host"] += 1
            return
        looks = [look for look in by.looks if look.epoch == holder["epoch"]]
        self.require(bool(looks), f"P5: {by.name} took over without looking")
        self._dead(holder, looks, by)

    def _dead(self, holder: Json, looks: list[Look], by: Actor) -> None:
        last, ttl, now = looks[-1], holder["ttl_s"], looks[-1].now
        if holder["latest_end"] is not None and now > holder["latest_end"]:
            return
        sign = last.sign if last.sign is not None and holder["since"] > now else max(holder["since"], last.sign or 0.0)
        earlier = [look for look in looks[:-1] if (look.sign or 0.0) == (last.sign or 0.0)]
        watched = last.at - min((look.at for look in earlier), default=last.at)
        if now < sign:  # the store's clock was corrected: the sign's age is unknown
            self.require(watched >= ttl - 1.0, f"P5: {by.name} took over after watching for {watched:.0f} s")
            return
        self.require(now - sign > ttl, f"P5: {by.name} took over {now - sign:.0f} s after a sign of life")
        self.require(watched >= ttl / 3 - 1.0, f"P5: {by.name} took over after watching for {watched:.0f} s")

    def _files(self, run: Run, checkpoint: Json) -> Values:
        """I3: manifest and files are stored as promised, under the run's own prefix. Returns the state in them."""
        from tests.simulation.oracle import sha

        step, epoch = key_of(checkpoint)
        raw, where = self.oracle.sky.raw, checkpoint["manifest"]
        there = re.fullmatch(rf"{run.prefix}step_{step}\.e{epoch}(\.[0-9a-f]{{16}})?/manifest\.json", where)
        self.require(there is not None, f"I3: {where} is elsewhere")
        folder = where.removesuffix("manifest.json")
        manifest = raw(where)
        self.require(manifest is not None, f"I3: {where} is named before it is stored")
        self.require(self.oracle.sky.leads_to(checkpoint["ref"], where), f"I3: {where} has another Ref")
        self.require(sha(manifest) == checkpoint["sha256"], f"I3: {where} has another hash")
        named = {where: sha(manifest)}
        for file in json.loads(manifest or b"")["files"]:
            self._named(run, (step, epoch), file["key"])
            if file["key"] in run.damaged and not file["key"].startswith(folder):
                named[file["key"]] = file["sha256"]  # borrowed, and spoiled since it was looked at
                continue
            found = raw(file["key"])
            self.require(found is not None, f"I3: {file['key']} is named before it is stored")
            self.require(self.oracle.sky.leads_to(file["ref"], file["key"]), f"I3: {file['key']} has another Ref")
            promised = (file["sha256"], file["size"])
            self.require((sha(found), len(found or b"")) == promised, f"I3: {file['key']} is not as promised")
            named[file["key"]] = file["sha256"]
        state = stored(raw(folder + "state.json"))
        self.require(state is not None and state[0] == step, f"I7: {folder} does not hold the state of step {step}")
        values = state[1] if state else NAN
        self.require(checkpoint["state_hash"] == hash_of(step, values), f"I7: {folder} holds another state")
        self.require(values != NAN, f"I9: the state of step {step} is not finite")
        run.named[step, epoch], run.values[step, epoch] = named, values
        run.committed_at[step, epoch] = self.oracle.now
        return values

    def _named(self, run: Run, own: Key, name: str) -> None:
        """P6: its own files, or those of a checkpoint that its parent entry retains."""
        self.require(name.startswith(run.prefix), f"I3: {name} is not under {run.prefix}")
        step, _, epoch = name.removeprefix(run.prefix).partition("/")[0].removeprefix("step_").partition(".e")
        key = (int(step), int(epoch.partition(".")[0]))
        self.require(key == own or key in run.retained, f"P6: {name} belongs to no retained checkpoint")
        self.oracle.sky.summary.faults["borrowed-file"] += key != own

    def _commit(self, run: Run, body: Json, by: Actor) -> None:
        """I3, I7, I9, P9."""
        before, head = run.state, body["state"]["head"]
        self.require(head["epoch"] == body["epoch"], f"P6: a commit of epoch {body['epoch']} names {key_of(head)}")
        by.committed = head["step"]
        self.oracle.passing.names(run, body)
        link = before["links"][-1]
        opening = link["commits"] == 0
        known = {(k[0], v) for k, v in run.values.items()}
        values = self._files(run, head)
        base = run.values[key_of(before["head"])] if before["head"] else first(1)
        errs = {0, 1} if opening and run.strange else {by.impure}
        reached = [advanced(base, before["step"], head["step"], err) for err in errs]
        again = opening and (head["step"], values) in known
        self.require(values in reached or again, f"I7: step {head['step']} does not follow from step {before['step']}")
        following = head.get("next")
        if following is not None:
            nexts = [hash_of(head["step"] + 1, v) for v in (NAN, *(after(values, head["step"], e) for e in errs))]
            self.require(following["step"] == head["step"] + 1, "P9: the digest is of another step")
            self.require(following["digest"] in nexts, "P9: the digest of the next step is of another state")
        certified = body["state"]["links"][-1]["certified"]
        self.oracle.sky.summary.faults[f"certified-{certified}"] += opening
        if opening and certified == "exact":
            self._exact(before, base, by)

    def _exact(self, before: Json, base: Values, by: Actor) -> None:
        """I7: every entry called exact is exact."""
        promised = (before["head"] or {}).get("next")
        self.require(promised is not None, "I7: a link is called exact without a promise")
        mine = hash_of(before["step"] + 1, after(base, before["step"], by.impure))
        self.require(promised["digest"] == mine, f"I7: {by.name} is called exact, and computes something else")
        self.require(promised["path"] == by.path, f"I7: {by.name} is called exact on another path")

    def _rewind(self, run: Run, body: Json, by: Actor) -> None:
        """P7: evidence that is true, and the newest sound checkpoint."""
        old, change = key_of(run.state["head"]), body["change"]
        self.require(bool(change["evidence"]), "I6: a rewind without evidence")
        marked = {key_of(c) for c in body["state"]["retained"] if c["damaged"]}
        self.require(old in marked, f"I6: the old head {old} is not marked as damaged")
        self.require(run.state["links"][-1]["commits"] == 0, "P7: a rewind after a commit of the same epoch")
        for key in map(tuple, change["damaged"]):
            if self.oracle.intact(run, key):
                self.require(self.oracle.passing.deceived(run, key, by), f"P7: {key} is called damaged and is intact")
                self.oracle.sky.summary.faults["rewound-by-bad-reads"] += 1
        sound = [k for k in run.retained if k not in marked]
        self.require(key_of(body["state"]["head"]) == sound[-1], f"P7: {sound[-1]} was the newest sound checkpoint")

    def _retire(self, run: Run, body: Json, by: Actor) -> None:
        """P8: never the head, the newest two, or the best."""
        retained = run.state["retained"]
        good = [key_of(c) for c in retained if not c["damaged"]]
        measured = [c for c in retained if c["metric"] is not None and not c["damaged"]]
        best = [key_of(c) for c in measured if c["metric"] == max(m["metric"] for m in measured)][:1]
        for key in set(run.retained) - {key_of(c) for c in body["state"]["retained"]}:
            self.require(key not in good[-2:], f"P8: {key} was retired, one of the newest two")
            self.require(key not in best, f"P8: {key} was retired, the best")
            run.retired_at[key] = body["at"]

    def _halt(self, before: Json, body: Json) -> None:
        """P10: only the second equal failure since the last commit halts a run."""
        failure = body["change"].get("failure") or {}
        alike = [
            f
            for f in before["failures"]
            if f["cause"] == failure.get("cause")
            and f["config_hash"] == failure.get("config_hash")
            and f["fingerprint"] == failure.get("fingerprint")
            and (f["cause"] == "non-finite" or f["step"] == failure.get("step"))
        ]
        halted = bool(body["state"]["halted"])
        self.require(bool(alike) or not halted, "P10: a run was halted at a first failure")
        self.require(halted or not alike, "P10: a run was not halted at the second equal failure")
        self.oracle.sky.summary.faults["halted"] += halted
