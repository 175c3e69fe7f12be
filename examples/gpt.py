"""A character-level GPT that several people train in turns: the lines with `relay` and `run` are all that it takes."""

import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import relay

STEPS = int(os.environ.get("STEPS", "300"))
CONTEXT, WIDTH, HEADS, LAYERS = 32, 64, 4, 2


class Text(torch.utils.data.Dataset):
    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        self.codes = torch.tensor([self.letters.index(letter) for letter in text])

    def __len__(self) -> int:
        return len(self.codes) - CONTEXT

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.codes[i : i + CONTEXT], self.codes[i + 1 : i + CONTEXT + 1]


class GPT(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, letters, bias=False)
        self.head.weight = self.token.weight

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        x = self.token(codes) + self.place(torch.arange(codes.shape[1]))
        return self.head(self.blocks(x, nn.Transformer.generate_square_subsequent_mask(codes.shape[1]), is_causal=True))


torch.manual_seed(1)
data = Text(Path(__file__).read_text())
loader = DataLoader(data, batch_size=16, shuffle=True)
model = GPT(len(data.letters))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

with relay.session("examples/gpt", target_steps=STEPS, every_steps=100) as run:
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    for x, y in run.batches(loader):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.log(loss=loss)
raise SystemExit(run.outcome.exit_code)
