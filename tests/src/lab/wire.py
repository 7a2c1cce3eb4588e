"""wire.py NEAR FAR LOST_PERCENT DELAY_MS JITTER_MS: carries frames between two devices, badly.

Of what comes in at NEAR a part is lost; all of it, both ways, is late by DELAY_MS and up to
JITTER_MS more, in order. Frames come with their offload header (PACKET_VNET_HDR), so checksums and
segments that the kernel has still to make stay as they are.
"""

import collections
import random
import select
import socket
import sys
import time

SOL_PACKET, VNET_HDR, IGNORE_OUTGOING, ALL = 263, 15, 23, 3


def port(name):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    end.setsockopt(SOL_PACKET, VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    end.bind((name, ALL))
    end.setblocking(False)
    return end


near, far = port(sys.argv[1]), port(sys.argv[2])
lost, delay, jitter = (float(word) for word in sys.argv[3:6])
lost, delay, jitter = lost / 100, delay / 1000, jitter / 1000
other = {near: far, far: near}
# Frames that wait at each end, with the times when they are due.
waiting = {near: collections.deque(), far: collections.deque()}
print("ready", flush=True)
while True:
    due = [queue[0][0] for queue in waiting.values() if queue]
    timeout = max(0.0, min(due) - time.monotonic()) if due else None
    for end in select.select([near, far], [], [], timeout)[0]:
        frame = end.recv(1 << 17)
        if end is near and random.random() < lost:
            continue
        at = time.monotonic() + delay + random.random() * jitter
        queue = waiting[other[end]]
        queue.append((max(at, queue[-1][0]) if queue else at, frame))
    now = time.monotonic()
    for end, queue in waiting.items():
        while queue and queue[0][0] <= now:
            try:
                end.send(queue.popleft()[1])
            except OSError:
                pass  # A full queue loses frames, as a switch does.
