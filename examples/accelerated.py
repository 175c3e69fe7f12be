"""A classifier with a loop of its own on Accelerate; relayed as in gpt.py."""

import os

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import relay

STEPS = int(os.environ.get("STEPS", "200"))
torch.manual_seed(1)
points = torch.randn(1000, 2)
loader = DataLoader(TensorDataset(points, (points.prod(1) > 0).long()), batch_size=16, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS)
accelerator = Accelerator()
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)  # not the loader: its position is kept

with relay.session("examples/accelerated", target_steps=STEPS, every_steps=50) as run:
    run.track(model=model, optimizer=optimizer.optimizer, scheduler=scheduler.scheduler)
    for x, y in run.batches(loader):
        loss = F.cross_entropy(model(x.to(accelerator.device)), y.to(accelerator.device))
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        run.log(loss=loss)
raise SystemExit(run.outcome.exit_code)
