"""The command line of `bench.data`.

Imports neither torch nor ray, nor numpy before data are read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from bench import data
from bench.data.registry import DATASETS
from bench.errors import UsageError
from bench.models import weights
from bench.terminal.console import Parser, console, exit_status, print_json
from bench.terminal.values import split_list
from bench.terminal.words import DATA_DIR, LABEL

DESCRIPTION = """\
Data sets: what there is, bringing it here, and how a partition looks."""
EPILOG = """\
examples:
  python -m bench.data list                            every data set: size, classes, whether here
  python -m bench.data prepare cifar10                 download missing files, check, prepare them
  python -m bench.data prepare sst5 distilbert         texts, and the weights of their model
  python -m bench.data prepare mnist usps --offline    from what is here, never from the network
  python -m bench.data partition --dataset cifar10 --alpha 0.1 --clients 20
  python -m bench.data list folder:flowers csv:iris.csv --label species      your own files

The folder of data sets is that of --data-dir, or of $FEDKD_DATA, or ~/.local/share/fedkd-bench.
Used as they are, in this folder or up to two levels below it:
  - folders that torchvision has filled
  - cifar-10-python.tar.gz, cifar-100-python.tar.gz, MNIST/raw/*.gz
  - an unpacked tiny-imagenet-200
  - Hugging Face's tables of CIFAR-10, CIFAR-100, MNIST, Fashion-MNIST, SVHN, USPS, FEMNIST,
    Tiny-ImageNet, AG News and SST-5
The folder may also be one of these itself.

exit status: 0 done; 2 usage or value; 3 data missing, damaged or not to be fetched;
130 interrupted"""

TITLED = 100  # columns of a terminal that has room for the titles of data sets
INPUTS = {"images": "{}", "texts": "{} tokens", "vectors": "{} numbers"}  # by kind of samples
LISTED = (
    "name",
    "title",
    "num_classes",
    "kind",
    "input_shape",
    "train_size",
    "test_size",
    "groups",
    "download",
)


def make_parser() -> Parser:
    """Declare the options of `list` and `prepare`; `partition` declares its own."""
    parser = Parser(prog="python -m bench.data", description=DESCRIPTION, epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    shared = Parser(add_help=False)
    shared.add_argument("--data-dir", metavar="DIR", help=DATA_DIR)
    shared.add_argument("--label", default="", metavar="COLUMN", help=LABEL)
    listing = commands.add_parser("list", parents=[shared], help="every data set")
    listing.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="these only, module:name, folder:PATH and csv:PATH included (default all)",
    )
    listing.add_argument("--json", action="store_true", help="machine-readable output")
    preparing = commands.add_parser("prepare", parents=[shared], help="download, check, prepare")
    preparing.add_argument(
        "names", nargs="+", metavar="NAME", help=f"of {', '.join([*DATASETS, weights.PRETRAINED])}"
    )
    preparing.add_argument("--offline", action="store_true", help="never use the network")
    commands.add_parser(
        "partition", help="show a partition; its --help has details", add_help=False
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["partition"]:
        from bench.data.show_partition import main as show

        return show(argv[1:])
    args = make_parser().parse_args(argv)
    actions: dict[str, Callable[[argparse.Namespace], None]] = {"list": _list, "prepare": _prepare}
    action = actions[args.command]
    return exit_status(lambda: action(args))


def _names(args: argparse.Namespace) -> list[str]:
    """Return the data sets that a user names, each once, by the names that runs know."""
    names: list[str] = []
    for word in args.names:
        if data.is_path(word):  # which may have commas
            label = args.label if word.startswith(data.CSV) else ""
            names.append(data.named(word, label))
        else:
            names += split_list([word])
    return list(dict.fromkeys(names))


def _list(args: argparse.Namespace) -> None:
    from bench.data import outside

    folder = data.data_dir(args.data_dir)
    names = _names(args)
    rows = []
    broken = []
    for name in names or dict.fromkeys([*DATASETS, *outside.KIND.names()]):
        try:
            info = data.info(name)
            row = {field: getattr(info, field) for field in LISTED}
            row["here"] = not data.loader(name).missing(folder)
            rows.append(row)
        except UsageError as problem:  # in a data set of another package
            if names:
                raise
            broken.append(str(problem))
    if args.json:
        print_json(rows)
        return
    from rich.table import Column, Table

    screen = console()
    longest = max((len(row["name"]) for row in rows), default=0)
    name_column = Column("data set", min_width=longest)  # a name is typed, so it is never cut
    titled = screen.width >= TITLED
    titles = ["title"] if titled else []
    table = Table(name_column, *titles, "classes", "inputs", "train", "test", "download", "here")
    for row in rows:
        shape = "x".join(map(str, row["input_shape"]))
        table.add_row(
            row["name"],
            *([row["title"]] if titled else []),
            str(row["num_classes"]),
            INPUTS[row["kind"]].format(shape),
            f"{row['train_size']:,}",
            f"{row['test_size']:,}",
            _size(row["download"]),
            "yes" if row["here"] else "no",
        )
    screen.print(table)
    screen.print(f"folder: {folder}", soft_wrap=True)
    for reason in broken:
        screen.print(f"left out: {reason}")


def _prepare(args: argparse.Namespace) -> None:
    folder = data.data_dir(args.data_dir)
    names = _names(args)
    if not names:
        raise UsageError("prepare takes names of data sets, and got empty ones; list shows all")
    infos = {name: data.info(name) for name in names if name != weights.PRETRAINED}
    if weights.PRETRAINED in names:
        file = weights.fetch(folder, args.offline)
        sys.stdout.write(
            f"{weights.PRETRAINED}: ready, {_size(file.stat().st_size)} of weights in {file}\n"
        )
    for name, info in infos.items():
        dataset = data.load(name, folder, args.offline)
        megabytes = (dataset.train_x.nbytes + dataset.test_x.nbytes) / 1e6
        sys.stdout.write(
            f"{name}: ready, {len(dataset.train_y):,} training and {len(dataset.test_y):,} test "
            f"samples, {megabytes:,.1f} MB of {info.kind}, hash {dataset.hash[:12]}\n"
        )


def _size(count: int | None) -> str:
    if count is None:
        return "unknown"
    return f"{count / 1e6:,.1f} MB" if count else "none"
