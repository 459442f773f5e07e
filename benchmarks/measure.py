"""How times and memory are measured: best of several repeats, the contenders taking turns."""

import gc
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping


def best_seconds(
    contenders: Mapping[str, Callable[[], object]], budget: float = 1.0, repeats: int = 7
) -> dict[str, float]:
    """Best time of one call of each contender.

    The contenders take turns, so that a busy spell of the machine hits all of them; each turn repeats the call for
    a share of `budget` seconds and keeps the fastest single call.
    """
    for call in contenders.values():
        call()
        call()
    best = dict.fromkeys(contenders, math.inf)
    gc.disable()
    try:
        for _ in range(repeats):
            for name, call in contenders.items():
                until = time.perf_counter() + budget / repeats
                while True:
                    start = time.perf_counter()
                    call()
                    end = time.perf_counter()
                    best[name] = min(best[name], end - start)
                    if end > until:
                        break
    finally:
        gc.enable()
    return best


def log_log_slope(sizes: list[int], seconds: list[float]) -> float:
    """Slope of the least-squares line through log time against log size: 1 is linear growth."""
    xs, ys = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / sum((x - x_mean) ** 2 for x in xs)


def peak_bytes(prepare: str, measured: str) -> int:
    """Growth of the peak resident memory while `measured` runs, in a process of its own after `prepare`."""
    code = f"""
import gc, resource, sys
{prepare}
gc.collect()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # forget the peak so far
def read(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))
before = read("VmRSS:")
{measured}
print(read("VmHWM:") - before)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    return int(out.stdout.split()[-1])
