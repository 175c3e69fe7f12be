"""The settings of a session: defaults < file < environment < command line, validated; knows nothing of what trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from relay.errors import BadConfig
from relay.names import FRAGMENT, check_name
from relay.origins import Given, Value, deleted, from_command_line, from_environment, from_file, hint, variable
from relay.state import MAX_RETAINED, Name, Step

FILE_NAME = "config_multi_account.yaml"
DEFAULT_STORE = "relay_store"
DEFAULT_TASK = "sudoku4"
NAMES = ("project", "run", "account")

Minutes = Annotated[float, Field(gt=0, le=60 * 24 * 366)]
Count = Annotated[int, Field(ge=0)]


def listed(value: object) -> object:
    """A text with commas as the list that it means: environment variables and options are texts."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Section(BaseModel):
    """Immutable; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Storage(Section):
    """Where the shared folder is. The two overrides may name different stores."""

    url: str | None = None
    """Address of the store; unset means the folder relay_store where the command runs."""
    ledger_url: str | None = None
    checkpoint_url: str | None = None


class Checkpointing(Section):
    """When a commit is due (whichever comes first) and which commits stay (P8)."""

    every_steps: Annotated[int, Field(gt=0)] = 500
    every_minutes: Minutes = 10.0
    keep_last: Annotated[int, Field(ge=2, le=MAX_RETAINED - 8)] = 3
    """The ledger holds few checkpoints; the best, every Nth and damaged ones need room too."""
    keep_every: Count = 0
    """Also keep every checkpoint whose step is a multiple of this; 0 keeps none."""


class Evaluation(Section):
    """Validation of the EMA weights during training; it chooses the best checkpoint."""

    every_commits: Count = 4
    """0 never evaluates."""
    rows: Annotated[int, Field(gt=0)] = 128


class Lease(Section):
    """How long a silent session keeps the run (P5)."""

    ttl_s: Annotated[float, Field(gt=0, le=86400)] = 180.0


class Cache(Section):
    """Compiled code in the store. It is executable: this machine alone may allow it, no run and no store can (P11)."""

    allow: bool = False


class Settings(Section):
    """Everything the relay itself can be told. None of it decides the state at step n, so all may change any time."""

    project: Name = "sudoku_pretrain_multiaccount"
    run: Name = "sudoku_rotation"
    account: Name = "account_1"
    storage: Storage = Storage()
    target_steps: Annotated[Step, Field(gt=0)] | None = None
    """Unset means the run's own target, and for a new run the task's."""
    budget_minutes: Minutes | None = None
    """From process start to process exit; unset means no limit of our own."""
    session_limit_minutes: Minutes | None = None
    """The provider's limit, from machine start; unset means what is known of this environment."""
    checkpoint: Checkpointing = Checkpointing()
    evaluation: Evaluation = Evaluation()
    lease: Lease = Lease()
    cache: Cache = Cache()
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    ephemeral: bool = False
    """Allow a local store on a disk that does not outlive this machine."""
    spot: Literal["auto", "off", "aws", "gcp", "azure"] = "auto"
    """Whose notices of a spot machine to watch for; auto: those of the cloud that this machine's firmware names."""
    competition: Name | None = None
    """Slug of the competition that the run is for: then only accounts that confirmed to be of its one team train."""
    load_checkpoint: str | None = None
    """A file of weights that a new run begins from, as `import` does it; a run that has begun must be of this file."""
    trackers: Annotated[tuple[Literal["wandb", "tensorboard", "trackio"], ...], BeforeValidator(listed)] = ()
    """Trackers that a session feeds with what the ledger says, and `track` without one; may be a text with commas."""
    tensorboard_dir: str = "tensorboard"
    """Folder for TensorBoard's event files."""
    data_dir: str = "data"
    sync_dir: str = "sync"


WorkloadConfig = TypeVar("WorkloadConfig", bound=BaseModel)


@dataclass(frozen=True)
class Resolved(Generic[WorkloadConfig]):
    """Validated settings, the workload's configuration, and where each value came from."""

    settings: Settings
    workload: WorkloadConfig
    folder: Path
    """Relative paths start here: where the command runs."""
    origins: dict[str, str] = field(default_factory=dict)
    """By dotted key; keys that nobody set are absent."""

    def path(self, text: str) -> Path:
        """An absolute path."""
        return (self.folder / Path(text).expanduser()).absolute()

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
        """Address of the store where nobody named one."""
        return self._address(DEFAULT_STORE)

    @property
    def addresses(self) -> dict[str, str]:
        """The stores as somebody named them, by environment variable: what other people need to set too."""
        named = self.settings.storage.model_dump().items()
        return {variable(f"storage.{key}"): address for key, address in named if address}

    def _url(self) -> str:
        return self.settings.storage.url or DEFAULT_STORE

    def _address(self, url: str) -> str:
        """A plain path as a file:// address; the store's identity stays behind it."""
        path, mark, identity = url.partition(FRAGMENT)
        return url if "://" in url else self.path(path).as_uri() + mark + identity

    def values(self) -> Iterator[tuple[str, Any, str]]:
        """(dotted key, value, origin) of every setting."""
        for model in (self.settings, self.workload):
            for key, value in flat(model.model_dump(mode="json")):
                yield key, value, self.origins.get(key, "default")


def resolve(
    preset: Callable[[str], WorkloadConfig],
    model: type[WorkloadConfig],
    environ: Mapping[str, str],
    folder: Path,
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    implied: Mapping[str, str] | None = None,
) -> Resolved[WorkloadConfig]:
    """Merge all sources, later ones winning, and validate.

    `file` defaults to the one in `folder`, where there is one; `flags` holds dotted keys from options, None is unset;
    `implied` follows from other settings and is stronger than the file alone.

    Raises BadConfig (78) naming the key, what is wrong with it and where it was written.
    """
    keys = [*leaves(Settings), *leaves(model)]
    found = file or (folder / FILE_NAME if (folder / FILE_NAME).is_file() else None)
    removed = deleted(overrides, keys)
    given = [
        *(g for g in (from_file(found) if found else []) if g.key not in removed),
        *(Given(key, value, "what the command implies") for key, value in (implied or {}).items()),
        *(g for g in from_environment(environ, [*leaves(Settings), "task"]) if g.key not in removed),
        *from_command_line([text for text in overrides if not text.startswith("~")]),
        *(Given(k, str(v), "command line option") for k, v in (flags or {}).items() if v is not None),
    ]
    merged = {g.key: g for g in given}
    for g in merged.values():
        _check_known(g, keys)
    task = merged.get("task", Given("task", DEFAULT_TASK, "default"))
    base = {k: Given(k, v, f"preset {task.value}") for k, v in flat(preset(str(task.value)).model_dump(mode="json"))}
    known = set(leaves(Settings))
    relay_part = {k: g for k, g in merged.items() if k in known}
    workload_part = {**base, **{k: g for k, g in merged.items() if k not in known}, "task": task}
    return Resolved(
        settings=_validate(Settings, relay_part),
        workload=_validate(model, workload_part),
        folder=folder.absolute(),
        origins={k: g.origin for k, g in (relay_part | workload_part).items()},
    )


def leaves(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of all plain fields of a model, nested models opened."""
    found = []
    for name, info in model.model_fields.items():
        nested = _submodel(info.annotation)
        found.extend(leaves(nested, f"{prefix}{name}.") if nested else [prefix + name])
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of a nested mapping."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _submodel(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _check_known(given: Given, keys: Sequence[str]) -> None:
    if given.key in keys:
        return
    inside = [k for k in keys if k.startswith(given.key + ".")]
    if inside:
        raise BadConfig(
            f"{given.key} is a group of settings ({given.origin}). Set one of {', '.join(inside[:6])} instead."
        )
    raise BadConfig(f"Unknown setting {given.key} ({given.origin}).{hint(given.key, keys)}")


def _validate(model: type[WorkloadConfig], given: Mapping[str, Given]) -> WorkloadConfig:
    tree: dict[str, Any] = {}
    for key, item in given.items():
        *parents, last = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = _value(model, key, item.value)
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise BadConfig(_explain(error, given)) from error


def _value(model: type[BaseModel], key: str, value: Value) -> Value:
    """A null where null means nothing is the text 'null' (a run may be called so)."""
    return "null" if value is None and not _accepts_none(model, key) else value


def _accepts_none(model: type[BaseModel], key: str) -> bool:
    *parents, last = key.split(".")
    for parent in parents:
        model = _submodel(model.model_fields[parent].annotation) or model
    annotation = model.model_fields[last].annotation
    return get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation)


def _explain(error: ValidationError, given: Mapping[str, Given]) -> str:
    parts = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(p) for p in problem["loc"])
        item = given.get(key)
        if problem["type"] == "string_pattern_mismatch" and key in NAMES:
            _refuse_name(key, item)
        got = f", not {item.value!r} ({item.origin})" if item else ""
        parts.append(f"{key or 'The configuration'}: {_wish(problem['msg'])}{got}.")
    return " ".join(parts) + " Correct it and run the same command again."


def _refuse_name(key: str, item: Given | None) -> None:
    try:
        check_name(key, str(item.value) if item else "")
    except BadConfig as error:
        raise BadConfig(f"{error} It was given by {item.origin if item else 'nobody'}.") from None


def _wish(message: str) -> str:
    """Pydantic's message without what the value itself shows."""
    wish = message.removeprefix("Input ").removeprefix("Value error, ").partition(", unable to parse")[0]
    return wish.replace("should be", "must be")
