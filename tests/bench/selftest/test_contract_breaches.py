"""The `contract` check names each breach once, with the hook and the place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from test_selftest import CROSS_ENTROPY, MEAN, WEIGHT, method, outside

from algorithms import entry
from bench.selftest.candidate import Candidate
from bench.selftest.certify import CheckOutcome, run_check

__all__ = ["outside"]

PREDICTED = 'predicted = ("",)'
SCORES = "net.eval(params, x).logits"
STEP = f"return server.next({MEAN})"
AT = " (FILE)"  # the place of a hook
PLAIN = "must return tensors and numbers, alone or in dicts, lists and tuples"


def breach(text: str) -> str:
    """What is said of a tree that a hook wrote to."""
    return f"{text}, which it must leave as it is{AT}"


# What is wrong -> its source, and all that the check says.
BREACHES = {
    "the message": (
        method(
            PREDICTED,
            first='message["params"]["head.bias"] += message["late"]',
            broadcast='return {"params": server.params, "late": float(server.round)}',
            predict=f"return {SCORES}",
        ),
        [breach("local_loss writes to the message")],
    ),
    "the memory": (
        method(
            init_client='return {"last": params["head.bias"].clone()}',
            start='memory["last"] += 1\nreturn {"params": message["params"]}',
        ),
        [breach("start writes to a client's memory")],
    ),
    "w_0": (
        method(init_server='params["head.bias"] += 1\nreturn Server(params)'),
        [breach("init_server writes to w_0")],
    ),
    "the old server": (
        method(server_step=f'server.params["head.bias"] += 1\n{STEP}'),
        [breach("server_step writes to the old server")],
    ),
    "uploads": (
        method(server_step=f'uploads["params"]["head.bias"] += 1\n{STEP}'),
        [breach("server_step writes to uploads")],
    ),
    "evaluated models": (
        method(
            PREDICTED,
            evaluated='return {"": {n: w.clone() for n, w in server.params.items()}}',
            predict=f'params["head.bias"] += 1\nreturn {SCORES}',
        ),
        [breach("predict writes to an evaluated model")],
    ),
    "the server": (
        method(
            PREDICTED,
            init_server='return Server(params, extra={"own": torch.zeros(2)})',
            server_step=f"return server.next({MEAN}, **server.extra)",
            predict=f'server.extra["own"] += 1\nreturn {SCORES}',
        ),
        [breach("predict writes to the server")],
    ),
    "statistics of the memory": (
        method(
            init_client='return {"last": {n: w.clone() for n, w in params.items()}}',
            upload='net(memory["last"], data.x)\nreturn {"params": local["params"]}, memory',
        ),
        [
            breach("upload writes to a client's memory")
            + ": net(w, x) writes BatchNorm's statistics into w, so pass it clones, or use net.eval"
        ],
    ),
    "scores of another shape": (
        method(PREDICTED, predict=f"return {SCORES}[:, :2]"),
        ["predict must return scores (30, 3), got (30, 2)"],
    ),
    "scores that are not finite": (
        method(PREDICTED, predict=f"return {SCORES} / 0"),
        ["predict must return finite scores: the row's loss is their cross entropy"],
    ),
    "a message with a gradient": (
        method(
            broadcast=(
                'return {"params": server.params, "late": torch.ones(2, requires_grad=True)}'
            )
        ),
        ["broadcast returns a tensor at ['late'] that requires a gradient: detach it"],
    ),
    "a server with a gradient": (
        method(server_step=f"return server.next({MEAN}, late=torch.ones(2, requires_grad=True))"),
        ["server_step returns a tensor at ['extra.late'] that requires a gradient: detach it"],
    ),
    "noise of too few rows": (
        method(noise='return {"z": torch.rand(3, 2, generator=generator)}'),
        ["noise must have 8 rows, the batch's, got shape (3, 2)"],
    ),
    "noise without rows": (
        method(noise='return {"z": torch.rand((), generator=generator)}'),
        ["noise must have 8 rows, the batch's, got shape ()"],
    ),
    "a dropped entry": (
        method(
            start='return {"params": message["params"], "second": message["params"]}',
            before_step='return {"params": local["params"]}',
        ),
        ["before_step drops ['second'] of the local it was given"],
    ),
    "unequal hashes": (
        method("__hash__ = lambda self: id(self)"),
        ["two algorithms with equal hyper-parameters differ in hash"],
    ),
    "another after pickling": (
        method(
            f"{WEIGHT}\n__reduce__ = lambda self: (Method, (0.7,))",
            loss=f"{CROSS_ENTROPY} * self.weight",
        ),
        ["it is not equal to itself after pickling"],
    ),
    "a run that changes it": (
        method(server_step=f'object.__setattr__(self, "seen", server.round)\n{STEP}'),
        ["a run changes the algorithm itself: keep state in the server"],
    ),
    "another base": (
        method() + "\n\n@dataclass(frozen=True)\nclass Heir(Method):\n    pass\n",
        ["Heir extends Method: extend Algorithm or Plugin alone, and nothing else"],
    ),
    "no dataclass": (
        method().replace("@dataclass(frozen=True)\n", ""),
        ["Method must itself be a frozen dataclass"],
    ),
    "the round as a number": (
        method(loss=f"{CROSS_ENTROPY} * (2 if plan.round > 1 else 1)"),
        [
            "local_loss fails if plan.round, plan.lr and plan.num_steps are tensors, as they may "
            "be when clients are stacked: use arithmetic and comparisons, such as "
            "(plan.round > 1) * term, instead of `if` or float(): RuntimeError: "
        ],
    ),
    "a value that is read": (
        method(first='local["params"]["head.bias"].sum().item()'),
        [
            "local_loss fails under torch.vmap, as it runs when clients are stacked: take "
            "gradients by torch.func.grad, read no tensor's value, and use no boolean masks: "
            "RuntimeError: "
        ],
    ),
    "a mean that counts padding": (
        method(loss=f"{CROSS_ENTROPY}.mean() + 0 * {CROSS_ENTROPY}"),
        [
            "local_loss counts padding: losses of samples change with labels of weight 0; take a "
            "mean over the batch by masked_mean(values, batch.weight)"
        ],
    ),
    "one number as the loss": (
        method(loss=f"{CROSS_ENTROPY}.mean()"),
        [
            "local_loss must be (8,), got (): return a loss for each sample, without a mean, or "
            "one number as loss.expand(len(batch.y))",
        ],
    ),
    "a text in the message": (
        method(broadcast='return {"params": server.params, "form": "whole"}'),
        [f"two rounds: TypeError: broadcast {PLAIN}: result['form'] is of type str{AT}"],
    ),
    "a text in the upload": (
        method(upload='return {"params": local["params"], "form": "whole"}, memory'),
        [
            f"two rounds: TypeError: round 1, client 1: upload {PLAIN}: result[0]['form'] is of "
            f"type str{AT}"
        ],
    ),
    "no server": (
        method(server_step="pass"),
        [
            "two rounds: TypeError: round 1, server_step: server_step must return a "
            f"Server, such as server.next(params), got NoneType{AT}"
        ],
    ),
}


def checked(name: str) -> CheckOutcome:
    """The outcome of the `contract` check of `module:factory`."""
    return run_check(Candidate(name, entry(name)), "contract")


def told(outcome: CheckOutcome) -> list[str]:
    """What the check says, without names of files and numbers of lines."""
    return [re.sub(r"outside_\d+\.py:\d+", "FILE", problem) for problem in outcome.problems]


@pytest.mark.parametrize("case", BREACHES)
def test_all_that_is_said_of_a_breach(case: str, outside: Callable[[str], str]) -> None:
    source, expected = BREACHES[case]
    factory = "Heir" if "Heir" in source else "Method"
    problems = told(checked(f"{outside(source)}:{factory}"))
    assert len(problems) >= len(expected), problems
    for problem, words in zip(problems, expected, strict=False):
        assert problem.startswith(words), problems
        assert problem == words or words.endswith(("Error: ", AT))


RIGHT_ONES = {
    "a mean without padding": method(
        loss=f"masked_mean({CROSS_ENTROPY}, batch.weight).expand(len(batch.y))"
    ),
    "noise of one number a sample": method(
        noise='return {"z": torch.rand(batch_size, generator=generator)}'
    ),
    "an upload that is no model": method(
        "uploads_model = False",
        upload='return {"params": {"head.bias": local["params"]["head.bias"]}}, memory',
        server_step='return server.next({**server.params, **cohort.mean(uploads["params"])})',
    ),
    "selected teachers": method(teachers='return {"all": message["params"]}'),
    "scores": method(PREDICTED, predict=f"return {SCORES}"),
    "terms that it reports": method(
        'terms = ("ce",)', first=f"batch.report(ce={CROSS_ENTROPY}.detach())"
    ),
}


@pytest.mark.parametrize("case", RIGHT_ONES)
def test_nothing_is_said_of_what_is_right(case: str, outside: Callable[[str], str]) -> None:
    assert checked(f"{outside(RIGHT_ONES[case])}:Method").problems == ()


def test_the_measurement_names_overridden_hooks(outside: Callable[[str], str]) -> None:
    name = outside(method(WEIGHT, server_step=STEP, loss=f"{CROSS_ENTROPY} * self.weight"))
    measured = checked(f"{name}:Method").measured
    assert measured == "overrides server_step, local_loss; 1 hyper-parameter"
    assert checked("fedavg").measured == "overrides nothing; 0 hyper-parameters"


def test_rows_of_the_entry_are_those_evaluated() -> None:
    rows = {"": "fedavg", "_twice": "fedavg_twice"}
    outcome = run_check(Candidate("fedavg", replace(entry("fedavg"), rows=rows)), "contract")
    assert outcome.problems == ("evaluated gives the rows [''], the entry lists ['', '_twice']",)
