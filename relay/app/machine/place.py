"""What a machine is no place for: a GPU's task without a GPU, a competition's rerun, a card that is not the registered
one; says so before anything is spent, and looks at no machine itself."""

from __future__ import annotations

from relay.app.machine.env import Machine, Provider
from relay.app.messages.advice import command
from relay.core.errors import BadConfig
from relay.core.gpus import models

CLICK: dict[Provider, str] = {
    "colab": "Choose one: Runtime > Change runtime type > T4 GPU, then run the cells again",
    "kaggle": "Choose one: Settings > Accelerator > GPU T4 x2 (not P100, for which Kaggle's torch has no kernels)",
    "slurm": "Ask for one: sbatch --gres=gpu:1 slurm/relay.sbatch",
}
"""What to do where a session has a machine of its own that might have had a GPU."""
UNKNOWN = "What a step costs here nobody has measured: it is told after the first three (PACE)."


def refuse_without_gpu(mismatch: str | None, machine: Machine, meant: bool) -> None:
    """`mismatch` says that the task wants a GPU and there is none. Raises BadConfig (78) where a session is an hour of
    somebody's, unless the CPU is meant."""
    if mismatch and not meant and machine.provider in CLICK:
        raise BadConfig(
            f"{mismatch} {UNKNOWN} {CLICK[machine.provider]}. If the CPU is meant, say so: --cpu (or RELAY_CPU=1)."
        )


def refuse_rerun(machine: Machine) -> None:
    """A hidden rerun has no internet and keeps its submission only. Raises BadConfig (78)."""
    if machine.rerun:
        raise BadConfig(
            "This is a Kaggle competition's rerun (KAGGLE_IS_COMPETITION_RERUN): it has no internet, and nothing that "
            "is trained in it can be kept. Train in an ordinary session, and load the exported weights here."
        )


def another_card(registered: str | None, found: str | None) -> str:
    """A warning where a session's GPU is not the one its account was registered with; empty where both may be one."""
    wanted, here = models(registered or ""), models(found or "")
    if not wanted or wanted & here:
        return ""
    return (
        f"This account is registered with {registered}, and this machine has {found if here else 'no GPU'}: what is "
        f"foretold of the run counts on the former. Choose that, or correct it: `{command('accounts edit')} ID --gpu`."
    )
