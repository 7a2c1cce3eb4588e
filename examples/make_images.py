"""A small image data set: drawn shapes as JPEG files, one folder for each class.

The same images come out of every run.
"""

from __future__ import annotations

import io
import math
import random
from pathlib import Path

from PIL import Image, ImageDraw

CLASSES = ("circle", "cross", "ring", "square", "star", "triangle")

Point = tuple[float, float]


def write(folder: Path, count: int) -> int:
    """Writes ``count`` images as ``folder/CLASS/NUMBER.jpg``; returns their bytes."""
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
    total = 0
    for number in range(count):
        name = CLASSES[number % len(CLASSES)]
        content = draw(name, number)
        (folder / name / f"{number:06}.jpg").write_bytes(content)
        total += len(content)
    return total


def draw(name: str, number: int) -> bytes:
    """The JPEG of one shape, its place, size and colours chosen by ``number``."""
    chance = random.Random(number)
    width, height = chance.randint(64, 96), chance.randint(64, 96)
    back = tuple(chance.randint(0, 255) for _ in range(3))
    fore = tuple((value + chance.randint(90, 165)) % 256 for value in back)
    noise = Image.frombytes("L", (width, height), chance.randbytes(width * height))
    image = Image.blend(noise.convert("RGB"), Image.new("RGB", noise.size, back), 0.8)
    radius = chance.uniform(14, 26)
    centre = (
        chance.uniform(radius, width - radius),
        chance.uniform(radius, height - radius),
    )
    shape(ImageDraw.Draw(image), name, centre, radius, chance.uniform(0, 360), fore)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue()


def shape(
    draw: ImageDraw.ImageDraw,
    name: str,
    centre: Point,
    radius: float,
    turn: float,
    colour: tuple[int, ...],
) -> None:
    """Draws one shape, turned by so many degrees."""
    x, y = centre
    box = (x - radius, y - radius, x + radius, y + radius)
    if name == "circle":
        draw.ellipse(box, fill=colour)
    elif name == "ring":
        draw.ellipse(box, outline=colour, width=max(3, int(radius / 4)))
    elif name == "cross":
        for angle in (turn, turn + 90):
            ends = corners(centre, [radius] * 2, angle)
            draw.line(ends, fill=colour, width=max(4, int(radius / 3)))
    else:
        distances = {
            "triangle": [radius] * 3,
            "square": [radius] * 4,
            "star": [radius, radius * 0.4] * 5,
        }
        draw.polygon(corners(centre, distances[name], turn), fill=colour)


def corners(centre: Point, distances: list[float], turn: float) -> list[Point]:
    """Points around ``centre`` at equal angles and these distances."""
    step = 360 / len(distances)
    angles = [math.radians(turn + step * i) for i in range(len(distances))]
    return [
        (centre[0] + d * math.cos(a), centre[1] + d * math.sin(a))
        for d, a in zip(distances, angles, strict=True)
    ]
