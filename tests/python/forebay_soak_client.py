"""A client of the soak: changes and reads objects under its prefix until its input ends, and compares all.

    forebay_soak_client.py ENDPOINT BUCKET PREFIX SEED < what is there, as JSON

It writes a line of JSON before and after each change, and one for each other operation: `[word, name,
content]`. A content is `[seed, size]`, or null for an object that is not there; its bytes follow from
that. Something that is not as it must be ends the process with a line about it on standard error.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable

import forebay

KIB, MIB = 1 << 10, 1 << 20
NAMES = 150
SIZES = (0, 1, KIB, 10 * KIB, 64 * KIB, 300 * KIB, MIB + 1, 5 * MIB)
WEIGHTS = (1, 2, 10, 10, 6, 3, 1, 0.3)
BATCH = 24
OPERATIONS = {"put": 4, "get": 6, "batch": 3, "list": 1, "delete": 2}
LONGEST_ERROR = 300
SETTLE_S = 10.0

Content = list[int] | None
Known = list[Content]
"""The possible contents of an object: one, or several after a change that was cut off."""


def bytes_of(content: Content) -> bytes | None:
    """The bytes of a content."""
    return None if content is None else random.Random(content[0]).randbytes(content[1])


class Load:
    """The operations of one process."""

    def __init__(self, endpoint: str, bucket: str, prefix: str, seed: int, known: dict[str, Known]):
        self.bucket = forebay.Client(endpoint, timeout=60).bucket(bucket)
        self.prefix, self.random, self.known = prefix, random.Random(seed), known
        self.stopped, self.began = False, time.monotonic()

    def run(self) -> None:
        """Compares all objects, works until it is stopped, and compares all again."""
        self.compare(list(self.known))
        self.listed()
        operations: dict[str, Callable[[], None]] = {
            "put": self.put,
            "get": lambda: self.compare([self.name()]),
            "batch": lambda: self.compare(self.random.choices([*self.known] or [self.name()], k=BATCH)),
            "list": self.listed,
            "delete": self.delete,
        }
        while not self.stopped:
            word = self.random.choices([*operations], [OPERATIONS[word] for word in operations])[0]
            operations[word]()
            say(word, "", None)
        self.compare(list(self.known))

    def name(self) -> str:
        return f"{self.prefix}{self.random.randrange(NAMES):04}"

    def put(self) -> None:
        name = self.name()
        size = self.random.choices(SIZES, WEIGHTS)[0]
        content = [self.random.randrange(1 << 31), size]
        self.change(name, content)

    def delete(self) -> None:
        self.change(self.name(), None)

    def change(self, name: str, content: Content) -> None:
        """Writes or deletes an object; the lines say where it was cut off.

        The server may still be at work on a request whose client was killed. Such an object is left
        alone for a while: its last change is then that of this process.
        """
        if len(self.known.get(name, [])) > 1 and time.monotonic() < self.began + SETTLE_S:
            return
        say("begin", name, content)
        item = self.bucket.object(name)
        if content is None:
            item.delete(missing_ok=True)
        else:
            item.put(bytes_of(content) or b"")
        self.known[name] = [content]
        say("end", name, content)

    def compare(self, names: list[str]) -> None:
        """Reads objects, several by a batch; each must be what it may be."""
        for at in range(0, len(names), BATCH):
            wanted = [*dict.fromkeys(names[at : at + BATCH])]
            for name, data in zip(wanted, self.read(wanted), strict=True):
                allowed = self.known.get(name, [None])
                found = [content for content in allowed if bytes_of(content) == data]
                if not found:
                    what = "no object" if data is None else f"{len(data)} bytes"
                    raise SystemExit(f"{name} has {what}; it may be {allowed}")

    def read(self, names: list[str]) -> list[bytes | None]:
        """Contents, None for an object that is not there."""
        if len(names) == 1:
            try:
                return [self.bucket.object(names[0]).get().read_all()]
            except forebay.NotFound:
                return [None]
        batch = self.bucket.client.batch(bucket=self.bucket, on_error="return")
        for name in names:
            batch.add(name)
        contents: list[bytes | None] = []
        for result, data in batch.get_all():
            if result.error is not None and not isinstance(result.error, forebay.NotFound):
                raise result.error
            contents.append(None if result.error is not None else bytes(data))
        return contents

    def listed(self) -> None:
        """Lists the prefix: all objects that must be there, and none that must not."""
        found = set(self.bucket.list_snapshot(self.prefix).names())
        must = {name for name, allowed in self.known.items() if None not in allowed}
        may = {name for name, allowed in self.known.items() if allowed != [None]}
        if not must <= found <= may:
            wrong = sorted((must - found) | (found - may))
            raise SystemExit(f"the list of {self.prefix} is wrong about {wrong}"[:LONGEST_ERROR])


def say(word: str, name: str, content: Content) -> None:
    print(json.dumps([word, name, content]), flush=True)


def main() -> None:
    endpoint, bucket, prefix, seed = sys.argv[1:]
    load = Load(endpoint, bucket, prefix, int(seed), json.loads(sys.stdin.readline()))

    def stop() -> None:
        sys.stdin.read()
        load.stopped = True

    threading.Thread(target=stop, daemon=True).start()
    load.run()


if __name__ == "__main__":
    main()
