"""Two processes of one machine train a classifier with DistributedDataParallel; relayed as in gpt.py.

    torchrun --nproc-per-node 2 examples/ddp.py

Every process runs this script. The first one has the session: it takes the lease, commits, and hears signals.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import relay

STEPS = int(os.environ.get("STEPS", "200"))
gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
torch.manual_seed(1)


def spirals(count: int) -> TensorDataset:
    """Points on one of three arms."""
    arms, radius = torch.randint(3, (count,)), torch.rand(count)
    angle = 4 * radius + arms * 2.1 + 0.1 * torch.randn(count)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arms)


data = spirals(1000)
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data, seed=1), drop_last=True)
net = nn.Sequential(
    nn.Linear(2, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
)
model = DistributedDataParallel(net.to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS)
torch.manual_seed(dist.get_rank())  # each process drops other neurons

with relay.session("examples/ddp", target_steps=STEPS, every_steps=50) as run:
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    for points, arms in run.batches(loader):
        loss = F.cross_entropy(model(points.to(device)), arms.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.log(loss=loss)
dist.destroy_process_group()
raise SystemExit(run.outcome.exit_code)
