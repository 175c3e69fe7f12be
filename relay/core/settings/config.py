"""The settings of a session, validated: defaults < file < environment < command line. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from relay.core.ledger.frozen import MAX_RETAINED
from relay.core.names import FRAGMENT, Name
from relay.core.settings.origins import (
    BadSetting,
    Fault,
    Given,
    deleted,
    from_command_line,
    from_environment,
    from_file,
    variable,
)
from relay.core.settings.validating import check_known, submodel, validate
from relay.core.workload import Step
from storage.base import is_address

FILE_NAME = "config_multi_account.yaml"
DEFAULT_STORE = "relay_store"
DEFAULT = "default"
"""The origin of a setting that was not given."""

Minutes = Annotated[float, Field(gt=0, le=60 * 24 * 366)]
Count = Annotated[int, Field(ge=0)]


def listed(value: object) -> object:
    """Splits a text at commas, as environment variables and options are texts; other values stay."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Section(BaseModel):
    """Immutable; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Storage(Section):
    """Where the shared folder is. The two overrides may name different stores."""

    url: str | None = None
    """Address of the store; unset means the folder relay_store where the command runs."""
    ledger_url: str | None = None
    """Another address for the ledger alone, small and written often."""
    checkpoint_url: str | None = None
    """Another address for the checkpoints alone, which are large."""


class Checkpointing(Section):
    """When a commit is due (whichever comes first) and which commits stay (P8)."""

    every_steps: Annotated[int, Field(gt=0)] = 500
    """A commit is due after so many steps, or earlier by the minutes."""
    every_minutes: Minutes = 10.0
    """A commit is due after so many minutes, or earlier by the steps."""
    keep_last: Annotated[int, Field(ge=2, le=MAX_RETAINED - 8)] = 3
    """How many of the newest checkpoints stay. The ledger holds few; the best and every Nth need room too."""
    keep_every: Count = 0
    """Also keep every checkpoint whose step is a multiple of this; 0 keeps none."""


class Evaluation(Section):
    """Validation of the EMA weights during training; it chooses the best checkpoint."""

    every_commits: Count = 4
    """Evaluate at every Nth commit; 0 never evaluates."""
    rows: Annotated[int, Field(gt=0)] = 128
    """Validation rows of one evaluation; the best checkpoint is chosen by them."""


class Lease(Section):
    """How long a silent session keeps the run (P5)."""

    ttl_s: Annotated[float, Field(gt=0, le=86400)] = 180.0
    """Seconds that a silent session keeps the run to itself."""


class Cache(Section):
    """Compiled code in the store. It is executable, so only this machine may allow it, not a run or a store (P11)."""

    allow: bool = False
    """Run kernels that others compiled and signed, and store ours."""


class Settings(Section):
    """The relay's settings. None of them affects the state at step n, so all may change at any time."""

    project: Name
    """The group of runs that the run belongs to."""
    run: Name
    """The run's name, the same for all participants."""
    account: Name = "account_1"
    """The account of the session: its registered id."""
    storage: Storage = Storage()
    target_steps: Annotated[Step, Field(gt=0)] | None = None
    """The run's target, for everybody: sets a new run's and may raise an existing one. Unset means the run's own, and
    for a new run the task's."""
    until_step: Annotated[Step, Field(gt=0)] | None = None
    """End this session at that step; the run's target stays. Unset means no such end."""
    budget_minutes: Minutes | None = None
    """Minutes from process start to process exit; unset means no limit."""
    session_limit_minutes: Minutes | None = None
    """The provider's limit in minutes from machine start; unset means the known limit of this environment."""
    checkpoint: Checkpointing = Checkpointing()
    evaluation: Evaluation = Evaluation()
    lease: Lease = Lease()
    cache: Cache = Cache()
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|xla)$")] = "auto"
    """auto, cpu, cuda, cuda:N or xla."""
    ephemeral: bool = False
    """Allow a local store on a disk that does not outlive this machine."""
    spot: Literal["auto", "off", "aws", "gcp", "azure"] = "auto"
    """The cloud whose spot notices to watch; auto: the cloud that this machine's firmware names."""
    competition: Name | None = None
    """Slug of the competition that the run is for: only accounts that confirmed to be on its team may train then."""
    load_checkpoint: str | None = None
    """A file of weights from which a new run starts, as with `import`; an existing run must be from this file."""
    checkpoint_path: str | None = None
    """A folder of this machine that also gets weights and answers of each evaluation, in the form of the reference."""
    trackers: Annotated[tuple[Literal["wandb", "tensorboard", "trackio"], ...], BeforeValidator(listed)] = ()
    """Trackers that a session, or `track` without one, feeds from the ledger; may be a text with commas."""
    tensorboard_dir: str = "tensorboard"
    """Folder for TensorBoard's event files."""
    data_dir: str = "data"
    """Folder for generated or downloaded data."""
    sync_dir: str = "sync"
    """Folder for this machine's files: logs, the newest checkpoint, unsent checkpoints."""


WorkloadConfig = TypeVar("WorkloadConfig", bound=BaseModel)


@dataclass(frozen=True)
class Training(Generic[WorkloadConfig]):
    """The workload's configuration: settings that somebody gave, on top of a preset or of a run's pinned ones."""

    model: type[WorkloadConfig]
    base: Mapping[str, Given]
    given: Mapping[str, Given]
    usual_task: str
    """The task if none is given."""

    @cached_property
    def config(self) -> WorkloadConfig:
        """The validated configuration. Raises BadSetting (78)."""
        return validate(self.model, {**self.base, **self.given})

    @property
    def origins(self) -> dict[str, str]:
        """By dotted key."""
        return {key: given.origin for key, given in {**self.base, **self.given}.items()}

    def on(self, base: Mapping[str, Given]) -> Training[WorkloadConfig]:
        """The same on another base, without a file's lines that only repeat a default of this one."""
        idle = self._idle()
        given = {key: given for key, given in self.given.items() if key not in idle}
        return Training(self.model, base, given, self.usual_task)

    def differing(self) -> dict[str, tuple[Any, Any]]:
        """(the base's value, the given one) of each given setting that changes the base, by dotted key."""
        mine, theirs = self._values(self.given), self._values({})
        return {key: (theirs[key], mine[key]) for key in sorted(self.given) if theirs[key] != mine[key]}

    def _idle(self) -> set[str]:
        """Keys of a file's lines with the default's value."""
        filed = {key: given for key, given in self.given.items() if given.filed}
        try:
            mine, usual = self._values(filed), {**self._values({}), "task": self.usual_task}
        except BadSetting:
            return set()  # one of them is invalid, which is reported on the other base
        return {key for key in filed if mine[key] == usual[key]}

    def _values(self, given: Mapping[str, Given]) -> dict[str, Any]:
        return dict(flat(validate(self.model, {**self.base, **given}).model_dump(mode="json")))


@dataclass(frozen=True)
class Resolved(Generic[WorkloadConfig]):
    """Validated settings, the workload's configuration, and the origin of each value."""

    settings: Settings
    training: Training[WorkloadConfig]
    folder: Path
    """The folder where the command runs; relative paths start here."""
    origins: dict[str, str] = field(default_factory=dict)
    """By dotted key; keys that were not given are absent."""
    usual_project: str = ""
    """The project without any setting."""

    @property
    def workload(self) -> WorkloadConfig:
        """The workload's configuration. Raises BadSetting (78)."""
        return self.training.config

    def on(self, base: Mapping[str, Any], origin: str) -> Resolved[WorkloadConfig]:
        """The same settings, with the workload's on top of those in `base` (by dotted key) instead of a preset."""
        training = self.training.on({key: Given(key, value, origin) for key, value in base.items()})
        own = {key: where for key, where in self.origins.items() if key not in self.training.origins}
        return replace(self, training=training, origins=own | training.origins)

    def path(self, text: str) -> Path:
        """An absolute path. Raises BadSetting (78) for an unknown home folder."""
        try:
            return (self.folder / Path(text).expanduser()).absolute()
        except RuntimeError as error:
            raise BadSetting(Fault.NO_HOME, f"{text}: this home folder is unknown.") from error

    @property
    def home(self) -> Path:
        """The run's folder on this machine."""
        return self.path(self.settings.sync_dir) / self.settings.project / self.settings.run

    @property
    def given_account(self) -> str | None:
        """The account, if it was given; otherwise None."""
        return self.settings.account if "account" in self.origins else None

    @property
    def ledger_url(self) -> str:
        """Address of the store that holds the ledger."""
        return self._address(self.settings.storage.ledger_url or self._url())

    @property
    def checkpoint_url(self) -> str:
        """Address of the store that holds the checkpoints."""
        return self._address(self.settings.storage.checkpoint_url or self._url())

    @property
    def default_url(self) -> str:
        """Address of the store if none is given."""
        return self._address(DEFAULT_STORE)

    @property
    def addresses(self) -> dict[str, str]:
        """The given store addresses, by environment variable: other participants need to set the same."""
        named = self.settings.storage.model_dump().items()
        return {variable(f"storage.{key}"): self._address(address) for key, address in named if address}

    @property
    def variables(self) -> dict[str, str]:
        """The variables that lead another participant to this run, besides its name."""
        project = self.settings.project
        return ({variable("project"): project} if project != self.usual_project else {}) | self.addresses

    def _url(self) -> str:
        return self.settings.storage.url or DEFAULT_STORE

    def _address(self, url: str) -> str:
        """A plain path as a file:// address, with the store's identity after it. Other text stays as it is: opening
        the store refuses it."""
        path, mark, identity = url.partition(FRAGMENT)
        return url if is_address(path) or not path.strip() else self.path(path).as_uri() + mark + identity

    def values(self) -> Iterator[tuple[str, Any, str]]:
        """(dotted key, value, origin) of every setting."""
        for model in (self.settings, self.workload):
            for key, value in flat(model.model_dump(mode="json")):
                yield key, value, self.origins.get(key, DEFAULT)


def resolve(
    preset: Callable[[str], WorkloadConfig],
    model: type[WorkloadConfig],
    environ: Mapping[str, str],
    folder: Path,
    *,
    default_task: str,
    defaults: Callable[[str], Mapping[str, str]],
    file: Path | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    implied: Mapping[str, str] | None = None,
    joins: bool = False,
) -> Resolved[WorkloadConfig]:
    """Merge all sources, later ones winning, and validate.

    `default_task` is used if no task is given, `defaults` holds a task's defaults for the relay's settings, by dotted
    key. `file` defaults to the one in `folder`, if there is one. `flags` holds dotted keys from options; None is unset.
    `implied` follows from other settings and overrides only the file. With `joins`, the workload's settings are
    validated at their first use, because a run that exists may bring another base for them. If `model` ignores what it
    does not know, so does this in the file, which may hold the settings of another model.

    Raises BadSetting and BadName (78) that name the key, its fault and its origin.
    """
    keys = [*leaves(Settings), *leaves(model)]
    found = file or (folder / FILE_NAME if (folder / FILE_NAME).is_file() else None)
    strict = model.model_config.get("extra") != "ignore"
    removed = deleted(overrides, keys)
    given = [
        *(g for g in (from_file(found) if found else []) if g.key not in removed and (strict or g.key in keys)),
        *(Given(key, value, "implied by the command") for key, value in (implied or {}).items()),
        *(g for g in from_environment(environ, [*leaves(Settings), "task"]) if g.key not in removed),
        *from_command_line([text for text in overrides if not text.startswith("~")]),
        *(Given(k, str(v), "command line option") for k, v in (flags or {}).items() if v is not None),
    ]
    merged = {g.key: g for g in given}
    for g in merged.values():
        check_known(g, keys)
    task = str(merged["task"].value) if "task" in merged else default_task
    usual = defaults(task)
    merged = {k: Given(k, v, DEFAULT) for k, v in usual.items()} | merged
    known = set(leaves(Settings))
    own = {k: g for k, g in merged.items() if k in known}
    base = {k: Given(k, v, f"preset {task}") for k, v in flat(preset(task).model_dump(mode="json"))}
    if "task" not in merged:
        base["task"] = Given("task", task, DEFAULT)
    training = Training(model, base, {k: g for k, g in merged.items() if k not in known}, default_task)
    resolved = Resolved(
        settings=validate(Settings, own),
        training=training,
        folder=folder.absolute(),
        origins={k: g.origin for k, g in own.items()} | training.origins,
        usual_project=usual["project"],
    )
    if not joins:
        _ = resolved.workload
    return resolved


def leaves(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of all plain fields of a model, including those of nested models."""
    found = []
    for name, info in model.model_fields.items():
        nested = submodel(info.annotation)
        found.extend(leaves(nested, f"{prefix}{name}.") if nested else [prefix + name])
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of a nested mapping."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
