"""Refuses machines that do not fit: no GPU, a competition's rerun; warns if the GPU is not the registered one."""

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
"""How to get a GPU, by provider, for services that offer them."""
ELSEWHERE = "Train on a machine with a GPU"
UNKNOWN = "Step time on this machine is unknown; it is printed after three steps (PACE)."


def refuse_without_gpu(mismatch: str | None, machine: Machine, meant: bool) -> None:
    """Raises BadConfig (78) if the task needs a GPU (`mismatch`) and the machine has none.

    `meant`: the person chose the CPU, so nothing is refused.
    """
    if mismatch and not meant:
        where = CLICK.get(machine.provider, ELSEWHERE)
        raise BadConfig(f"{mismatch} {where}. To train on the CPU anyway: device=cpu (or RELAY_CPU=1). {UNKNOWN}")


def refuse_rerun(machine: Machine) -> None:
    """Raises BadConfig (78) in a competition's rerun, which has no internet and keeps only the submission."""
    if machine.rerun:
        raise BadConfig(
            "Training is not possible in a Kaggle competition's rerun (KAGGLE_IS_COMPETITION_RERUN). Train in an "
            "ordinary session, and load the exported weights here. It has no internet and keeps only its submission."
        )


def another_card(registered: str | None, found: str | None) -> str:
    """A warning if the session's GPU is not its account's registered one; empty if they may be the same."""
    wanted, here = models(registered or ""), models(found or "")
    if not wanted or wanted & here:
        return ""
    return (
        f"This account is registered with {registered}, but this machine has {found if here else 'no GPU'}. Forecasts "
        f"of the run assume the registered GPU: choose that, or correct it: `{command('accounts edit')} ID --gpu`."
    )
