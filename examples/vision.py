"""A small image classifier with an average of its weights, evaluated during training; relayed as in gpt.py."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

import relay

STEPS = int(os.environ.get("STEPS", "200"))
torch.manual_seed(1)


def stripes(count: int) -> TensorDataset:
    """Images with stripes in one of four directions."""
    kinds = torch.randint(4, (count,))
    rows, columns = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = torch.stack([rows, columns, rows + columns, rows - columns])[kinds]
    return TensorDataset((torch.sin(1.5 * waves) + 0.5 * torch.randn(count, 12, 12))[:, None], kinds)


train, test = stripes(1000), stripes(200)
loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(200, 4)
)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS + 1)


def accuracy() -> dict[str, float]:
    ema.eval()
    images, kinds = test.tensors
    with torch.no_grad():
        return {"accuracy": (ema(images).argmax(1) == kinds).float().mean().item()}


with relay.session("examples/vision", target_steps=STEPS, every_steps=50, monitor="accuracy", mode="max") as run:
    run.track(model=model, ema=ema, optimizer=optimizer, scheduler=scheduler)
    run.evaluate(accuracy, every_commits=2)
    for images, kinds in run.batches(loader):
        loss = F.cross_entropy(model(images), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema.update_parameters(model)
        run.log(loss=loss)
raise SystemExit(run.outcome.exit_code)
