"""A GPT with automatic mixed precision and torch.compile, two micro-batches a step; relayed as in gpt.py."""

import os
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relay

STEPS = int(os.environ.get("STEPS", "200"))
CONTEXT, WIDTH, HEADS = 32, 64, 4
device = "cuda" if torch.cuda.is_available() else "cpu"
kind = torch.float16 if device == "cuda" else torch.bfloat16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


torch.manual_seed(1)
text = torch.frombuffer(bytearray(Path(__file__).read_bytes()), dtype=torch.uint8).long()
loader = DataLoader(TensorDataset(text.unfold(0, CONTEXT + 1, 1)), batch_size=32, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Embedding(256, WIDTH), Block(), Block(), nn.Linear(WIDTH, 256)).to(device)
net = torch.compile(model) if device == "cuda" or shutil.which("c++") else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
scaler = torch.amp.GradScaler(device, enabled=kind == torch.float16)

with relay.session("examples/gpt-amp", target_steps=STEPS, every_steps=50) as run:
    run.track(model=net, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    for (codes,) in run.batches(loader):
        optimizer.zero_grad()
        for part in codes.to(device).chunk(2):
            with torch.autocast(device, kind):
                loss = F.cross_entropy(net(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()) / 2
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        run.log(loss=2 * loss)
raise SystemExit(run.outcome.exit_code)
