"""Files that start a task on a rented machine: a shell script for the machine itself, and a SkyPilot task.

Both do what everybody does: they run multi_account_workflow.sh with an account, a run, a store and a budget.
"""

from __future__ import annotations

import datetime
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relay.app.cloud.estimates import Estimate
from relay.app.messages.wording import counted, harmless, listing, printable
from relay.app.renting import NoLastingStore, NotOneLine, ShortBudget
from relay.core.runs.opening import of_one_machine
from storage.kinds import credentials

ROOM = 1.25
"""A recipe's budget, as a multiple of the longest training that is expected."""
USED = 0.9
"""A session that ends after this part of its budget has used it: it leaves room for its last commit."""
SPENT = 1
"""Exit code of a SkyPilot task whose budget is used: no new machine is started."""


@dataclass(frozen=True)
class Recipe:
    """Everything that a file says."""

    estimate: Estimate
    store: Mapping[str, str]
    """Addresses by environment variable."""
    account: str | None
    """None if the person who starts it names the account."""
    run: str
    budget: int
    """Minutes of a session."""
    today: datetime.date
    secrets: Sequence[str]
    """Names of environment variables that the store needs."""
    code: str
    """Address of the project's repository; empty if it is not known."""
    remarks: Sequence[str]
    """Warnings about its numbers."""

    @property
    def environ(self) -> dict[str, str]:
        """Of a session, without the account."""
        split = self.estimate.split
        cap = {} if split.cap is None else {"TRM_MEMORY_GB": f"{math.floor(split.cap / 1e6) / 1000:.3f}"}
        own = {"RUN_NAME": self.run, **self.store, "RELAY_TASK": self.estimate.work.task}
        return {
            **own,
            "RELAY_BUDGET_MINUTES": str(self.budget),
            "RELAY_PROCESSES": str(self.estimate.machine.gpus),
        } | cap

    @property
    def command(self) -> str:
        """The one command."""
        words = [word for word in self.estimate.work.words if not word.startswith("task=")]
        return shlex.join(["bash", "multi_account_workflow.sh", *words])

    def head(self) -> list[str]:
        """Its purpose, time and cost, without a comment's sign."""
        one, work = self.estimate, self.estimate.work
        costs = [
            f"${figure.text()} {words}"
            for figure, words in ((one.on_demand, "on demand"), (one.spot, "on spot with restarts"))
            if figure
        ]
        split = one.split
        parts = counted(split.rows, "row"), counted(split.accumulation, "part"), counted(one.machine.gpus, "GPU")
        lines = [
            f"{one.machine.name}, {work.name}: task {work.task}, {counted(work.steps, 'step')} of "
            f"{counted(work.batch, 'row')} ({' x '.join(parts)}).",
            f"Written on {self.today} by `cloud recipe`; write it again for new prices. Settings: {work.hash[:16]}.",
            f"Expected: {one.hours.text()} h of training, {one.setup.times(60).text()} min of set-up, "
            f"{listing(costs)}. (~ scaled, ? guessed)",
            f"Time of a step: {one.step.basis}.",
            f"A session ends after {self.budget} min at most, which installing and preparing data come on top of.",
            *self.remarks,
        ]
        return [printable(line) for line in lines]


def secrets_for(addresses: Mapping[str, str]) -> list[str]:
    """Names of the credentials that stores need, of the best way to sign in."""
    needed = credentials(address.partition(":")[0] for address in addresses.values())
    return list(dict.fromkeys(name for groups in needed.values() for name in groups[0].needed))


def check_store(addresses: Mapping[str, str], ephemeral: bool) -> None:
    """Raises NoLastingStore (78) if a rented machine would take the run with it, BadAddress for no store at all."""
    passing = [address for address in addresses.values() if of_one_machine(address)]
    if not ephemeral and (passing or not addresses):
        raise NoLastingStore(passing[0] if passing else None)


def check_lines(values: Iterable[str]) -> None:
    """Raises NotOneLine (78) for a value that would end a line of a recipe, or that a YAML file cannot hold."""
    for value in values:
        if "\n" in value or harmless(value) != value:
            raise NotOneLine(value)


def budget_for(one: Estimate, start: float, asked: float | None) -> int:
    """Minutes of a session. start: minutes that a start may take. Raises ShortBudget (78)."""
    if asked is None:
        return math.ceil(ROOM * one.hours.high * 60 + start)
    if asked < start:
        raise ShortBudget(asked, start)
    return math.ceil(asked)


def shell(recipe: Recipe) -> str:
    """A script for the rented machine. It exits with the session's own code: 75 means start it again."""
    account = f"ACCOUNT_ID=${{ACCOUNT_ID:-{shlex.quote(recipe.account)}}}" if recipe.account else None
    names = "\n".join(f"#   export {name}=..." for name in recipe.secrets)
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {line}" for line in recipe.head()),
        *(["# Before you start it, set what the store needs (this file holds no secret):", names] if names else []),
        "# Exit code 75: the budget is used and the run is saved. Start it again, here or on another machine.",
        "set -euo pipefail",
        f"export {account}" if account else ': "${ACCOUNT_ID:?Set it to your registered account}"; export ACCOUNT_ID',
        *(f"export {name}=${{{name}:-{shlex.quote(value)}}}" for name, value in recipe.environ.items()),
        "",
        "folder=${1:-trm-relay}   # the project's code, if this is not its folder",
        "[[ ! -e multi_account_workflow.sh ]] || folder=.",
        *_clone(recipe.code),
        'cd "$folder"',
        "echo 'This machine costs money until you delete it at its provider.' >&2",
        f"exec {recipe.command}   # a signal to this script is one to the session",
    ]
    return "\n".join(lines) + "\n"


def _clone(code: str) -> list[str]:
    if code:
        return [
            f'[[ -e $folder/multi_account_workflow.sh ]] || git clone -q --depth 1 -- {shlex.quote(code)} "$folder"'
        ]
    return [
        "[[ -e $folder/multi_account_workflow.sh ]] || {",
        "  echo 'The code of the project is not here. Copy its folder to this machine, and name it as first word.' >&2",
        "  exit 78",
        "}",
    ]


def sky(recipe: Recipe) -> str:
    """A managed job of SkyPilot, started from the project's folder."""
    machine = recipe.estimate.machine
    card = machine.card.catalog[0]
    name = f"{machine.name}-{recipe.estimate.work.name}".lower().replace("_", "-")
    environ = {"ACCOUNT_ID": recipe.account, **recipe.environ}
    given = [f"--env ACCOUNT_ID={recipe.account or 'YOURS'}"] if not recipe.account else []
    given += [f"--secret {name}" for name in recipe.secrets]
    lines = [
        *(f"# {line}" for line in recipe.head()),
        f"# From the project's folder: {' '.join(['sky jobs launch', *given, 'THIS_FILE'])}",
        f"name: train-{name}",
        "workdir: .",
        "resources:",
        f"  accelerators: {card}:{machine.gpus}",
        "  use_spot: true",
        "  job_recovery:",
        "    recover_on_exit_codes: [75]   # handed over: the machine goes, the run goes on",
        "  autostop:",
        "    idle_minutes: 10",
        "    down: true",
        "envs:",
        *(f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in environ.items()),
        *(["secrets:", *(f"  {name}: null" for name in recipe.secrets)] if recipe.secrets else []),
        "setup: bash multi_account_workflow.sh setup",
        "run: |",
        "  code=0",
        f"  {recipe.command} || code=$?",
        f'  if [ "$code" -eq 75 ] && [ "$SECONDS" -ge $((RELAY_BUDGET_MINUTES * {round(60 * USED)})) ]; then',
        '    echo "The budget is used and the run is saved. Launch this file again to go on." >&2',
        f"    code={SPENT}",
        "  fi",
        '  exit "$code"',
    ]
    return "\n".join(lines) + "\n"
