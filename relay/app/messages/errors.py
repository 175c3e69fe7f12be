"""Adds to an error's own sentence the command or setting that fixes it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from relay.app.guard.ending import StillRuns
from relay.app.guard.rented import NoMachine, NotReachable, StoreOnMachine, WrongMachine
from relay.app.messages.admitting import another_machine, another_owner, not_in_team, unconfirmed
from relay.app.messages.advice import command
from relay.app.messages.cells import CELLS
from relay.app.messages.resting import resting_text
from relay.app.messages.trouble import LOOK, sentence, with_advice
from relay.app.messages.whereabouts import unknown_run
from relay.app.messages.wording import duration
from relay.app.redact import redact
from relay.app.renting import (
    AnAccountElsewhere,
    BadCatalog,
    Misfit,
    NeverEnds,
    NoLastingStore,
    NoPrice,
    NotOneLine,
    SecretInAddress,
    ShortBudget,
    UnknownMachine,
)
from relay.core.checkpoint.commit import SharedFilesGone
from relay.core.checkpoint.compilecache import NoCacheKey
from relay.core.checkpoint.restore import (
    DamagedCheckpoint,
    FaultyMachine,
    NoCheckpoint,
    NoneLoads,
    RetiredDuringDownload,
    Unfit,
)
from relay.core.errors import NoRoomHere, OfStore
from relay.core.folders import FolderRefused, NoScratch
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
from relay.core.ledger.target import LowerTarget, TargetBehind
from relay.core.ledger.verified import MarkDiffers, RolledBack
from relay.core.names import FRAGMENT, BadName, NotLetters, nearest
from relay.core.resources import OutOfResource, Resource
from relay.core.runs.archive import BroughtBack, NotArchived, TooEarly
from relay.core.runs.fork import ForkTaken
from relay.core.runs.opening import (
    AnotherStore,
    BadIdentity,
    ConfigDiffers,
    IdentityDamaged,
    NameTaken,
    NewerSettings,
    PassingDisk,
    RunOfAnotherStore,
    SimilarName,
)
from relay.core.runs.ownloop import OwnLoop
from relay.core.runs.repair import ImpossibleEpoch, NoSuchChoice, NothingLoads
from relay.core.runs.salvage import SettingsDamaged
from relay.core.runs.sources import DataDiffers, DataElsewhere
from relay.core.session.training import NoTimeForTest
from relay.core.settings.origins import BadSetting, Fault
from relay.people.accounts import AccountDamaged, AccountForgotten, IdTaken, NoAccount, NotItsPerson
from relay.people.admission import AccountRetired, AnotherMachine, AnotherOwner, NotInTeam, Unconfirmed
from relay.people.owners import NoName
from relay.people.policy import OneTooMany, Unsupported
from relay.people.zones import NoZones, local
from storage.guides import guide
from storage.packages import UPGRADE, installation

SETTINGS = {
    Fault.UNKNOWN_VARIABLE: "Unset it or correct its name.",
    Fault.INVALID: "Correct it and run the same command again.",
    Fault.NOT_YES_OR_NO: "Correct it or unset it.",
    Fault.NOT_A_PAIR: "Write settings as key=value, e.g. batch_size=64, and a run as --run NAME.",
    Fault.REFERENCE: "Write the value itself.",
    Fault.NO_FILE: "Correct --config or RELAY_CONFIG.",
    Fault.NOT_YAML: "Correct that line.",
    Fault.TWICE: "Keep one of the two lines.",
    Fault.NO_HOME: "Write the whole path.",
}
"""The fix for each fault of a setting."""
MORE: dict[Resource, str] = {
    "threads or processes": "End other processes of this user, or raise the limit (ulimit -u, or the container's)",
    "open files": "Raise the limit (ulimit -n 4096)",
    "memory": "Use a machine with more memory, raise the limit, or end other programs",
}
"""How to get more of a resource."""
AGAIN = "Run the same command again. Nothing was written."


def paragraph(error: BaseException) -> str:
    """The error's sentence and its fix; only the sentence for an error that no table lists."""
    tables = (CELLS, ADVICE) if installation() == "notebook" else (ADVICE,)
    for kind in type(error).__mro__:
        for table in tables:
            if kind in table:
                return table[kind](error)
    return str(error)


def _and(advice: str) -> Callable[[BaseException], str]:
    """Appends fixed advice to the error's sentence."""
    return lambda error: f"{error} {advice}"


def _no_time_for_test(error: NoTimeForTest) -> str:
    needed = f", and all rows take about {duration(error.needed_s)} on this machine" if error.needed_s else ""
    return (
        f"{error} {duration(error.left_s)} were left for it{needed}. Give the session more --budget-minutes, or choose "
        f"fewer evaluation.test_rows. The target is committed; nothing is lost."
    )


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
        f"{error} Upgrade trm-relay and run again: a newer version probably wrote it. Nothing was changed. Otherwise "
        f"begin a new run from an older step: "
        f"{command('fork', error.run, '--to', f'{error.run[:60]}_2', '--from-step', 'STEP')}"
    )


def _none_loads(error: NoneLoads) -> str:
    lines = "\n".join(f"  {line}" for _, line in error.found)
    return (
        f"No retained checkpoint of run {error.project}/{error.run} can be loaded. Restore the missing or changed "
        f"files from a backup of the storage. Nothing was changed; a run with commits never restarts at step 0."
        f"\n{lines}\n{LOOK}"
    )


def _damaged_checkpoint(error: DamagedCheckpoint) -> str:
    if error.others is None:
        return f"{error} {LOOK}"
    return f"{error} Other retained steps: {_steps(error.others) or 'none'}. {LOOK}"


def _retired(error: RetiredDuringDownload) -> str:
    return f"{error} Choose one of the retained steps: {_steps(error.retained)}."


def _rolled_back(error: RolledBack) -> str:
    return (
        f"{error} Restore the newer files from a backup, or compare both with `{command('repair', error.run)}`. "
        f"Nothing was written."
    )


def _mark_differs(error: MarkDiffers) -> str:
    return f"{error} Compare both with `{command('repair', error.run)}`."


def _no_valid_entry(error: NoValidEntry) -> str:
    return f"{error} Restore {error.first} from a backup of the storage, or use another run name. Nothing was changed."


def _stray_checkpoints(error: StrayCheckpoints) -> str:
    return (
        f"{error} If the other participants keep the ledger in another store, set "
        f"RELAY_LEDGER_STORE to it. If the ledger was lost, restore {error.log} from a backup. Otherwise choose "
        f"another run name. Nothing was written."
    )


def _entry_lost(error: EntryLost) -> str:
    return (
        f"{error} If a backup has newer entries of {error.log}, restore them. Otherwise continue from the entries "
        f"that are left: `{command('repair', error.run)}`. Nothing was written or deleted."
    )


def _lease_over(error: LeaseOver) -> str:
    kept = "" if isinstance(error.stopped, RunDeleted) else "; its commits are safe"
    begin = f"{error} It writes nothing more{kept}."
    if error.stopped:
        return f"{begin} {resting_text(error.stopped)}"
    return (
        f"{begin} The run is in epoch {error.newest}, held by {error.holder or 'no session'}. Run the same command "
        f"again to continue from the newest checkpoint."
    )


def _held_by(error: HeldBy) -> str:
    return (
        f"Run {error.project}/{error.run} is being trained by {error.account} (step {error.step:,}, last heartbeat "
        f"{error.silent_s:.0f} s ago). Run the same command later; `run` can wait (--wait MINUTES). That session "
        f"began {local(error.since)}; if its heartbeats stop, another can take over in {error.left_s:.0f} s at the "
        f"earliest."
    )


def _trains_another(error: TrainsAnother) -> str:
    return (
        f"Account {error.account} already trains run {error.run} (since {local(error.since)}). An account trains one "
        f"run at a time: wait for that session, stop it with `{command('stop', error.run)}`, or use another person's "
        f"account."
    )


def _overdue(error: Overdue) -> str:
    return (
        f"Ended by {error.by}: the session did not stop within {duration(error.seconds)}. Storage may not answer. "
        f"Every commit is safe; the lease expires by itself, and the next session continues."
    )


def _out_of_resource(error: OutOfResource) -> str:
    return (
        f"{error} {MORE[error.resource]}, then run the same command again. Commits are safe; other machines are not "
        f"affected."
    )


def _not_archived(error: NotArchived) -> str:
    return (
        f"{error} Archive it first, so that the other participants see it; it can be deleted {duration(WAIT_S)} later. "
        f"Nothing was deleted."
    )


def _too_early(error: TooEarly) -> str:
    return (
        f"Run {error.run} was archived only {duration(error.archived_s)} ago. It can be deleted from "
        f"{local(error.deletable_at)} on. Nothing was deleted."
    )


def _no_such_choice(error: NoSuchChoice) -> str:
    return f"{error} Choose one of: {', '.join(error.names)}."


def _name_taken(error: NameTaken) -> str:
    option = {"fork": "--to", "import": "--run"}[error.by]
    return f"{error} Choose another name with {option}."


def _similar_name(error: SimilarName) -> str:
    return f"{error} Correct the name (RUN_NAME={error.other}), or pass --new to begin a new run."


def _config_differs(error: ConfigDiffers) -> str:
    return (
        f"{error} Leave them out to train the run as it is, or begin a new run from the newest checkpoint: "
        f"{command('fork', error.run, '--to', f'{error.run[:60]}_2', *error.overrides)}"
    )


def _data_elsewhere(error: DataElsewhere | DataDiffers) -> str:
    where = "".join(f"{name}={shlex.quote(redact(value))} " for name, value in error.variables.items())
    named = [f"{key}=PATH" for key in error.missing]
    return (
        f"{error} Get it from a participant, name its path once with `{where}"
        f"{command('prepare', error.run, *named)}`, then run the same command again."
    )


def _lower_target(error: LowerTarget) -> str:
    return (
        f"{error} Nothing was changed. To end only your session there: --until-step {error.asked}, without "
        f"target_steps in options, RELAY_TARGET_STEPS and the file. To lower it for everybody: --new-target "
        f"{error.asked}."
    )


def _account_damaged(error: AccountDamaged) -> str:
    return (
        f"{error} Register it again with `{command(f'register {error.account} LABEL')}`, or restore it from a backup "
        f"of the storage. Runs and other accounts are not affected."
    )


def _no_account(error: NoAccount) -> str:
    near = nearest(error.account, error.known)
    hint = f"Did you mean {near}?" if near else f"Registered accounts: {', '.join(sorted(error.known)[:10]) or 'none'}."
    return f"{error} {hint} Register it with `{command(f'register {error.account} LABEL')}`."


def _no_name(error: NoName) -> str:
    return f"{error} Put yours in its place and run the same command again."


def _id_taken(error: IdTaken) -> str:
    return (
        f"{error} Register under another id, or change this account: "
        f"`{command(f'accounts edit {error.account}')} --label LABEL --owner NAME --provider PROVIDER`"
    )


def _retired_account(error: AccountRetired) -> str:
    return f"{error} To use it again: `{command(f'accounts mark {error.account} ready')}`."


def _one_too_many(error: OneTooMany) -> str:
    again = [
        f" Register a forgotten account again under its own id: `{command(f'register {one}')} LABEL`."
        for one in error.forgotten[:1]
    ]
    return (
        f"{error} Retired, renamed and forgotten accounts count too.{''.join(again)} If this account is another "
        f"person's, pass --owner NAME or set RELAY_OWNER "
        f'(two people of one name differ as --owner "John S."). '
        f"Otherwise use another provider, a paid tier of the same account, a cluster or lab machine (--provider slurm, "
        f"cluster or lab) or a grant, or invite another person with an account of their own."
    )


def _steps(steps: Sequence[int]) -> str:
    return ", ".join(f"{step:,}" for step in steps)


ADVICE: dict[type[BaseException], Callable[[Any], str]] = {
    OfStore: with_advice,
    NoRoomHere: sentence,
    BadName: _bad_name,
    NotLetters: _and(
        "Set PYTHONUTF8=1 or LC_ALL=C.UTF-8 and run the same command again. On a terminal without UTF-8, write it in "
        "ASCII letters."
    ),
    BadSetting: _bad_setting,
    FolderRefused: _and("Make that folder writable, or set another one with sync_dir=FOLDER. Nothing was trained."),
    NoScratch: _and("Set TMPDIR to a folder on a disk with free space, then run the same command again."),
    NoCacheKey: _and(
        "Set it to your team's key, or turn the cache off with cache.allow=false. The first participant creates the "
        "key: python3 -c 'import secrets; print(secrets.token_hex(32))'"
    ),
    SharedFilesGone: _and("The step stays on this machine; the next session sends all of its files."),
    NoTimeForTest: _no_time_for_test,
    NoCheckpoint: _no_checkpoint,
    Unfit: _unfit,
    FaultyMachine: _and("Use another machine. Nothing was changed."),
    NoneLoads: _none_loads,
    DamagedCheckpoint: _damaged_checkpoint,
    RetiredDuringDownload: _retired,
    RolledBack: _rolled_back,
    MarkDiffers: _mark_differs,
    NewerFormat: _and(f"Upgrade: {UPGRADE}."),
    SlotEmpty: _and(
        "Restore that file from a backup of the storage, or fork from an intact checkpoint. Nothing was written or "
        "deleted."
    ),
    NoValidEntry: _no_valid_entry,
    SlotUnreadable: _and(
        "It may hold another session's lease, so this session writes nothing after it. The next session reads it again "
        "for a while, and passes over it if it stays unreadable."
    ),
    NoTimeToProve: _and(AGAIN),
    SlotsDiffer: _and(AGAIN),
    BadConnection: _and("Run the same command again on another network. Nothing was written."),
    SlotTooNew: _and("Upgrade, then run the same command again. Nothing was written."),
    Overlooked: lambda error: (
        f"{error} The slot can be read now, but the run does not keep its checkpoint. Nothing was written or deleted. "
        f"Compare both and choose one: `{command('repair', error.run)}`"
    ),
    Overtaken: _and("Run again later."),
    LedgerOfAnotherRun: _and("It was copied or renamed: use its original name."),
    HistoryDamaged: _and("Training is not affected; restore the file from a backup of the storage."),
    StoreNotBegun: _and(f"Check the address. If it is right, run `{command('init')}` once."),
    RunDeleted: resting_text,
    RunArchived: resting_text,
    RunHalted: resting_text,
    UnknownRun: unknown_run,
    NoName: _no_name,
    StrayCheckpoints: _stray_checkpoints,
    EntryLost: _entry_lost,
    LeaseOver: _lease_over,
    HeldBy: _held_by,
    TrainsAnother: _trains_another,
    OutOfResource: _out_of_resource,
    Overdue: _overdue,
    NotArchived: _not_archived,
    TooEarly: _too_early,
    BroughtBack: _and("Nothing was deleted."),
    SettingsDamaged: _and("Restore that file from a backup of the storage. Nothing was changed."),
    BadIdentity: _and("Copy the whole address again."),
    IdentityDamaged: _and(
        f"Restore that file from a backup. Or write it again from the address that you were given: the part after "
        f"{FRAGMENT} is its id."
    ),
    ForkTaken: _and("Choose another name with --to. That run was not changed."),
    NoSuchChoice: _no_such_choice,
    NothingLoads: _and("Restore its files from a backup first, or choose another history. Nothing was written."),
    ImpossibleEpoch: _and("Move it to another place, then run the same command again. Nothing was written."),
    NameTaken: _name_taken,
    SimilarName: _similar_name,
    PassingDisk: _and(
        "Set RELAY_STORE to permanent storage, or pass --ephemeral (RELAY_EPHEMERAL=1) if the run may be lost."
    ),
    UnknownMachine: _and(f"A machine is a number of GPUs and a card: 8xH100. `{command('cloud list')}` shows some."),
    Misfit: lambda error: f"{error} {error.instead}",
    NeverEnds: _and("Set more hours with --spot-hours, commit more often, or rent on demand."),
    BadCatalog: _and(f"Take vms.csv of one cloud from SkyPilot's catalog ({guide('cloud')})."),
    NoPrice: _and(f"Give one with --price, or read a catalog: `{command('cloud prices')} --catalog FILE`."),
    NoLastingStore: _and("Set RELAY_STORE to storage that outlives it, or pass --ephemeral if the run may be lost."),
    NotOneLine: _and("Give the file or the folder another name, or correct the setting."),
    SecretInAddress: _and(f"Keep the secret in the environment ({guide('s3')}), and leave it out of the address."),
    AnAccountElsewhere: _and("Register the machine as an account of its own provider, and name that with --account."),
    ShortBudget: _and("Give more with --budget-minutes, or leave it out."),
    AnotherStore: _and("Likely causes: a mistyped name, another bucket or folder, or another person's app folder."),
    RunOfAnotherStore: _and("Check RELAY_STORE, RELAY_LEDGER_STORE and RELAY_CHECKPOINT_STORE."),
    ConfigDiffers: _config_differs,
    DataElsewhere: _data_elsewhere,
    DataDiffers: _data_elsewhere,
    OwnLoop: _and(f"Start that script instead, e.g. `{command('exec')} -- python train.py`."),
    NewerSettings: _and(f"Upgrade: {UPGRADE}."),
    LowerTarget: _lower_target,
    TargetBehind: lambda error: f"{error} The lowest new target is --new-target {error.step}. Nothing was changed.",
    AccountDamaged: _account_damaged,
    NoAccount: _no_account,
    AccountForgotten: _and("Only its owner may register it again. Otherwise register another id."),
    NotItsPerson: _and("Register another id."),
    IdTaken: _id_taken,
    NoZones: _and("Install it with `pip install tzdata`, or with your system's package tzdata. UTC works without."),
    AnotherMachine: another_machine,
    AnotherOwner: another_owner,
    Unconfirmed: unconfirmed,
    NotInTeam: not_in_team,
    AccountRetired: _retired_account,
    Unsupported: _and("Use another provider."),
    NoMachine: _and(
        f"Nothing was started, and the machine still runs. Set the variable, or give --end-command and --gone-command: "
        f"{guide('guard')}."
    ),
    WrongMachine: _and("Nothing was started or deleted. Correct the variable or --machine; this machine still runs."),
    NotReachable: _and("Nothing was started, and the machine still runs. Correct its id, its key or --gone-command."),
    StillRuns: lambda error: f"{error} It costs money until you delete it: {error.console}.",
    StoreOnMachine: _and(
        "Nothing was started. Set RELAY_STORE to storage that stays, or pass --ephemeral if that folder does."
    ),
    OneTooMany: _one_too_many,
}
"""By error type, the function that returns the whole paragraph; `paragraph` looks up base classes too."""
