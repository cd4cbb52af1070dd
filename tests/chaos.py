"""Kill sweeps at random moments and damage what they stored: `make chaos`.

Every sweep trains a few short runs on the embedded digits. The results of an undisturbed one are what others have to
reach. `kills` ends a sweep with SIGKILL at random moments and gives the same command again until it is done; `flips`
changes one bit of a file of a killed sweep's folder. A run that is lost, stored twice or different is printed, and the
exit status is then 1.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from leaderboards import Store

SWEEP = ["--algo", "fedavg", "fedcad", "fedgkd", "--dataset", "digits", "--rounds", "6", "--seeds", "2"]
SWEEP += ["--set", "beta=0", "gamma=0.5", "buffer=1", "--save-seconds", "0"]
SWEEP += ["--executor", "inline", "--offline", "--quiet"]
COMPARED = ["run_key", "status", "best_accuracy", "final_accuracy", "best_round", "bytes_up", "train_steps"]
REFUSED = 3  # exit status of results that cannot be used


def main() -> int:
    """Run what was asked for, and print a line for each kind of disturbance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="of each kind of disturbance")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and bits that are drawn")
    asked = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Path(folder) / "undisturbed"
        status, seconds = _sweep(undisturbed)
        if status:
            raise SystemExit(f"the undisturbed sweep ended with exit status {status}")
        expected = _results(undisturbed)
        kinds: dict[str, Callable[[Path, random.Random, float], str]] = {"kills": _killed, "flips": _flipped}
        for kind, disturb in kinds.items():
            chance, outcomes = random.Random(f"{kind} {asked.seed}"), Counter[str]()
            for number in range(asked.times):
                out = Path(folder) / f"{kind}-{number}"
                outcome = disturb(out, chance, seconds)
                if outcome == "finished":
                    outcome = "equal" if _results(out).equals(expected) else "DIFFERENT"
                outcomes[outcome] += 1
            faults += sum(count for outcome, count in outcomes.items() if outcome.isupper())
            sys.stdout.write(
                f"{kind}: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) + "\n"
            )
    return 1 if faults else 0


def _killed(out: Path, chance: random.Random, seconds: float) -> str:
    """Kill the sweep three times on its way, then let it finish."""
    for _ in range(3):
        _sweep(out, kill_after=chance.uniform(0, seconds))
    status, _ = _sweep(out)
    return "finished" if status == 0 else f"EXIT {status}"


def _flipped(out: Path, chance: random.Random, seconds: float) -> str:
    """Kill the sweep, flip one bit of what it left, and give the command again."""
    _sweep(out, kill_after=chance.uniform(seconds / 2, seconds))
    files = sorted(file for file in out.rglob("*") if file.is_file() and file.stat().st_size)
    if not files:
        return "nothing stored"
    victim = chance.choice(files)
    content = bytearray(victim.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    victim.write_bytes(content)
    status, _ = _sweep(out)
    return "finished" if status == 0 else "refused" if status == REFUSED else f"EXIT {status}"


def _sweep(out: Path, kill_after: float | None = None) -> tuple[int, float]:
    """Run the sweep; its exit status and the seconds it took. A traceback is a fault of its own."""
    began = time.monotonic()
    command = [sys.executable, "-m", "bench.sweep", *SWEEP, "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _, said = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
    if "Traceback" in said:
        sys.stdout.write(said)
        return -1, 0.0
    return process.returncode, time.monotonic() - began


def _results(out: Path) -> pd.DataFrame:
    """What the rows of a folder say of each run, but when and how fast it ran."""
    return Store(out).runs()[COMPARED].sort_values(COMPARED[:2], ignore_index=True)


if __name__ == "__main__":
    sys.exit(main())
