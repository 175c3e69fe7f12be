"""The functions of a notebook's cells: set up, settings, one session, curves, releasing the machine."""

# Before `set_up` only the standard library is installed, so packages are imported where they are used.

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from relay.app.machine.env import Machine
from relay.app.machine.secretchain import ASKED, OWNER
from relay.app.notebooks.cellrun import CellView, displays, follow, page
from relay.core.clock import RealRuntime, Runtime
from relay.core.errors import Exit, RelayError
from storage.packages import in_cells, is_checkout

if TYPE_CHECKING:
    from relay.app.notebooks.cellstore import Opened

NOTICE_S = 5
"""Seconds between the announcement and the release: time to interrupt it, and for the notebook to save the page."""


_IDS = re.compile(r"account_\d+")


def unusable(name: str) -> str:
    """Return why a text is not a person's name, with the fix; empty if it may be one."""
    if not name:
        return (
            "YOUR_NAME is empty. Type your name or a pseudonym in cell 2, then run the cell again. The others see it, "
            "and it names your account."
        )
    if _IDS.fullmatch(name):
        return (
            f"{name} is the id of an account, not a name. Type your name or a pseudonym in YOUR_NAME of cell 2, then "
            f"run the cell again."
        )
    return ""


def why_kept(ended: Mapping[str, Any] | None, machine: Machine, unsent: Sequence[str]) -> str:
    """Return why the machine must be kept; empty if it can be released. `ended`: relay.run/1 of its last session."""
    if machine.provider != "colab":
        return f"only Colab's is given back from a cell (this is {machine.provider}). Stop it where you started it."
    if ended is None:
        return "no session of this notebook has ended as planned."
    if ended.get("exit_code") not in (Exit.OK, Exit.HANDOFF):
        return f"the session ended with {ended.get('exit_code')}."
    if ended.get("unsent"):
        return f"a checkpoint is here only ({ended['unsent']}); run the training cell again, which sends it."
    return unsent[0] if unsent else ""


def release(runtime: Runtime, tell: Callable[[str], None]) -> None:
    """Announce the release, wait, and release the machine; an interrupt during the wait keeps it."""
    try:
        from google.colab import runtime as colab
    except ImportError:
        tell("The machine is kept: this Python has no google.colab.runtime.")
        return
    tell(f"Everything is in the store. The machine is given back in {NOTICE_S} s; interrupt this cell to keep it.")
    try:
        runtime.sleep(NOTICE_S)
    except KeyboardInterrupt:
        tell("The machine is kept.")
        return
    colab.unassign()


CHECKOUT = Path(__file__).parents[3]
"""The clone of the project, or the folder of installed packages."""
ENDED = (Exit.OK, Exit.HANDOFF)
"""Exit codes after which everything is in the store."""
GO_ON: dict[int, str] = {
    Exit.LEASE_HELD: "Run this cell again later.",
    Exit.UPLOAD_FAILED: "Do not delete this machine. Run this cell again, which sends the checkpoint first.",
    Exit.SIGINT: "Run this cell again to continue from there.",
    Exit.SIGTERM: "Run this cell again to continue from there.",
}
"""The fix in the notebook, by exit code."""
OURS = "Choose EARLIER in this cell, 'attach' or 'replace', and run it again."
"""The fix if the run is held by an earlier session of this machine."""


class Stopped(Exception):
    """Stops a cell and the cells below it; IPython shows one paragraph instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return the text that IPython shows."""
        return [str(self)]


@dataclass
class Notebook:
    """One person's notebook, from the first cell to the last."""

    folder: Path = CHECKOUT
    environ: MutableMapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    runtime: Runtime = field(default_factory=RealRuntime)
    opened: Opened | None = field(default=None, repr=False)
    """The store and the settings, after the settings' cell."""
    ended: dict[str, Any] | None = None
    """End of this notebook's newest session (relay.run/1)."""
    typed: dict[str, str] = field(default_factory=dict, repr=False)
    """Variables that the last run of the settings' cell set."""

    @property
    def place(self) -> Path:
        """Where commands run and files go: the checkout, or the notebook's own folder if the package is installed."""
        return Path.cwd() if self.folder == CHECKOUT and not is_checkout() else self.folder

    def set_up(self) -> None:
        """Install missing packages and make the data; keeps the installed torch and numpy. Raises Stopped.

        An installed package has no script for that, and its installer has brought the packages: only data is made.
        """
        script, bash = self.folder / "multi_account_workflow.sh", shutil.which("bash") or "bash"
        code, _ = self._follow([bash, str(script), "setup"]) if script.is_file() else self._relay("prepare")
        if code:
            raise Stopped(
                f"Setup failed with exit code {code}. Correct the cause shown above, then run this cell again."
            )

    def log_in(self, service: str, *, client: str = "", app_key: str = "", keys_only: bool = False) -> None:
        """Sign in to a store's provider ("drive", "dropbox", "hf") for this machine, before the settings' cell.

        Prints an address and reads a code; shows no secret. Raises Stopped with the fix.
        """
        from relay.app.commands.signingin import outcome
        from relay.app.logins import Cell, log_in
        from relay.app.machine.tokenfile import keep, path_of
        from relay.app.messages.errors import paragraph

        options = {"client": Path(client) if client else None, "app_key": app_key or None, "keys_only": keys_only}
        path = path_of(self.environ, service)
        try:
            variables = log_in(service, Cell(), self.environ, **options)  # type: ignore[arg-type]
            keep(path, variables)
        except RelayError as error:
            raise Stopped(paragraph(error)) from error
        self.environ.update(variables)
        print(outcome(service, path, True, variables))

    def settings(
        self,
        name: str,
        *,
        account: str = "",
        store: str = "",
        run: str = "",
        project: str = "",
        ledger_store: str = "",
        checkpoint_store: str = "",
        trial: bool = False,
        coauthor: bool = False,
    ) -> None:
        """Set account, run and store as variables for the commands, and read the secrets. `invite` prints this call.

        `name`: yours, or a pseudonym. The account is the one registered for that person at this notebook's provider;
        without one it is registered under the name and the provider (ana-colab). `account`: another account of yours.
        `store`: an address, by default the secret RELAY_STORE; or `ledger_store` and `checkpoint_store`. `trial`: the
        store may be lost with this machine. `coauthor`: the confirmation that Kaggle's terms require. Raises Stopped
        with the fix.
        """
        name = " ".join(name.split())
        if reason := unusable(name):
            raise Stopped(reason)
        named = {OWNER: name, "ACCOUNT_ID": account, "RELAY_STORE": store, "RUN_NAME": run, "RELAY_PROJECT": project}
        named |= {"RELAY_LEDGER_STORE": ledger_store, "RELAY_CHECKPOINT_STORE": checkpoint_store}
        named |= {"RELAY_EPHEMERAL": "1" if trial else "", "RELAY_COAUTHOR": "1" if coauthor else ""}
        self._export({name: value.strip() for name, value in named.items() if value.strip()})
        from relay.app.notebooks.cellstore import open_here

        with in_cells():
            try:
                self.opened = open_here(self.place, self.environ, trial, self.set_up)
                self._export({**self.typed, "ACCOUNT_ID": self.opened.enrol(name, account)})
            except RelayError as error:
                from relay.app.messages.errors import paragraph

                raise Stopped(paragraph(error)) from error
            print(self.opened.text())

    def train(
        self,
        *,
        wait_minutes: float = 5,
        minutes: float | None = None,
        earlier: Literal["", "attach", "replace"] = "",
        target_steps: int | None = None,
        until_step: int | None = None,
        cpu: bool = False,
    ) -> None:
        """Train one session, until shortly before the machine's limit, for `minutes`, or to `until_step`.

        `target_steps` raises the run's target for everybody. `cpu`: the CPU is meant, also for a task for GPUs.

        Interrupting the cell ends it earlier, with a commit; running the cell again continues. Raises Stopped if the
        session did not end as planned.
        """
        self._opened()
        self.ended = None
        words = ["run", "--json", "--progress-seconds", "5", "--wait", str(wait_minutes)]
        words += [f"--{earlier}"] if earlier else []
        words += ["--budget-minutes", str(minutes)] if minutes else []
        words += ["--target-steps", str(target_steps)] if target_steps else []
        words += ["--until-step", str(until_step)] if until_step else []
        words += ["--cpu"] if cpu else []
        code, out = self._relay(*words, document=True)
        document = read(out)
        if code not in ENDED:
            raise Stopped(f"{reason(code, document)} {advice(code, document)}".strip())
        self.ended = document
        print(document.get("message", ""))
        if code == Exit.HANDOFF:
            self._relay("next")

    def relay(self, words: str) -> None:
        """Run another command, e.g. "report". Advice in a notebook prints this call. Raises Stopped if it fails."""
        code, _ = self._relay(*shlex.split(words))
        if code:
            raise Stopped(reason(code, {}))

    def curves(self, height: int = 900) -> None:
        """Show the run's page inside the cell: loss and accuracy over all sessions. Starts no server."""
        self._opened()
        file = Path("sync") / "run.html"
        (self.place / "sync").mkdir(exist_ok=True)
        code, out = self._relay("dashboard", "--export", str(file), "--json", document=True)
        if code:
            raise Stopped(f"Cannot make the run's page. {reason(code, read(out))}")
        display = displays()
        if display is None:
            print(self.place / file)
        else:
            display(page((self.place / file).read_text(encoding="utf-8"), height), raw=True)

    def release_runtime(self, wanted: bool) -> None:
        """On Colab, release the machine to save hours; only if `wanted` and everything is in the store."""
        opened = self._opened()
        kept = "RELEASE_RUNTIME is off." if not wanted else why_kept(self.ended, opened.machine, opened.unsent())
        if kept:
            print(f"Machine kept: {kept}")
        else:
            release(self.runtime, print)

    def _export(self, variables: dict[str, str]) -> None:
        """Replace the variables of the cell's last run."""
        for name in self.typed:
            self.environ.pop(name, None)
        self.environ.update(variables)
        self.typed = variables

    def _opened(self) -> Opened:
        if self.opened is None:
            raise Stopped("The settings are missing. Run the settings cell first; it opens the store.")
        return self.opened

    def _relay(self, *words: str, document: bool = False) -> tuple[int, str]:
        script = self.folder / "rotate_accounts.py"
        program = [str(script)] if script.is_file() else ["-m", "trm_relay"]
        return self._follow([sys.executable, *program, *words], document)

    def _follow(self, words: list[str], document: bool = False) -> tuple[int, str]:
        environ = {**self.environ, ASKED: "1", "PYTHONUNBUFFERED": "1"}
        return follow(words, environ, self.place, CellView(displays()).line, self.runtime, document)


def reason(code: int, document: Mapping[str, Any]) -> str:
    """Return why a command ended; an error (relay.error/1) has been printed already."""
    if document.get("schema") == "relay.error/1":
        return f"It ended with {code}; the reason is above."
    return str(document.get("message") or f"It ended with {code}.")


def advice(code: int, document: Mapping[str, Any]) -> str:
    """Return the fix in the notebook."""
    message = str(document.get("message"))
    if message.startswith("Detached"):
        return "Choose 'attach' again to watch it."
    return OURS if code == Exit.LEASE_HELD and "--attach" in message else GO_ON.get(code, "")


def read(out: str) -> dict[str, Any]:
    """Return the JSON document on standard output; empty if there is none."""
    try:
        found = json.loads(out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
