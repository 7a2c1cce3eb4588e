"""Small models that a loop trains while it reads: the steps of the documents' trainings, in little."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from feeding.reader import Counts

Step = Callable[[Any], None]
"""Trains on one batch, which is a list of contents."""
PICTURE = 32
"""Width and height that a picture is scaled to."""
TOKENS = 64
"""Bytes of a line that the language model reads."""


def resnet() -> Step:
    """Residual blocks over small pictures; it decodes JPEGs, as a training's loader does."""
    import torch
    from PIL import Image
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            layers = [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            self.layers = nn.Sequential(*layers, nn.ReLU())

        def forward(self, x: Any) -> Any:
            return x + self.layers(x)

    body = [nn.Conv2d(3, 16, 3, stride=2), Block(16), Block(16), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*body, nn.Flatten(), nn.Linear(16, 10))

    def picture(content: Any) -> Any:
        with Image.open(io.BytesIO(content)) as opened:
            # The decoder scales down while it decodes.
            opened.draft("RGB", (2 * PICTURE, 2 * PICTURE))
            small = opened.convert("RGB").resize((PICTURE, PICTURE))
        flat = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8)
        return flat.reshape(PICTURE, PICTURE, 3).permute(2, 0, 1)

    return step_of(model, lambda contents: torch.stack(list(map(picture, contents))).float() / 255,
                   lambda contents: torch.tensor([len(one) % 10 for one in contents]))  # fmt: skip


def bert() -> Step:
    """Encoder layers over the bytes of lines; it predicts each byte."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self, width: int = 32) -> None:
            super().__init__()
            self.embedding = nn.Embedding(256, width)
            layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(width, 256)

        def forward(self, x: Any) -> Any:
            return self.head(self.encoder(self.embedding(x))).flatten(0, 1)

    def tokens(lines: Any) -> Any:
        packed = b"".join(bytes(line[:TOKENS]).ljust(TOKENS) for line in lines)
        return torch.frombuffer(bytearray(packed), dtype=torch.uint8).reshape(-1, TOKENS).long()

    return step_of(Model(), tokens, lambda lines: tokens(lines).flatten())


def step_of(model: Any, inputs: Callable[[Any], Any], targets: Callable[[Any], Any]) -> Step:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(contents: Any) -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs(contents)), targets(contents))
        loss.backward()
        optimizer.step()

    return step


MODELS = {"resnet": resnet, "bert": bert}


def trained(batches: Iterable[Any], step: Step) -> Iterator[Counts]:
    """Trains on every batch of contents."""
    for contents in batches:
        step(contents)
        yield len(contents), sum(map(len, contents))
