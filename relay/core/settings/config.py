"""The settings of a session, validated: defaults < file < environment < command line. Knows no model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from relay.core.ledger.frozen import MAX_RETAINED
from relay.core.names import FRAGMENT, Name, nearest
from relay.core.settings.origins import (
    BadSetting,
    Fault,
    Given,
    Value,
    deleted,
    from_command_line,
    from_environment,
    from_file,
    variable,
)
from relay.core.settings.validating import check_known, submodel, validate
from relay.core.workload import Reading, Step
from storage.base import is_address

FILE_NAME = "config_multi_account.yaml"
DEFAULT_STORE = "relay_store"
AUTO = "auto"
DEFAULT = "default"
"""The origin of a setting that was not given."""

Minutes = Annotated[float, Field(gt=0, le=60 * 24 * 366)]
Count = Annotated[int, Field(ge=0)]


def listed(value: object) -> object:
    """Splits a text at commas, as environment variables and options are texts; other values stay."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def known_device(name: str) -> str:
    """The name of a kind of device, or of one CUDA device. Raises ValueError."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?|xla", name):
        raise ValueError("must be auto, cpu, cuda, cuda:N or xla")
    return name


def _reading(text: str) -> str:
    Reading.of(text)
    return text


ReadingText = Annotated[str, AfterValidator(_reading)]
"""A text that `Reading.of` accepts."""


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
    """When a commit is due (whichever comes first, or when it is asked for) and which commits stay (P8).

    A session's first one is due a minute or a tenth of its budget after it began, so that its upload is measured.
    """

    every_steps: Annotated[int, Field(gt=0)] = 500
    """A commit is due at each step that is a multiple of this, or earlier by the minutes; and at a session's end."""
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
    test_rows: Count = 0
    """Test rows to evaluate at the target, once; if the session cannot, a later one does. 0 evaluates none."""
    test_also: Annotated[tuple[ReadingText, ...], BeforeValidator(listed)] = ()
    """Other readings of the same state on these rows: raw (weights), recursions=N; may be a text with commas."""


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
    device: Annotated[str, AfterValidator(known_device)] = "auto"
    """auto, cpu, cuda, cuda:N or xla."""
    processes: Annotated[str, Field(pattern=r"^(auto|[1-9][0-9]?)$")] = AUTO
    """Processes of this host that share each step, one a GPU. auto: as many as there are equal, idle GPUs; a number:
    exactly so many, or the session is refused."""
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
    tracker_details: bool = False
    """Trackers also get every other time and size that sessions measured of themselves, as relay/…"""
    tensorboard_dir: str = "tensorboard"
    """Folder for TensorBoard's event files."""
    data_dir: str = "data"
    """Folder for generated or downloaded data."""
    sync_dir: str = "sync"
    """Folder for this machine's files: logs, the newest checkpoint, unsent checkpoints."""


WorkloadConfig = TypeVar("WorkloadConfig", bound=BaseModel)
OtherConfig = TypeVar("OtherConfig", bound=BaseModel)
Shorthands = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By setting and by its value: the settings for which it stands."""


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
        return self._validated(self.given)

    @property
    def waits_for_run(self) -> bool:
        """Whether the command line gives settings of a workload without a task. The task of the run then defines
        them, if the run exists.
        """
        task, typed = self.base.get("task"), (one.origin.startswith("command line") for one in self.given.values())
        return task is not None and task.origin == DEFAULT and any(typed)

    @property
    def origins(self) -> dict[str, str]:
        """By dotted key."""
        return {key: given.origin for key, given in {**self.base, **self.given}.items()}

    def on(self, base: Mapping[str, Given]) -> Training[WorkloadConfig]:
        """The same on another base, without a file's lines that only repeat a default of this one."""
        idle = self._idle()
        given = {key: given for key, given in self.given.items() if key not in idle}
        return Training(self.model, base, given, self.usual_task)

    def of(
        self, model: type[OtherConfig], shorthands: Shorthands, usual_task: str, only: Sequence[str] | None
    ) -> Training[OtherConfig]:
        """The given settings for another model, without those of a file, which are of this one. The base is missing.

        Raises BadSetting (78) for a setting that the model lacks.
        """
        given = {key: one for key, one in self.given.items() if (not one.filed if only is None else key in only)}
        return Training(model, {}, known(given, [*leaves(model), *shorthands], shorthands), usual_task)

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
        return dict(flat(self._validated(given).model_dump(mode="json")))

    def _validated(self, given: Mapping[str, Given]) -> WorkloadConfig:
        """Raises BadSetting (78), also for a setting of another model."""
        keys, task = leaves(self.model), given.get("task", self.base.get("task"))
        for one in given.values():
            if one.key not in keys:
                sentence = f"Task {task.value if task else self.usual_task} has no setting {one.key} ({one.origin})."
                raise BadSetting(Fault.UNKNOWN, sentence, nearest(one.key, keys))
        return validate(self.model, {**self.base, **given})


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
        return self._with(self.training.on({key: Given(key, value, origin) for key, value in base.items()}))

    def of(
        self, model: type[OtherConfig], shorthands: Shorthands, usual_task: str, only: Sequence[str] | None = None
    ) -> Resolved[OtherConfig]:
        """The same settings for another model; `on` then brings their base. only: of the training settings, only these.

        Raises BadSetting (78).
        """
        return self._with(self.training.of(model, shorthands, usual_task, only))

    def _with(self, training: Training[OtherConfig]) -> Resolved[OtherConfig]:
        own = {key: where for key, where in self.origins.items() if key not in self.training.origins}
        return Resolved(self.settings, training, self.folder, own | training.origins, self.usual_project)

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

    def texts(self) -> Iterator[str]:
        """The values of the session's settings and of the given ones of the workload, not validated."""
        yield from (str(value) for _, value in flat(self.settings.model_dump(mode="json")))
        yield from (str(one.value) for one in self.training.given.values())

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
    shorthands: Shorthands | None = None,
    foreign: Sequence[str] = (),
    strange: Sequence[str] = (),
) -> Resolved[WorkloadConfig]:
    """Merge all sources, later ones winning, and validate.

    `default_task` is used if no task is given, `defaults` holds a task's defaults for the relay's settings, by dotted
    key. `file` defaults to the one in `folder`, if there is one. `flags` holds dotted keys from options; None is unset.
    `implied` follows from other settings and overrides only the file. With `joins`, the workload's settings are
    validated at their first use, because a run that exists may bring another base for them. If `model` ignores what it
    does not know, so does this in the file, which may hold the settings of another model. `foreign` are the settings of
    the model that the file is for, if it is not this one: its lines of them are left out. `strange` are settings of
    other models, which only a run that exists may bring: they are refused when the configuration is used.

    Raises BadSetting and BadName (78) that name the key, its fault and its origin.
    """
    keys = [*leaves(Settings), *leaves(model), *(shorthands or {})]
    found = file or configuration_in(folder)
    strict = model.model_config.get("extra") != "ignore"
    removed = deleted(overrides, keys)
    given = [
        *(
            g
            for g in (from_file(found) if found else [])
            if g.key not in removed and g.key not in foreign and (strict or g.key in keys)
        ),
        *(Given(key, value, "implied by the command") for key, value in (implied or {}).items()),
        *(g for g in from_environment(environ, [*leaves(Settings), "task"]) if g.key not in removed),
        *from_command_line([text for text in overrides if not text.startswith("~")]),
        *(Given(k, str(v), "command line option") for k, v in (flags or {}).items() if v is not None),
    ]
    merged = known({g.key: g for g in given}, [*keys, *strange], shorthands or {})
    task = str(merged["task"].value) if "task" in merged else default_task
    usual = defaults(task)
    merged = {k: Given(k, v, DEFAULT) for k, v in usual.items()} | merged
    ours = set(leaves(Settings))
    own = {k: g for k, g in merged.items() if k in ours}
    base = {k: Given(k, v, f"preset {task}") for k, v in flat(preset(task).model_dump(mode="json"))}
    if "task" not in merged:
        base["task"] = Given("task", task, DEFAULT)
    training = Training(model, base, {k: g for k, g in merged.items() if k not in ours}, default_task)
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


def configuration_in(folder: Path) -> Path | None:
    """The configuration file of a folder, also a link that leads nowhere, which reading it reports; None without."""
    path = folder / FILE_NAME
    return path if path.is_file() or path.is_symlink() else None


def known(given: Mapping[str, Given], keys: Sequence[str], shorthands: Shorthands) -> dict[str, Given]:
    """The given settings, each shorthand replaced by those for which it stands.

    Raises BadSetting (78) for an unknown setting, an unknown value of a shorthand, and a setting that contradicts one.
    """
    found = {key: one for key, one in given.items() if key not in shorthands}
    for one in given.values():
        check_known(one, keys)
    for key in given.keys() & shorthands.keys():
        name, values = given[key], shorthands[key]
        stands_for = values.get(str(name.value))
        if stands_for is None:
            sentence = f"{key}: must be one of {', '.join(values)}, not {name.value!r} ({name.origin})."
            raise BadSetting(Fault.INVALID, sentence, nearest(str(name.value), list(values)))
        for other, value in stands_for.items():
            mine = found.get(other)
            if mine is not None and not same(mine.value, value):
                raise BadSetting(
                    Fault.INVALID,
                    f"{key}={name.value} ({name.origin}) stands for {other}={value}, and {other}={mine.value} is given "
                    f"too ({mine.origin}).",
                )
            found[other] = replace(name, key=other, value=value)
    return found


def same(one: Value, other: Value) -> bool:
    """Whether two texts are the same value: 1 and 1.0 are."""
    try:
        return float(str(one)) == float(str(other))
    except ValueError:
        return one == other


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
