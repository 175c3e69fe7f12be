"""What people read of an error: its own sentence, and the command or setting that fixes it; decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relay.app.messages.admitting import another_machine, not_in_team, unconfirmed
from relay.app.messages.advice import command
from relay.app.messages.resting import both
from relay.app.messages.trouble import LOOK, advised, said
from relay.app.messages.whereabouts import unknown_run
from relay.app.messages.wording import duration
from relay.core.checkpoint.commit import SharedFilesGone
from relay.core.checkpoint.compilecache import NoCacheKey
from relay.core.checkpoint.local import FolderRefused
from relay.core.checkpoint.restore import DamagedCheckpoint, FaultyMachine, NoCheckpoint, NoneLoads, Retired, Unfit
from relay.core.errors import NoRoomHere, OfStore
from relay.core.lease.blockers import HeldBy, TrainsAnother
from relay.core.lease.signals import Overdue
from relay.core.ledger.atrest import RunArchived, RunDeleted, RunHalted
from relay.core.ledger.chain import Overtaken
from relay.core.ledger.entry import NewerFormat
from relay.core.ledger.frozen import WAIT_S
from relay.core.ledger.ledger import (
    EntryLost,
    HistoryDamaged,
    LeaseOver,
    LedgerOfAnotherRun,
    StrayCheckpoints,
    UnknownRun,
)
from relay.core.ledger.overlooked import Overlooked
from relay.core.ledger.passing import BadConnection, NoTimeToProve, SlotsDiffer, SlotTooNew, SlotUnreadable
from relay.core.ledger.reader import NoValidEntry, SlotEmpty
from relay.core.ledger.registry import StoreNotBegun
from relay.core.ledger.verified import MarkDiffers, RolledBack
from relay.core.names import FRAGMENT, BadName, NotLetters, nearest
from relay.core.runs.archive import BroughtBack, NotArchived, TooEarly
from relay.core.runs.fork import ForkTaken
from relay.core.runs.opening import (
    AnotherStore,
    BadIdentity,
    ConfigDiffers,
    IdentityDamaged,
    NameTaken,
    PassingDisk,
    RunOfAnotherStore,
    SimilarName,
)
from relay.core.runs.repair import ImpossibleEpoch, NoSuchChoice, NothingLoads
from relay.core.runs.salvage import SettingsDamaged
from relay.core.settings.origins import BadSetting, Fault
from relay.people.accounts import AccountDamaged, AccountForgotten, IdTaken, NoAccount, NotItsPerson
from relay.people.admission import AccountRetired, AnotherMachine, NotInTeam, Unconfirmed
from relay.people.policy import OneTooMany, Unsupported
from relay.people.zones import local
from storage.packages import UPGRADE

SETTINGS = {
    Fault.UNKNOWN_VARIABLE: "Unset it or correct its name.",
    Fault.INVALID: "Correct it and run the same command again.",
    Fault.NOT_YES_OR_NO: "Correct it or unset it.",
    Fault.NOT_A_PAIR: "Write settings as key=value, e.g. batch_size=64.",
    Fault.REFERENCE: "Write the value itself.",
    Fault.NO_FILE: "Correct --config or RELAY_CONFIG.",
    Fault.NOT_YAML: "Correct that line.",
    Fault.TWICE: "Keep one of the two lines.",
    Fault.NO_HOME: "Write the whole path.",
}
"""What helps against each fault of a setting."""
AGAIN = "Nothing was written. Run the same command again."


def paragraph(error: BaseException) -> str:
    """The error's sentence, and what helps."""
    for kind in type(error).__mro__:
        if kind in ADVICE:
            return ADVICE[kind](error)
    return str(error)


def _and(advice: str) -> Callable[[BaseException], str]:
    """The error's sentence, and the same advice whatever it holds."""
    return lambda error: f"{error} {advice}"


def _bad_setting(error: BadSetting) -> str:
    near = f" Did you mean {error.near}?" if error.near else ""
    if error.fault is Fault.GROUP:
        return f"{error} Set one of {', '.join(error.options[:6])} instead."
    return f"{error}{near}{f' {SETTINGS[error.fault]}' if error.fault in SETTINGS else ''}"


def _bad_name(error: BadName) -> str:
    given_by = f" It was given by {error.given_by}." if error.given_by else ""
    return f"{error} Try {error.proposal}.{given_by}"


def _no_checkpoint(error: NoCheckpoint) -> str:
    return f"{error} Train first: {command('run', error.run)}"


def _unfit(error: Unfit) -> str:
    return (
        f"{error} Nothing was changed. Most likely a newer version wrote it: upgrade trm-relay and run again. "
        f"Otherwise begin a new run from an older one: "
        f"{command('fork', error.run, '--to', f'{error.run[:60]}_2', '--from-step', 'STEP')}"
    )


def _none_loads(error: NoneLoads) -> str:
    lines = "\n".join(f"  {line}" for _, line in error.found)
    return (
        f"No retained checkpoint of run {error.project}/{error.run} can be loaded, and a run that has committed never "
        f"restarts at step 0. Nothing was changed.\n{lines}\nRestore what is missing or changed from a backup of the "
        f"storage. {LOOK}"
    )


def _damaged_checkpoint(error: DamagedCheckpoint) -> str:
    if error.others is None:
        return f"{error} {LOOK}"
    return f"{error} Other retained steps: {_steps(error.others) or 'none'}. {LOOK}"


def _retired(error: Retired) -> str:
    return f"{error} Choose one of those retained now: {_steps(error.retained)}."


def _rolled_back(error: RolledBack) -> str:
    return (
        f"{error} Nothing was written. Restore the newer files if somebody has them, or look at both with "
        f"`{command('repair', error.run)}`."
    )


def _mark_differs(error: MarkDiffers) -> str:
    return f"{error} `{command('repair', error.run)}` shows both"


def _no_valid_entry(error: NoValidEntry) -> str:
    return (
        f"{error} Nothing was changed. Restore {error.first} from a backup of the storage, or begin under another name."
    )


def _stray_checkpoints(error: StrayCheckpoints) -> str:
    return (
        f"{error} Nothing was written. Likely causes: the others keep the ledger elsewhere (RELAY_LEDGER_STORE), or it "
        f"was lost here. Use their ledger store, restore {error.log} from a backup, or choose another run name."
    )


def _entry_lost(error: EntryLost) -> str:
    return (
        f"{error} Nothing was written or deleted. If a backup has newer entries of {error.log}, put them back. If not, "
        f"`{command('repair', error.run)}` shows what there is and goes on from it."
    )


def _lease_over(error: LeaseOver) -> str:
    kept = "" if isinstance(error.stopped, RunDeleted) else "; what it had committed is safe"
    begin = f"{error} It writes nothing more{kept}."
    if error.stopped:
        return f"{begin} {both(error.stopped)}"
    return (
        f"{begin} The run is in epoch {error.newest}, held by {error.holder or 'nobody'}. Run the same command again "
        f"to go on from the newest checkpoint."
    )


def _held_by(error: HeldBy) -> str:
    return (
        f"Run {error.project}/{error.run} is being trained by {error.account} since {local(error.since)} (last sign "
        f"of life {error.silent_s:.0f} s ago, step {error.step:,}). It can be taken over in {error.left_s:.0f} s at "
        f"the earliest if it falls silent. Wait for it with --wait MINUTES, or run again later."
    )


def _trains_another(error: TrainsAnother) -> str:
    return (
        f"Account {error.account} already trains run {error.run} (since {local(error.since)}), and one account "
        f"trains one run at a time. Wait for that session, stop it with `{command('stop', error.run)}`, or use "
        f"an account of another person."
    )


def _overdue(error: Overdue) -> str:
    return (
        f"Ended by {error.by}: what was under way did not stop within {duration(error.seconds)}, as where storage "
        f"does not answer. What was committed is safe; the lease runs out by itself, and the next session goes on."
    )


def _not_archived(error: NotArchived) -> str:
    return (
        f"{error} First archive it, so that the others see it; {duration(WAIT_S)} later it may be deleted. "
        f"Nothing was deleted."
    )


def _too_early(error: TooEarly) -> str:
    return (
        f"Run {error.run} was archived {duration(error.archived_s)} ago; it may be deleted from "
        f"{local(error.deletable_at)} on. Nothing was deleted."
    )


def _no_such_choice(error: NoSuchChoice) -> str:
    return f"{error} Choose one of: {', '.join(error.names)}."


def _name_taken(error: NameTaken) -> str:
    option = {"fork": "--to", "import": "--run"}[error.by]
    return f"{error} Choose another name with {option}."


def _similar_name(error: SimilarName) -> str:
    return f"{error} Correct the name (RUN_NAME={error.other}), or pass --new if a new run is meant."


def _config_differs(error: ConfigDiffers) -> str:
    return (
        f"{error} Leave these settings as the run has them, or begin a new run from its newest checkpoint: "
        f"{command('fork', error.run, '--to', f'{error.run[:60]}_2', *error.overrides)}"
    )


def _account_damaged(error: AccountDamaged) -> str:
    return (
        f"{error} Nothing that it trained is affected, and other accounts train on. Put it back with "
        f"`{command(f'register {error.account} LABEL')}`, or restore it from a backup of the storage."
    )


def _no_account(error: NoAccount) -> str:
    near = nearest(error.account, error.known)
    hint = f"Did you mean {near}?" if near else f"Registered are: {', '.join(sorted(error.known)[:10]) or 'none'}."
    return f"{error} {hint} Register it with `{command(f'register {error.account} LABEL')}`."


def _id_taken(error: IdTaken) -> str:
    return (
        f"{error} Register the new one under another id, or change this one: "
        f"{command(f'accounts edit {error.account}')} --label LABEL --owner NAME --provider PROVIDER."
    )


def _retired_account(error: AccountRetired) -> str:
    return f"{error} If its person trains again: `{command(f'accounts mark {error.account} ready')}`."


def _one_too_many(error: OneTooMany) -> str:
    again = [
        f" A forgotten account comes back under its own id: `{command(f'register {one}')} LABEL`."
        for one in error.forgotten[:1]
    ]
    return (
        f"{error} Retired, renamed and forgotten accounts count too.{''.join(again)} Instead: invite another person "
        f"with an account of their own (--owner NAME or RELAY_OWNER if this one is theirs; two people of one name are "
        f'told apart as --owner "John S."), use another provider, a paid tier of the same account, a cluster or a lab '
        f"machine (--provider slurm, cluster or lab), or a grant."
    )


def _steps(steps: Sequence[int]) -> str:
    return ", ".join(f"{step:,}" for step in steps)


ADVICE: dict[type[BaseException], Callable[[Any], str]] = {
    OfStore: advised,
    NoRoomHere: said,
    BadName: _bad_name,
    NotLetters: _and(
        "Set PYTHONUTF8=1 or LC_ALL=C.UTF-8 and run the same command again; on a terminal that is not in UTF-8 write "
        "it in plain letters."
    ),
    BadSetting: _bad_setting,
    FolderRefused: _and("Nothing was trained. Free or permit that folder, or name another one with sync_dir=FOLDER."),
    NoCacheKey: _and(
        "Set it to the key that your team uses; the first of you makes one: "
        "python3 -c 'import secrets; print(secrets.token_hex(32))'. Or go on without: cache.allow=false."
    ),
    SharedFilesGone: _and("The step stays on this machine, and the next session sends it whole."),
    NoCheckpoint: _no_checkpoint,
    Unfit: _unfit,
    FaultyMachine: _and("Nothing was changed. Use another machine."),
    NoneLoads: _none_loads,
    DamagedCheckpoint: _damaged_checkpoint,
    Retired: _retired,
    RolledBack: _rolled_back,
    MarkDiffers: _mark_differs,
    NewerFormat: _and(f"Upgrade: {UPGRADE}."),
    SlotEmpty: _and(
        "Nothing was written or deleted. Restore that file from a backup of the storage, or fork from a good "
        "checkpoint."
    ),
    NoValidEntry: _no_valid_entry,
    SlotUnreadable: _and(
        "It may hold another session's lease, so this session writes nothing after it. The next one reads it again for "
        "a while, and passes over it if it stays unreadable."
    ),
    NoTimeToProve: _and(AGAIN),
    SlotsDiffer: _and(AGAIN),
    BadConnection: _and("Nothing was written. Run again on another network."),
    SlotTooNew: _and("Nothing was written. Upgrade, then run again."),
    Overlooked: lambda error: (
        f"{error} It can be read now, and nothing keeps its checkpoint. Nothing was written or deleted. "
        f"`{command('repair', error.run)}` shows both and lets you choose."
    ),
    Overtaken: _and("Run again later."),
    LedgerOfAnotherRun: _and("Somebody copied or renamed it; use the name it was begun with."),
    HistoryDamaged: _and("Training is not affected; restore the file from a backup of the storage."),
    StoreNotBegun: _and(f"Check the address; if it is right, run `{command('init')}` once."),
    RunDeleted: both,
    RunArchived: both,
    RunHalted: both,
    UnknownRun: unknown_run,
    StrayCheckpoints: _stray_checkpoints,
    EntryLost: _entry_lost,
    LeaseOver: _lease_over,
    HeldBy: _held_by,
    TrainsAnother: _trains_another,
    Overdue: _overdue,
    NotArchived: _not_archived,
    TooEarly: _too_early,
    BroughtBack: _and("Nothing was deleted."),
    SettingsDamaged: _and("Nothing was changed. Restore that file from a backup of the storage."),
    BadIdentity: _and("Copy the whole address again."),
    IdentityDamaged: _and(
        f"Restore that file from a backup, or write it anew from the address you were given: what follows {FRAGMENT} "
        f"is its id."
    ),
    ForkTaken: _and("Nothing of it was touched. Choose another name with --to."),
    NoSuchChoice: _no_such_choice,
    NothingLoads: _and("Nothing was written. Restore its files from a backup first, or choose another history."),
    ImpossibleEpoch: _and("Nothing was written. Move it to another place, then run the same command again."),
    NameTaken: _name_taken,
    SimilarName: _similar_name,
    PassingDisk: _and(
        "Set RELAY_STORE to a place that stays, or pass --ephemeral (RELAY_EPHEMERAL=1) if the run may be lost."
    ),
    AnotherStore: _and("Likely causes: a mistyped name, another bucket or folder, or another person's app folder."),
    RunOfAnotherStore: _and("Check RELAY_STORE, RELAY_LEDGER_STORE and RELAY_CHECKPOINT_STORE."),
    ConfigDiffers: _config_differs,
    AccountDamaged: _account_damaged,
    NoAccount: _no_account,
    AccountForgotten: _and("Whoever trained as it may register it again; everybody else registers another id."),
    NotItsPerson: _and("Register another id."),
    IdTaken: _id_taken,
    AnotherMachine: another_machine,
    Unconfirmed: unconfirmed,
    NotInTeam: not_in_team,
    AccountRetired: _retired_account,
    Unsupported: _and("Use another provider."),
    OneTooMany: _one_too_many,
}
"""For each kind of error the whole paragraph; an error of any other kind is shown as it is."""
