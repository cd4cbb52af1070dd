"""Kill sweeps, damage what they stored, and give them folders of strangers: `make chaos`.

Every sweep trains a few short runs on the embedded digits. The results of an undisturbed one are
what others have to reach. `kills` ends a sweep with SIGKILL at random moments and gives the same
command again until it is done; `flips` changes one bit of a file of a killed sweep's folder; `ray`
kills a worker, the node or the head of a sweep's Ray. A run that is lost, stored twice or different
is printed, as is a sweep that hangs; the exit status is then 1.

`hostile` runs commands on each folder of `hostile.FOLDERS`, some of them on each, drawn by the seed
(all of them with `--thorough`), and reads each file of `hostile.FILES`. A traceback, a hang, more
than 2 GiB of memory, a changed or copied file of the user's, and code that ran are printed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import hostile
import pandas as pd

from leaderboards import Store

SWEEP = [
    "--algo",
    "fedavg",
    "fedcad",
    "fedgkd",
    "--dataset",
    "digits",
    "--rounds",
    "6",
    "--seeds",
    "2",
]
SWEEP += ["--set", "beta=0", "gamma=0.5", "buffer=1", "--save-seconds", "0"]
SWEEP += ["--offline", "--quiet"]
INLINE, RAY = ["--executor", "inline"], ["--executor", "ray"]
VICTIMS = ("ray::ResourceTrainable", "ray::DashboardAgent", "raylet/raylet", "gcs/gcs_server")
PATIENCE = 120.0  # seconds after which a sweep hangs
COMPARED = [
    "run_key",
    "status",
    "best_accuracy",
    "final_accuracy",
    "best_round",
    "bytes_up",
    "train_steps",
]
COMMANDS_ON_EACH = 2  # hostile folder
UNUSABLE = 3  # exit status of results or of a machine that cannot be used


def main() -> int:
    """Run what was asked for, and print a line for each kind of disturbance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=14, help="of each kind of disturbance")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, HOSTILE], default=[*KINDS, HOSTILE])
    parser.add_argument(
        "--seed", type=int, default=0, help="of the moments, bits and commands that are drawn"
    )
    parser.add_argument(
        "--thorough", action="store_true", help="all commands on each hostile folder (ten minutes)"
    )
    asked = parser.parse_args()
    faults = 0
    if HOSTILE in asked.kinds:  # first: its processes are forked, before others begin
        faults += _attack(random.Random(f"{HOSTILE} {asked.seed}"), asked.thorough)
    disturbances = [kind for kind in asked.kinds if kind != HOSTILE]
    with tempfile.TemporaryDirectory() as folder:
        if not disturbances:
            return 1 if faults else 0
        undisturbed = Path(folder) / "undisturbed"
        status, seconds = _sweep(undisturbed)
        if status:
            raise SystemExit(f"the undisturbed sweep ended with exit status {status}")
        expected = _results(undisturbed)
        for kind in disturbances:
            chance, outcomes = random.Random(f"{kind} {asked.seed}"), Counter[str]()
            for number in range(asked.times):
                out = Path(folder) / f"{kind}-{number}"
                outcome = KINDS[kind](out, chance, seconds)
                if outcome == "finished":
                    outcome = "equal" if _results(out).equals(expected) else "DIFFERENT"
                outcomes[outcome] += 1
            faults += sum(count for outcome, count in outcomes.items() if outcome.isupper())
            sys.stdout.write(
                f"{kind}: "
                + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
                + "\n"
            )
    return 1 if faults else 0


def _attack(chance: random.Random, thorough: bool) -> int:
    """Run commands on hostile folders; print how many there were, and what went wrong.

    Returns the number of faults.
    """
    hostile.warm_up()
    commands = 0
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        key = hostile.sound_folder(root)
        for number, name in enumerate(hostile.FOLDERS):
            drawn = None if thorough else COMMANDS_ON_EACH
            count, found = hostile.attack(
                name, root / "sound", key, root / str(number), chance, drawn
            )
            commands += count
            faults += found
            shutil.rmtree(root / str(number))
        for name in hostile.FILES:
            faults += hostile.read_file(name, root / "file")
            shutil.rmtree(root / "file")
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    kinds = Counter(fault.split()[0] for fault in faults)
    outcome = (
        ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        or "0 tracebacks, hangs, leaks, losses"
    )
    tried = f"{len(hostile.FOLDERS)} folders, {len(hostile.FILES)} files, {commands + len(hostile.FILES)} commands"
    sys.stdout.write(f"{HOSTILE}: {tried}: {outcome}\n")
    sys.stdout.flush()
    return len(faults)


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
    return "finished" if status == 0 else "refused" if status == UNUSABLE else f"EXIT {status}"


def _bereft(out: Path, chance: random.Random, seconds: float) -> str:
    """Kill one of the processes of a sweep's Ray, and give the command again if the sweep could not go on."""
    victim, moment = chance.choice(VICTIMS), chance.uniform(0, seconds)
    process = _start(out, RAY)
    until = time.monotonic() + PATIENCE
    while (
        time.monotonic() < until and process.poll() is None and not list(out.glob("state/*/*.pt"))
    ):
        time.sleep(0.05)
    time.sleep(moment / 4)
    listed = subprocess.run(
        ["ps", "-s", str(process.pid), "-o", "pid=,args="], capture_output=True, text=True
    )
    found = [int(line.split()[0]) for line in listed.stdout.splitlines() if victim in line]
    for process_id in found[:1]:
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)
    status, _ = _end(process, PATIENCE)
    if status == UNUSABLE and victim != VICTIMS[0]:
        status, _ = _sweep(out)
    if not found and status == 0:
        return "over before"
    return "finished" if status == 0 else f"EXIT {status} AFTER {victim.upper()}"


HOSTILE = "hostile"
KINDS: dict[str, Callable[[Path, random.Random, float], str]] = {
    "kills": _killed,
    "flips": _flipped,
    "ray": _bereft,
}


def _sweep(out: Path, kill_after: float | None = None) -> tuple[int, float]:
    """Run the sweep; its exit status and the seconds it took."""
    return _end(_start(out, INLINE), kill_after)


def _start(out: Path, executor: list[str]) -> subprocess.Popen[str]:
    """Start the sweep, in a session of its own."""
    command = [sys.executable, "-m", "bench.sweep", *SWEEP, *executor, "--out", str(out)]
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str], kill_after: float | None) -> tuple[int, float]:
    """Wait for the sweep, or kill it after so many seconds.

    A traceback is a fault of its own; faults are printed.
    """
    began = time.monotonic()
    try:
        _, said = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
    status = -1 if "Traceback" in said else process.returncode
    if status not in (0, UNUSABLE, -signal.SIGKILL):
        sys.stdout.write(said)
    return status, time.monotonic() - began


def _results(out: Path) -> pd.DataFrame:
    """What the rows of a folder say of each run, but when and how fast it ran."""
    return Store(out).runs()[COMPARED].sort_values(COMPARED[:2], ignore_index=True)


if __name__ == "__main__":
    sys.exit(main())
