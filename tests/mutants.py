"""Draw small faults of the product and count how many the tests notice: `make mutants`.

A mutant is a copy of the product with one fault: a comparison, a constant, a sign, a branch or a
statement is another. Its tests are those that run its line, or for a line that runs at import,
those of the folder in tests/ that mirrors its own, and those that run a line with the name that it
defines. `make test` is run once beforehand to learn which tests run which lines. Of each file a
test that runs few lines comes first, and they go on until one fails, each with a time limit, and
all within `--seconds`. A mutant whose tests did not all run in that time is called `unknown`, and
counts as one that survived. A test that fails without the fault, too, counts for nothing.
`EQUIVALENT` and `COMPARED` name the mutants that change no behaviour.

The tests run in a process forked from one that has imported torch and the like.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("algorithms", "bench", "leaderboards", "search_spaces")
EXIT_TESTS_FAILED = 1  # of pytest
TEST_SECONDS = 60  # of a single test
MOST_TESTS = 300  # of a mutant
AT_ONCE = 12  # tests of one process
LONGEST = 100  # characters of a fault in print

# Why a mutant changes no behaviour, by file, function (outside of one, the name that is defined),
# what it replaces, and by what.
EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    ("bench/selftest/equations/lab.py", "requested", "3", "4"): (
        "formula and algorithm are compared on other samples, the same for both"
    ),
    (
        "bench/selftest/communication.py",
        "communication",
        "set(values) <= set(candidate.entry.defaults())",
        "(set(values) < set(candidate.entry.defaults()))",
    ): "no algorithm has such a hyper-parameter and no other",
    ("bench/sweep/preflight.py", "_run_self_test", "torch.set_num_threads(1)", "pass"): (
        "the threads of a check decide how long it takes, not what it finds"
    ),
    ("bench/data/dataset.py", "content_hash", "False", "True"): (
        "a copy of the values has their hash, too"
    ),
    ("bench/figures/planes.py", "_boundaries", "1", "2"): "how finely a picture shows a region",
    ("bench/data/own.py", "CsvFile._table", "False", "True"): (
        "threads decide how long reading takes, not what is read"
    ),
    (
        "bench/selftest/equations/feddf.py",
        "distilled",
        "run.number == 1",
        "(run.number != 1)",
    ): "formula and algorithm are compared on labels of another round, the same for both",
    (
        "bench/selftest/equations/baselines.py",
        "qffl",
        "cross_entropy(logits, data.y).mean() + 1e-10",
        "(cross_entropy(logits, data.y).mean() - 1e-10)",
    ): "twice as much is less than the tolerance",
    ("bench/selftest/whole_runs.py", "_compare_packed", "1", "2"): "another seed of a member",
    ("bench/charts/panels.py", "print_config", "11", "12"): "the size of letters in a picture",
    (
        "leaderboards/stats/aggregate.py",
        "improvement",
        "np.ptp(total) > 1e-9",
        "(np.ptp(total) >= 1e-09)",
    ): "resamples differ by rounding or by a pair of runs, never by this number",
    ("leaderboards/rows/files.py", "read_table", "False", "True"): (
        "threads decide how long reading takes, not what is read"
    ),
    ("leaderboards/stats/pooled.py", "HALVINGS", "40", "41"): (
        "an interval's end moves by 1e-12 of the range that is searched"
    ),
    ("leaderboards/stats/pooled.py", "FAR", "1e4", "10001.0"): (
        "what is rejected 1e4 spreads away is rejected 10,001 away, too"
    ),
    ("bench/state_files.py", "MANIFEST_BYTES", "28", "29"): (
        "no manifest is as large; what is no manifest is refused after more of it is read"
    ),
    ("bench/engine/dropout.py", "Masks.__init__", "0", "1"): (
        "a step's masks are counted anew under its key"
    ),
    (
        "bench/engine/pace.py",
        "_round_seconds",
        "sum(times) > LONGEST",
        "(sum(times) >= LONGEST)",
    ): "measured times are never this number together",
    ("bench/engine/trial_passes/functions.py", "check_function", "0.03", "1.03"): (
        "a module and its network are compared at other values, the same for both"
    ),
    ("bench/engine/trial_passes/functions.py", "check_function", "1.25", "2.25"): (
        "a module and its network are compared at other values, the same for both"
    ),
    ("bench/engine/trial_passes/functions.py", "check_function", "20", "21"): (
        "a module and its network are compared at other values, the same for both"
    ),
    ("bench/engine/trial_passes/passes.py", "trial", "0", "1"): (
        "a module and its network are compared at other first weights, the same for both"
    ),
    ("bench/executors/trials.py", "ECHO_SECONDS", "1.0", "2.0"): (
        "an echo of SIGTERM comes within either"
    ),
    ("bench/executors/ray_executor.py", "ByContest.__init__", "super().__init__()", "pass"): (
        "Ray's own class only tells Ray's statistics of use which kind of rule there is"
    ),
    ("leaderboards/rows/files.py", "_READ_WHOLE", "22", "23"): (
        "how much is read at once, not what is read"
    ),
    ("leaderboards/rows/files.py", "_opened", "size <= _READ_WHOLE", "(size < _READ_WHOLE)"): (
        "how much is read at once, not what is read"
    ),
    ("leaderboards/rows/reading.py", "AT_ONCE", "1_000", "1001"): (
        "how much memory is taken, not what is read"
    ),
    ("bench/sync/place.py", "_CHUNK", "22", "23"): (
        "how much is copied at once, not what is copied"
    ),
    ("bench/sync/mirror.py", "_AT_ONCE", "8", "9"): "how long a copy takes",
    (
        "leaderboards/stats/pooled.py",
        "_interval",
        "difference + max(1.0, abs(difference))",
        "(difference - max(1.0, abs(difference)))",
    ): "where nothing varies, all other differences have one p",
    ("leaderboards/stats/pooled.py", "_interval", "1.0", "2.0"): (
        "where nothing varies, all other differences have one p; a search begins twice as far away"
    ),
}

# Names that hold numbers at which a formula and its algorithm are compared, by file of
# bench/selftest/equations. Both get another number. One at which less is noticed fails a test of
# planted faults, so only a mutant that survives is counted as equivalent.
COMPARED = {
    "averaging.py": {"LACKING", "FEDPROX_CHECKS", "CHECKS"},
    "checks.py": {"Check"},
    "baselines.py": {"STEPS", "RATES", "CHECKS"},
    "distillation.py": {"RANDOM", "CHECKS"},
    "feddf.py": {"Student", "CHECKS"},
    "feddkd.py": {"Requests", "dkd_checks", "CHECKS"},
    "fedgen.py": {"NOISE", "SMALL", "TRAINING", "BOTH", "FADING", "LAST", "EMBEDDED", "CHECKS"},
    "fedgkd.py": {"fedgkd_checks", "vote_checks"},
    "fedkd.py": {"LOW", "CHECKS"},
    "fedkf.py": {"Losses", "CHECKS"},
    "lab.py": {
        *("SEED", "FEATURES", "BATCH_SIZE", "ROUNDS", "SIZES", "PIXEL_MEAN", "PIXEL_STD"),
        *("ONE", "TWO", "THREE", "FIVE", "CLIENT", "LABELS", "PASSES", "model"),
    },
    "personal.py": {"FEDREP_STEPS", "CHECKS"},
    "prototypes.py": {"WHOLE", "SINGLE", "CHECKS"},
    "public.py": {"ALL_SAMPLES", "TWO_BATCHES", "CHECKS"},
}

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """A fault: `before`, at some bytes of a file, is `after`.

    `function` is the one that it is in; outside of one, the name that its statement defines.
    """

    file: str
    line: int
    start: int
    end: int
    function: str
    before: str
    after: str

    @property
    def package(self) -> str:
        """Its package, with the first one below for `bench`."""
        parts = self.file.split("/")
        return "/".join(parts[: 2 if parts[0] == "bench" and len(parts) > 2 else 1])

    @property
    def reason(self) -> str:
        """Why it changes no behaviour; empty if it may."""
        return EQUIVALENT.get((self.file, self.function, self.before, self.after), "")

    @property
    def is_compared(self) -> bool:
        """Whether it is another number at which a formula and its algorithm are compared."""
        path = Path(self.file)
        names = COMPARED.get(path.name, set()) if path.parent.name == "equations" else set()
        return self.function in names and bool(re.fullmatch(r"[\d.e-]+", self.before))

    def __str__(self) -> str:
        fault = f"{self.before} -> {self.after}"
        return f"{self.file}:{self.line} {self.function}: {fault[:LONGEST]}"


class Finder(ast.NodeVisitor):
    """Finds the places of a file where a fault can be put.

    There is none in annotations, messages, imports for types and decorators: whether a class is
    frozen changes nothing that runs. Nor is there one in `strict` of `zip`, which refuses what no
    caller does.
    """

    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.functions: list[str] = []
        self.found: list[Mutant] = []

    def visit(self, node: ast.AST) -> None:
        """Add the faults of a node, then of its parts."""
        if _for_types(node):
            return
        for fault in faults_of(node):
            self._add(*fault)
        name = self._name_within(node)
        if name:
            self.functions.append(name)
        for part in _parts(node):
            self.visit(part)
        if name:
            self.functions.pop()

    def _name_within(self, node: ast.AST) -> str:
        """Return the name to add for the parts of a node; empty for most."""
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return node.name
        if self.functions or not isinstance(node, ast.stmt):
            return ""
        return _assigned(node)

    def _add(self, node: ast.AST, after: str) -> None:
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        before = " ".join(self.source[start:end].decode().split())
        function = ".".join(self.functions)
        self.found.append(Mutant(self.file, node.lineno, start, end, function, before, after))


def _assigned(node: ast.AST) -> str:
    """Return the name that a statement assigns to; empty if there is none."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return targets[0].id if isinstance(targets[0], ast.Name) else ""


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node's parts that run when the product does."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.body
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield node.value
    elif isinstance(node, ast.Raise | ast.JoinedStr) or _is_strict(node):
        return
    else:
        yield from ast.iter_child_nodes(node)


def _is_strict(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "strict"


def faults_of(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the faults of a node: what is replaced, and by what."""
    changed = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        changed.ops[0] = COMPARISONS[type(node.ops[0])]()
        yield node, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.BoolOp):
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _of_text(node):
        changed.op = ARITHMETIC[type(node.op)]()
        yield node, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        if node.value + 1 != node.value:  # 1e100 + 1 is 1e100
            yield node, repr(node.value + 1)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.AugAssign | ast.Raise) or _is_call(node):
        yield node, "pass"


def _of_text(node: ast.BinOp) -> bool:
    """Tell whether an operation is on text, which another one refuses at once."""
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def all_mutants() -> list[Mutant]:
    """Find every place of the product where a fault can be put."""
    found: list[Mutant] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_bytes()
            finder = Finder(str(path.relative_to(ROOT)), source)
            finder.visit(ast.parse(source))
            found += finder.found
    return found


# Which tests run which lines.


class Lines:
    """Which tests run which lines of the product, from a run of all tests with coverage.py.

    Processes that tests start are not followed, but for those that are forked.
    """

    def __init__(self, file: Path, root: Path) -> None:
        data = coverage.CoverageData(str(file))
        data.read()
        self.sizes: Counter[str] = Counter()
        self.tests_of: dict[str, dict[int, list[str]]] = {}
        of_test_file: dict[str, set[str]] = {}
        for test in sorted({_test_of(context) for context in data.measured_contexts()} - {""}):
            of_test_file.setdefault(test.partition("::")[0], set()).add(test)
        for path in data.measured_files():
            tests: dict[int, list[str]] = {}
            for line, contexts in data.contexts_by_lineno(path).items():
                names = {_test_of(context) for context in contexts} - {""}
                self.sizes.update(names)
                for context in contexts:
                    # A fixture may be of all tests of its file, and is set up in the first one.
                    if context.endswith("|setup"):
                        names |= of_test_file[context.partition("::")[0]]
                tests[line] = sorted(names)
            self.tests_of[Path(path).relative_to(root).as_posix()] = tests

    def tests(self, mutant: Mutant) -> list[str]:
        """List the tests of a mutant, in the order in which they run."""
        found = set(self.tests_of.get(mutant.file, {}).get(mutant.line, ()))
        name = _defined(mutant)
        if name:
            found |= set(self._tests_of_name(name))
        mirrored = []
        if name or not found:
            # A test that reads constants alone runs no line of the product, and one of a function
            # that runs at import does not run it.
            folder = Path("tests") / Path(mutant.file).parent
            mirrored = [folder.as_posix()] if (ROOT / folder).is_dir() else []
        tests = self._in_turn(found)[:MOST_TESTS]
        return tests[:AT_ONCE] + mirrored + tests[AT_ONCE:]

    def _in_turn(self, tests: Iterable[str]) -> list[str]:
        """Sort tests: of each file the one that runs fewest lines, then the next one of each."""
        of_file: Counter[str] = Counter()
        places = {}
        for test in sorted(tests, key=lambda test: (self.sizes[test], test)):
            file = test.partition("::")[0]
            places[test] = of_file[file]
            of_file[file] += 1
        return sorted(places, key=lambda test: (places[test], self.sizes[test], test))

    def _tests_of_name(self, name: str) -> Iterator[str]:
        """Yield the tests that run a line with a name."""
        word = re.compile(rf"\b{name}\b")
        for file, lines in self.tests_of.items():
            text = (ROOT / file).read_text(encoding="utf-8")
            for number, line in enumerate(text.splitlines(), 1):
                if word.search(line):
                    yield from lines.get(number, ())


def _test_of(context: str) -> str:
    """Return the name of a test from that of a context, which ends with `|setup` or `|run`."""
    return context.rpartition("|")[0]


def _defined(mutant: Mutant) -> str:
    """Return the name that a mutant's statement defines at import; empty in a function's body."""
    tree = ast.parse((ROOT / mutant.file).read_bytes())
    name = ""
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        if not node.lineno <= mutant.line <= node.end_lineno:
            continue
        if isinstance(node, ast.FunctionDef):
            return ""
        name = _assigned(node) or name
    return name


def measured(folder: Path) -> Lines:
    """Run the tests with coverage.py in a copy of the tree; return which lines each runs."""
    tree = Copy(folder)
    options = [f"--cov={package}" for package in PACKAGES]
    options += ["--cov-context=test", "--cov-report=", "-n2", "--dist=loadfile", "-q"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "not slow", *options], cwd=tree.root, check=False
    )
    return Lines(tree.root / ".coverage", tree.root)


# Running them.


class Copy:
    """A copy of the tree, in which one mutant at a time stands."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        for package in PACKAGES:
            compileall.compile_dir(self.root / package, quiet=2)
        self.sound: set[str] = set()
        self.unsound: list[str] = []

    def put(self, mutant: Mutant) -> None:
        """Put a mutant in its place; later calls of `restore` take it away."""
        source = (ROOT / mutant.file).read_bytes()
        changed = source[: mutant.start] + mutant.after.encode() + source[mutant.end :]
        self._write(mutant.file, changed)

    def restore(self, mutant: Mutant) -> None:
        """Take a mutant away."""
        self._write(mutant.file, (ROOT / mutant.file).read_bytes())

    def _write(self, file: str, source: bytes) -> None:
        path = self.root / file
        path.write_bytes(source)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def failing(self, tests: Sequence[str], seconds: float) -> str | None:
        """Run tests until one fails, and return its name; None if all pass.

        `no end` is returned after so many seconds.
        """
        report = self.root / "failed.json"
        report.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            left_out = [f"--deselect={test}" for test in self.unsound]
            _run_tests(self.root, [*left_out, *tests], report)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ended, _ = os.waitpid(child, os.WNOHANG)
            if ended:
                return json.loads(report.read_text()) if report.exists() else "no report"
            time.sleep(0.1)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:  # it leads no group yet, and has begun nothing
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "no end"


def _run_tests(root: Path, arguments: Sequence[str], report: Path) -> None:
    """Run pytest in this forked process, write the first failing test's name, end the process."""
    os.setsid()
    os.chdir(root)
    sys.path.insert(0, str(root))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    import pytest

    class Failures:
        """Keeps the name of the first test that failed, or of the file that could not be read."""

        first: str | None = None

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                self.first = self.first or report.nodeid

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                self.first = self.first or report.nodeid

    failures = Failures()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"]
    status = pytest.main([*options, *arguments], plugins=[failures])
    failed = failures.first
    if failed is None and status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        failed = "pytest itself"
    report.write_text(json.dumps(failed))
    os._exit(0)


def verdict(mutant: Mutant, tree: Copy, tests: Sequence[str], seconds: float) -> tuple[str, str]:
    """Run a mutant's tests; return the outcome, and the test that noticed it."""
    end = time.monotonic() + seconds
    waiting = list(tests)
    while waiting:
        batch = waiting[:AT_ONCE]
        tree.put(mutant)
        try:
            failed = tree.failing(batch, end - time.monotonic())
        finally:
            tree.restore(mutant)
        if failed == "no end":
            return "unknown", ""
        if failed and _is_sound(failed, tree, seconds):
            return "noticed", failed
        if failed and "::" in failed and failed not in tree.unsound:
            tree.unsound.append(
                failed
            )  # without the fault, too: the batch again, without this test
        else:
            del waiting[:AT_ONCE]
    return "equivalent" if mutant.is_compared else "survived", ""


def _is_sound(test: str, tree: Copy, seconds: float) -> bool:
    """Tell whether a test passes without a fault."""
    name = test if "::" in test or test.endswith(".py") else ""
    if name not in tree.sound and name and tree.failing([name], seconds) is None:
        tree.sound.add(name)
    return not name or name in tree.sound


def main() -> int:
    """Draw, run and count; return 1 if fewer than 95 % of the real mutants are noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument("--count", type=int, default=60, help="mutants (60)")
    parser.add_argument("--first", type=int, default=0, help="begin at this one of the draw (0)")
    parser.add_argument("--last", type=int, help="end before this one of the draw")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each mutant (300)")
    parser.add_argument("--list", action="store_true", help="print the mutants")
    options = parser.parse_args()
    mutants = all_mutants()
    drawn = random.Random(options.seed).sample(mutants, options.count)
    drawn = drawn[options.first : options.last]
    if options.list:
        for mutant in drawn:
            sys.stdout.write(f"{mutant}{mutant.reason and ' (equivalent)'}\n")
        return 0
    for library in ("numpy", "pandas", "pyarrow.parquet", "scipy.stats", "torch", "pytest"):
        __import__(library)  # once, before the forks
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        lines = measured(Path(folder) / "measured")
        tree = Copy(Path(folder))
        for mutant in drawn:
            outcome = "equivalent"
            if not mutant.reason:
                tests = lines.tests(mutant)
                outcome, test = verdict(mutant, tree, tests, options.seconds)
                sys.stdout.write(f"{outcome}: {mutant} {test}\n")
                sys.stdout.flush()
            counts[mutant.package, outcome] += 1
    return _report(counts, len(mutants), options.seed)


def _report(counts: Counter[tuple[str, str]], places: int, seed: int) -> int:
    """Print the counts by package; return the exit status."""
    outcomes = ("equivalent", "noticed", "survived", "unknown")
    sys.stdout.write(f"seed {seed}, of {places:,} places\n")
    totals = Counter({outcome: 0 for outcome in outcomes})
    for package in sorted({package for package, _ in counts}):
        numbers = {outcome: counts[package, outcome] for outcome in outcomes}
        totals.update(numbers)
        sys.stdout.write(f"{package:20} {_line(numbers)}\n")
    sys.stdout.write(f"{'all':20} {_line(totals)}\n")
    real = totals["noticed"] + totals["survived"] + totals["unknown"]
    sys.stdout.write(f"noticed {totals['noticed'] / max(real, 1):.0%}, goal 95%\n")
    return int(totals["noticed"] < 0.95 * real)


def _line(numbers: dict[str, int]) -> str:
    parts = [f"{count} {outcome}" for outcome, count in numbers.items()]
    return f"{sum(numbers.values())} drawn: {', '.join(parts)}"


if __name__ == "__main__":
    sys.exit(main())
