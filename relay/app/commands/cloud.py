"""`cloud`: time and cost of a task on rented machines, files that start it there, and the table of prices."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from relay.app.cloud import prices, rates, recipes
from relay.app.cloud.estimates import Estimate, Tables, Work, estimate, estimates
from relay.app.cloud.figures import Figure, Mark
from relay.app.cloud.machines import Machine, Machines, shipped
from relay.app.cloud.table import Listed
from relay.app.commands.cloudwork import own_rates, phases_of, works_of
from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say, speaks_utf8
from relay.app.commands.stores import accounts, once
from relay.app.handout import hand_out
from relay.app.messages.wording import counted
from relay.app.providers import shipped as providers
from relay.app.redact import output, redact, secrets_of
from relay.app.renting import AnAccountElsewhere, NoPrice, SecretInAddress
from relay.app.terminal.mishaps import explain
from relay.app.terminal.paragraphs import terminal_width
from relay.core.errors import BadConfig, RelayError, UsageError
from relay.people.policy import NOTEBOOKS, check_supported
from storage.base import StoreError
from storage.packages import CODE
from storage.regular import regular_or_piped

What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[STUDY|PHASE|TASK]... [KEY=VALUE]...",
        help="What is trained, by default the guide's two phases; settings.",
        show_default=False,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Argument(metavar="MACHINE PHASE [KEY=VALUE]...", help="Such as 8xH100 fast; settings.", show_default=False),
]
CloudOption = Annotated[str | None, typer.Option("--cloud", help="Prices of this cloud alone.", show_default=False)]
PriceOption = Annotated[
    float | None, typer.Option("--price", help="Dollars an hour that you pay, for one machine.", show_default=False)
]
PricesOption = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="Prices that `cloud prices` wrote.", show_default=False),
]
Warm = Annotated[bool, typer.Option("--warm", help="A restarted spot machine has packages and data on its disk.")]
SpotHours = Annotated[float | None, typer.Option(help="Hours between two ends of a spot machine.", show_default=False)]
BudgetOption = Annotated[
    float | None, typer.Option(help="Minutes of a session; default: room for the whole task.", show_default=False)
]


class Form(Enum):
    """The form of the table."""

    text = "text"
    csv = "csv"


# --- Its data -------------------------------------------------------------------------------------------------------


def tables_of(
    price: float | None,
    cloud: str | None,
    file: Path | None,
    cwd: Path,
    warm: bool = False,
    spot_hours: float | None = None,
) -> Tables:
    """The data files, with what the options change. Raises UsageError (2), BadConfig (78)."""
    _check_positive(("--price", price), ("--spot-hours", spot_hours))
    known = prices.parse(_text(cwd / file), file.name) if file else prices.shipped()
    between = None if spot_hours is None else Figure(spot_hours, spot_hours, Mark.GUESSED, "given by --spot-hours")
    known = known.of_cloud(cloud) if cloud else known
    return Tables(shipped(), known, rates.shipped(), price, warm, between)


def _check_positive(*given: tuple[str, float | None]) -> None:
    for option, value in given:
        if value is not None and not 0 < value < 1e6:
            raise UsageError(f"{option} takes a positive number below a million, not {value:g}.")


def _text(path: Path) -> str:
    try:
        return regular_or_piped(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text"
        raise BadConfig(f"Cannot read {path.name}: {why}.") from error


def today(app: App) -> datetime.date:
    """By this machine's clock."""
    return datetime.datetime.fromtimestamp(app.runtime.wall(), datetime.UTC).date()


# --- Commands -------------------------------------------------------------------------------------------------------


@subcommand("run account config")
def list_machines(
    call: Call,
    what: What = None,
    machine: Annotated[
        list[str] | None, typer.Option("--machine", help="Such as 1xH200; may be repeated.", show_default=False)
    ] = None,
    price: PriceOption = None,
    cloud: CloudOption = None,
    price_file: PricesOption = None,
    warm: Warm = False,
    spot_hours: SpotHours = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs on which the steps of --run or --account were trained.")] = 1,
    form: Annotated[Form, typer.Option("--format", help="Form of the table; --json prints all of it.")] = Form.text,
) -> Answer:
    """Hours and dollars of a task on rented machines, each marked as measured, scaled or guessed."""
    tables = tables_of(price, cloud, price_file, call.app.cwd, warm, spot_hours)
    machines = [tables.machines.machine(name) for name in machine or tables.machines.guide.machines]
    if price is not None and len(machines) != 1:
        raise UsageError("--price is the price of one machine. Name it with --machine.")
    works = works_of(call, what or ())
    if call.flags.get("run") or call.flags.get("account"):
        own = tables.rates.with_own(own_rates(call, gpus))
        tables = Tables(tables.machines, tables.prices, own, tables.price, tables.warm, tables.between)
    elif gpus != 1:
        raise UsageError("--gpus is for steps that were trained: name their --run or --account.")
    listed = Listed.of(estimates(works, machines, tables), tables, today(call.app))
    text = listed.csv() if form is Form.csv else listed.text(terminal_width(), speaks_utf8())
    return Answer(listed.document(), text)


@dataclass(frozen=True)
class _Start:
    """What all files of a call share."""

    call: Call
    tables: Tables
    variables: Mapping[str, str]
    """The project, if it is not the usual one, and the stores."""
    secrets: Sequence[str]
    account: str | None
    budget: float | None
    code: str
    ephemeral: bool

    def recipe(self, machine: Machine, work: Work) -> recipes.Recipe:
        """Raises NoPrice, ShortBudget and Misfit (78)."""
        one = estimate(work, machine, self.tables)
        if one.price is None:
            raise NoPrice(machine.name, spot=False)
        warm = self.tables.machines.starts["warm"].figure.times(60).high
        run, account = self.call.flags.get("run"), self.account
        return recipes.Recipe(
            one,
            {**self.variables, **({"RELAY_EPHEMERAL": "1"} if self.ephemeral else {})},
            account,
            str(run or work.task),
            recipes.budget_for(one, warm, self.budget),
            today(self.call.app),
            self.secrets,
            self.code,
            self.remarks(one),
        )

    def remarks(self, one: Estimate) -> list[str]:
        """Warnings about its prices."""
        listed = Listed([one], [], self.tables, today(self.call.app))
        return listed.warnings()


@subcommand("run account config ephemeral")
def recipe(
    call: Call,
    what: Where = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A shell script (.sh) or a SkyPilot task (.yaml).", show_default=False),
    ] = None,
    all_in: Annotated[
        Path | None,
        typer.Option(
            "--all", metavar="DIR", help="Both forms for the guide's machines and phases.", show_default=False
        ),
    ] = None,
    budget_minutes: BudgetOption = None,
    price: PriceOption = None,
    cloud: CloudOption = None,
    price_file: PricesOption = None,
    code: Annotated[str, typer.Option(help="Address of the project's repository.", show_default=False)] = CODE,
) -> Answer:
    """Write a file that you start to train a task on a rented machine. Starts nothing and needs no login."""
    given, names = [w for w in what or () if "=" in w], [w for w in what or () if "=" not in w]
    if (all_in is None) == (to is None) or len(names) != (2 if all_in is None else 0):
        raise UsageError("Name a machine, a phase and --to FILE, such as 8xH100 fast --to train.sh; or only --all DIR.")
    if to is not None and to.suffix not in (".sh", ".yaml"):
        raise UsageError("--to names a shell script (.sh) or a SkyPilot task (.yaml).")
    _check_positive(("--budget-minutes", budget_minutes))
    start = _prepared(call, tables_of(price, cloud, price_file, call.app.cwd), given, budget_minutes, code)
    if to is not None:
        work = only(works_of(call, [names[1], *given]), names[1])
        made = start.recipe(start.tables.machines.machine(names[0]), work)
        files = {call.app.cwd / to: made}
    else:
        assert all_in is not None
        works = works_of(call, [*phases_of(call.app), *given])
        files = {
            call.app.cwd / all_in / f"train_{machine.name}_{work.name}{suffix}": start.recipe(machine, work)
            for machine in start.tables.machines.of_guide
            for work in works
            for suffix in (".sh", ".yaml")
        }
    return _written(files)


def only(works: Sequence[Work], name: str) -> Work:
    """A recipe trains one task. Raises UsageError (2) for a study."""
    if len(works) == 1:
        return works[0]
    raise UsageError(
        f"{name} is a study of {len(works)} experiments. A recipe trains one task: `study run` trains them."
    )


def _prepared(call: Call, tables: Tables, given: Sequence[str], budget: float | None, code: str) -> _Start:
    """Checks store and account. Raises NoLastingStore, SecretInAddress, NotOneLine (78), PolicyRefused (77)."""
    resolved = call.app.settle([word for word in given if word.startswith("storage.")], call.config, call.flags, False)
    store, ephemeral = resolved.addresses, bool(call.flags.get("ephemeral"))
    recipes.check_store(store, ephemeral)
    hidden = secrets_of(call.app.environ) | call.app.secrets
    if any(output(address, hidden) != address for address in (*store.values(), code)):
        raise SecretInAddress
    recipes.check_lines([*given, *resolved.variables.values(), code])
    account = resolved.given_account
    if account is not None and store:
        _check_account(call, resolved, account)
    secrets = recipes.secrets_for(store)
    return _Start(call, tables, resolved.variables, secrets, account, budget, code, ephemeral)


def _check_account(call: Call, resolved: Any, account: str) -> None:
    """Raises Unsupported and AnAccountElsewhere (77) if the account's provider does not rent this machine out."""
    try:
        entry = accounts(once(call.app, resolved)).find(account)
    except (RelayError, StoreError) as error:
        say(f"The store was not read: {redact(explain(error)[1], secrets_of(call.app.environ))}")
        return
    if entry is None or entry.account is None:
        return
    provider = providers().named(entry.account.provider)
    check_supported(provider)
    if provider.name in NOTEBOOKS:
        raise AnAccountElsewhere(account, provider)


def _written(files: Mapping[Path, recipes.Recipe]) -> Answer:
    """Write the files and describe them."""
    rows, lines = [], []
    for path, one in files.items():
        text = recipes.sky(one) if path.suffix == ".yaml" else recipes.shell(one)
        handed = hand_out(path, text.encode(), "Choose another place with --to or --all.", parents=True)
        if path.suffix == ".sh":
            path.chmod(0o755)
        rows.append({**handed, "budget_minutes": one.budget, "secrets": list(one.secrets), **one.estimate.document()})
        lines.append(f"{path.name}: {one.head()[2]}")
    remarks = dict.fromkeys(remark for one in files.values() for remark in one.remarks)
    how = "Start a .sh on the machine that you rented, a .yaml with `sky jobs launch` from the project's folder."
    return Answer({"schema": "relay.cloud-recipe/1", "files": rows}, "\n".join([*lines, *remarks, how]))


@subcommand("")
def show_prices(
    call: Call,
    catalog: Annotated[
        list[Path] | None,
        typer.Option(
            "--catalog", metavar="FILE", help="A file of SkyPilot's catalog; may be repeated.", show_default=False
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Commit or address of the catalog.", show_default=False)] = None,
    date: Annotated[
        str | None, typer.Option(help="Day of the catalog as YYYY-MM-DD, or unknown.", show_default=False)
    ] = None,
    cloud: CloudOption = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the prices.", show_default=False)
    ] = None,
) -> Answer:
    """Show the table of prices, or write one from catalog files. A file's cloud is the name of its folder."""
    machines: Machines = shipped()
    if not catalog:
        if to or source or date:
            raise UsageError("--source, --date and --to are for a catalog: name its file with --catalog.")
        known = prices.shipped().of_cloud(cloud) if cloud else prices.shipped()
        return Answer({"schema": "relay.cloud-prices/1", **known.model_dump(mode="json")}, known.text().rstrip())
    if not (to and source and date):
        raise UsageError("A catalog needs --source COMMIT, --date YYYY-MM-DD (or unknown) and --to FILE.")
    path = call.app.cwd / to
    known = prices.parse(_text(path), to.name) if path.exists() else prices.Prices()
    names = [cloud or (call.app.cwd / file).absolute().parent.name for file in catalog]
    if len(set(names)) < len(names):
        raise UsageError("Two files are of one cloud. A file's folder names its cloud; read them in two folders.")
    for name, file in zip(names, catalog, strict=True):
        found = prices.read_catalog(call.app.cwd / file, name, machines.cards)
        about = prices.Catalog(cloud=name, source=f"{source}, {name}/{file.name}", date=_day(date, call.app))
        known = known.with_catalog(about, found)
    written = hand_out(path, known.text().encode(), "Choose another place with --to.")
    clouds = [one.cloud for one in known.catalogs]
    text = f"{to} holds {counted(len(known.prices), 'price')} of {', '.join(clouds)}."
    return Answer({"schema": "relay.cloud-prices/1", **written, "clouds": clouds, "prices": len(known.prices)}, text)


def _day(text: str, app: App) -> datetime.date | None:
    """Raises UsageError (2) for a day that is none, or that has not come."""
    if text == "unknown":
        return None
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--date takes YYYY-MM-DD or unknown, not {text!r}.") from error
    if day > today(app):
        raise UsageError(f"--date {day} has not come yet.")
    return day
