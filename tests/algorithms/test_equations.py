"""Losses, gradients and server steps of every algorithm against the printed formulas, and proof that this can fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import published_widths, simulate
from torch import Tensor, nn

from algorithms import ALGORITHMS, build
from algorithms.base import Algorithm
from algorithms.generators import generated_images, image_generator
from algorithms.losses import cross_entropy, kl
from bench.selftest.equations import CHECKS, TOLERANCE, Check, Make
from bench.selftest.equations import formulas as written_anew
from bench.selftest.toy import gap

ALL = [
    pytest.param(name, check, id=f"{name}: {check.title}")
    for name in CHECKS
    for check in CHECKS[name]
]

FIELDS = [(name, field.name) for name in ALGORITHMS for field in ALGORITHMS[name].fields]


@pytest.fixture
def _published_widths() -> Iterator[None]:
    """The layers of FedKF's generator are among what is checked."""
    with published_widths():
        yield


@pytest.mark.usefixtures("_published_widths")
@pytest.mark.parametrize(("name", "check"), ALL)
def test_an_algorithm_computes_what_its_paper_prints(name: str, check: Check) -> None:
    assert check.gap(partial(build, name)) <= TOLERANCE, check.source


def test_every_algorithm_has_checks_with_titles_of_their_own() -> None:
    assert set(CHECKS) == set(ALGORITHMS)
    for name, checks in CHECKS.items():
        titles = [check.title for check in checks]
        assert len(set(titles)) == len(titles), name
        assert any("gradient" in title for title in titles), name


def noticed(check: Check, make: Make) -> bool:
    """Whether an algorithm fails a check by what it computes, and not by an error."""
    try:
        return check.gap(make) > 1e-6
    except Exception:
        return False


class NotAskedFor(Exception):
    """A check that gives a hyper-parameter no value."""


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_an_ignored_hyper_parameter_is_noticed(name: str, field: str) -> None:
    def deaf(**options: Any) -> Algorithm:
        if field not in options:
            raise NotAskedFor  # before the rounds of a check that cannot notice
        return build(name, **{key: value for key, value in options.items() if key != field})

    def differs(check: Check) -> bool:
        try:
            return not check.gap(deaf) <= TOLERANCE
        except NotAskedFor:
            return False
        except Exception:
            return True

    assert any(map(differs, CHECKS[name]))


def twisted(name: str, **hooks: Callable[..., Any]) -> Make:
    """The built-in algorithm with some hooks replaced; each replacement is given the right algorithm first."""

    def make(**options: Any) -> Algorithm:
        right = build(name, **options)
        wrong = copy(right)
        for hook, replacement in hooks.items():
            object.__setattr__(wrong, hook, partial(replacement, right))
        return wrong

    return make


def changed(name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Make:
    """The built-in algorithm with hyper-parameters other than those asked for."""
    return lambda **options: build(
        name, **{**options, **change({**ALGORITHMS[name].defaults(), **options})}
    )


def local(term: Callable[..., Any]) -> Callable[..., Any]:
    """A local loss of CE plus `term(algorithm, student's outputs, teacher's outputs, batch, plan)`."""

    def loss(
        right: Any, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any
    ) -> Any:
        out, teacher = net(local["params"], batch.x), next(iter(batch.teacher.values()), None)
        return cross_entropy(out.logits, batch.y) + term(right, out, teacher, batch, plan)

    return loss


def unsquared(
    right: Any, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any
) -> Any:
    w, received = local["params"], message["params"]
    distance = sum((w[name] - received[name]).square().sum() for name in net.trainable).sqrt()
    return cross_entropy(net(w, batch.x).logits, batch.y) + right.mu / 2 * distance


def twice_the_term(right: Any, net: Any, local: Any, batch: Any, *rest: Any) -> Any:
    return 2 * right.local_loss(net, local, batch, *rest) - cross_entropy(
        net(local["params"], batch.x).logits, batch.y
    )


def opposite_term(right: Any, net: Any, local: Any, batch: Any, *rest: Any) -> Any:
    return 2 * cross_entropy(net(local["params"], batch.x).logits, batch.y) - right.local_loss(
        net, local, batch, *rest
    )


def term_without_gradient(right: Any, net: Any, local: Any, batch: Any, *rest: Any) -> Any:
    ce = cross_entropy(net(local["params"], batch.x).logits, batch.y)
    return ce + (right.local_loss(net, local, batch, *rest) - ce).detach()


def step_thrown_away(right: Any, net: Any, local: Any, *rest: Any) -> Any:
    right.before_step(net, local, *rest)
    return local


def from_round_1(
    right: Any, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any
) -> Any:
    return right.local_loss(
        net, local, batch, message, memory, replace(plan, round=max(plan.round, 2))
    )


def unlike_plan(**values: Any) -> Callable[..., Any]:
    """An upload that takes part of the local training for something else."""
    return lambda right, *given: right.upload(*given[:-1], replace(given[-1], **values))


def before_training(
    right: Any, net: Any, local: Any, data: Any, message: Any, memory: Any, plan: Any
) -> Any:
    upload, _ = right.upload(net, memory, data, message, memory, plan)
    return upload, {"params": local["params"]}


def farthest(right: Any, *given: Any) -> Any:
    return -right.predict(*given)


def swapped_teachers(right: Any, message: Any, memory: Any) -> Any:
    teachers = right.teachers(message, memory)
    return dict(zip(teachers, reversed(list(teachers.values())), strict=True))


def swapped_bounds(right: Any, fed: Any, server: Any) -> Any:
    message = right.broadcast(fed, server)
    return message | {"class_weights": right.beta + right.gamma - message["class_weights"]}


def swapped_roles(right: Any, net: Any, params: Any, local_params: Any, batch: Any) -> Any:
    teacher, student = (
        net.eval({**local_params, **params}, batch.x).logits,
        net.eval(local_params, batch.x).logits,
    )
    return -(teacher.softmax(-1) * student.log_softmax(-1)).sum(-1)


def unweighted(right: Any, fed: Any, server: Any, uploads: Any, cohort: Any) -> Any:
    cohort = copy(cohort)
    cohort.num_examples = torch.ones_like(cohort.num_examples)
    return right.server_step(fed, server, uploads, cohort)


def plain_mean(right: Any, fed: Any, server: Any, uploads: Any, cohort: Any) -> Any:
    server = right.server_step(fed, server, uploads, cohort)
    mean = {name: uploads["params"][name].mean(0) for name in fed.net.trainable}
    return replace(server, params={**server.params, **mean})


def mean_over_all(right: Any, grads: Any, cohort: Any, among: Any) -> Any:
    return right._mean(grads, cohort, None)


def drawn_once(right: Any, fed: Any, round: int, request: int, cohort: Any) -> Any:
    return right._answering(fed, round, 0, cohort)


def all_or_none(right: Any, *given: Any) -> Any:
    among = right._answering(*given)
    return among if among is None else among[:1].expand(len(among))


def the_others(right: Any, *given: Any) -> Any:
    among = right._answering(*given)
    return among if among is None else ~among


def equal_counts(right: Any, *given: Any) -> Any:
    upload, memory = right.upload(*given)
    return {
        key: value if key == "params" else torch.ones_like(value) for key, value in upload.items()
    }, memory


def w0_in_the_buffer(right: Any, fed: Any, params: Any) -> Any:
    return replace(right.init_server(fed, params), extra={"fedgkd_history": (params,)})


def torch_weights(right: Any, fed: Any, message: Any, memory: Any, generator: Any) -> Any:
    local = right.start(fed, message, memory, generator)
    convolutions = {name: value for name, value in local["theta"].items() if value.dim() == 4}
    narrow = {
        name: value * (len(value) / (6 * value.shape[1])) ** 0.5
        for name, value in convolutions.items()
    }
    return {**local, "theta": {**local["theta"], **narrow}}


def counts_of_everyone(right: Any, fed: Any, message: Any, memory: Any, generator: Any) -> Any:
    local = right.start(fed, message, memory, generator)
    return {
        name: value if name == "params" else torch.ones_like(value) for name, value in local.items()
    }


def true_class_too(right: Any, out: Any, teacher: Any, batch: Any, plan: Any) -> Any:
    return right.beta * right.temperature**2 * kl(teacher.logits, out.logits, right.temperature)


def reversed_kl(right: Any, out: Any, teacher: Any, batch: Any, plan: Any) -> Any:
    return (plan.round > 1) * right.gamma / 2 * kl(out.logits, teacher.logits)


def logits_not_features(right: Any, out: Any, teacher: Any, batch: Any, plan: Any) -> Any:
    return right.beta * kl(out.logits, torch.zeros_like(out.logits))


MUTANTS: dict[str, tuple[str, Make]] = {
    "mean of clients unweighted": ("fedavg", twisted("fedavg", server_step=unweighted)),
    "proximal norm not squared": ("fedprox", twisted("fedprox", local_loss=unsquared)),
    "proximal term without 1/2": ("fedprox", changed("fedprox", lambda h: {"mu": 2 * h["mu"]})),
    "FedMAX on logits": ("fedmax", twisted("fedmax", local_loss=local(logits_not_features))),
    "BatchNorm averaged": ("fedbn", partial(build, "fedavg")),
    "local models averaged": ("local", partial(build, "fedavg")),
    "pooled model averaged": ("centralized", partial(build, "fedavg")),
    "KL reversed": ("fedgkd", twisted("fedgkd", local_loss=local(reversed_kl))),
    "w_0 in the buffer": ("fedgkd", twisted("fedgkd", init_server=w0_in_the_buffer)),
    "distillation in round 1": ("fedgkd", twisted("fedgkd", local_loss=from_round_1)),
    "gamma not halved": (
        "fedgkd_plus",
        changed("fedgkd_plus", lambda h: {"gamma": 2 * h["gamma"]}),
    ),
    "sum over classes": ("fedgkd_mse", changed("fedgkd_mse", lambda h: {"gamma": 4 * h["gamma"]})),
    "KL without gradient": (
        "fedgkd_vote",
        twisted("fedgkd_vote", local_loss=term_without_gradient),
    ),
    "a vote of equals": ("fedgkd_vote", changed("fedgkd_vote", lambda h: {"beta": 1e9})),
    "previous and global swapped": ("moon", twisted("moon", teachers=swapped_teachers)),
    "always times T^2": ("fedlsd", changed("fedlsd", lambda h: {"kd_t_squared": True})),
    "beta and gamma swapped": ("fedcad", twisted("fedcad", broadcast=swapped_bounds)),
    "the true class too": ("fedntd", twisted("fedntd", local_loss=local(true_class_too))),
    "own table included": (
        "feddistill",
        changed("feddistill", lambda h: {"fd_exclude_self": False}),
    ),
    "without T^2": (
        "feddistill",
        changed(
            "feddistill",
            lambda h: {"distillation_weight": h["distillation_weight"] / h["temperature"] ** 2},
        ),
    ),
    "margins alike for all classes": ("fedlc", twisted("fedlc", start=counts_of_everyone)),
    "no class missing": ("fedrs", twisted("fedrs", start=counts_of_everyone)),
    "all clients' heads count alike": ("fedgen", twisted("fedgen", upload=equal_counts)),
    "generated term doubled": ("fedgen", twisted("fedgen", local_loss=twice_the_term)),
    "distillation term doubled": ("fedkf", twisted("fedkf", local_loss=twice_the_term)),
    "generator never trained": ("fedkf", twisted("fedkf", before_step=step_thrown_away)),
    "the generator's weights as torch draws them": ("fedkf", twisted("fedkf", start=torch_weights)),
    "the round's mean evaluated": (
        "fedkf",
        twisted("fedkf", evaluated=lambda right, server: {"": server.params}),
    ),
    "teacher and student swapped": ("feddkd", twisted("feddkd", distillation=swapped_roles)),
    "mean over those who do not answer, too": ("feddkd", twisted("feddkd", _mean=mean_over_all)),
    "answers drawn once a round": ("feddkd", twisted("feddkd", _answering=drawn_once)),
    "all answer or none": ("feddkd_bn", twisted("feddkd_bn", _answering=all_or_none)),
    "probability of an answer": ("feddkd_max", twisted("feddkd_max", _answering=the_others)),
    "student in training mode": (
        "feddkd_bn",
        changed("feddkd_bn", lambda h: {"dkd_student_mode": "train"}),
    ),
    "FedMAX left out": ("feddkd_max", changed("feddkd_max", lambda h: {"beta": 0.0})),
    "only the round's clients": (
        "fedavg_t1",
        twisted(
            "fedavg_t1", evaluated=lambda right, server: {"": server.params, "_t1": server.params}
        ),
    ),
    "correction's sign flipped": ("scaffold", twisted("scaffold", local_loss=opposite_term)),
    "learning rate left out": ("scaffold", twisted("scaffold", upload=unlike_plan(lr=1.0))),
    "momentum left out": ("fednova", twisted("fednova", upload=unlike_plan(momentum=0.0))),
    "server without state": ("feddyn", twisted("feddyn", server_step=plain_mean)),
    "momentum of the server left out": (
        "fedavgm",
        changed("fedavgm", lambda h: {"server_momentum": 0.0}),
    ),
    "first moment left out": ("fedadam", changed("fedadam", lambda h: {"beta1": 0.0})),
    "q applied twice": ("qffl", changed("qffl", lambda h: {"q": 2 * h["q"]})),
    "Ditto's term doubled": ("ditto", twisted("ditto", local_loss=twice_the_term)),
    "Ditto's w not trained": ("ditto", twisted("ditto", before_step=step_thrown_away)),
    "FD's own table included": ("fd", changed("fd", lambda h: {"fd_exclude_self": False})),
    "FD's means never made": ("fd", twisted("fd", before_step=step_thrown_away)),
    "FedProto on all epochs": (
        "fedproto",
        changed("fedproto", lambda h: {"proto_from": "all_epochs"}),
    ),
    "the farthest prototype": ("fedproto", twisted("fedproto", predict=farthest)),
    "FedProto's term doubled": ("fedproto", twisted("fedproto", local_loss=twice_the_term)),
    "bodies averaged too": ("lg_fedavg", partial(build, "fedavg")),
    "heads' plain mean": ("lg_fedavg", twisted("lg_fedavg", server_step=unweighted)),
    "the meme never trained": ("fml", twisted("fml", before_step=step_thrown_away)),
    "memes' plain mean": ("fml", twisted("fml", server_step=unweighted)),
    "FML's weights swapped": (
        "fml",
        changed(
            "fml",
            lambda h: {"ce_weight": h["meme_ce_weight"], "meme_ce_weight": h["ce_weight"]},
        ),
    ),
    "FedRep's parts trained together": (
        "fedrep",
        twisted("fedrep", local_loss=local(lambda right, *of_batch: 0.0)),
    ),
    "bodies' plain mean": ("fedrep", twisted("fedrep", server_step=unweighted)),
    "the mentee never trained": ("fedkd", twisted("fedkd", before_step=step_thrown_away)),
    "changes never truncated": (
        "fedkd",
        changed("fedkd", lambda h: {"energy_start": 1.0, "energy_end": 1.0}),
    ),
    "mentees' plain mean": ("fedkd", twisted("fedkd", server_step=unweighted)),
    "head of the prototypes before": ("fedgh", twisted("fedgh", upload=before_training)),
    "one pass too many": (
        "fedgh",
        changed("fedgh", lambda h: {"server_epochs": h["server_epochs"] + 1}),
    ),
    "no margin": ("fedtgp", changed("fedtgp", lambda h: {"margin_threshold": 0.0})),
    "FedTGP's term doubled": ("fedtgp", twisted("fedtgp", local_loss=twice_the_term)),
    "targets never digested": ("fedmd", changed("fedmd", lambda h: {"digest_epochs": 0})),
    "logits of the model before": ("fedmd", twisted("fedmd", upload=before_training)),
    "probabilities of the model before": ("dsfl", twisted("dsfl", upload=before_training)),
    "never sharpened": ("dsfl", changed("dsfl", lambda h: {"aggregation": "sa"})),
    "student from the unweighted mean": ("feddf", twisted("feddf", server_step=unweighted)),
}


@pytest.mark.parametrize(("name", "make"), MUTANTS.values(), ids=MUTANTS)
def test_a_wrong_algorithm_is_noticed(name: str, make: Make) -> None:
    assert any(noticed(check, make) for check in CHECKS[name]), f"every check of {name} passes"


def test_a_generator_trained_in_round_1_is_noticed() -> None:
    (check,) = [check for check in CHECKS["fedkf"] if "untrained in round 1" in check.title]
    assert noticed(check, twisted("fedkf", upload=unlike_plan(round=2)))


def of_one_draw(fed: Any) -> Any:
    """The federation, which initialises the same network for all."""
    other = copy(fed)
    other.initialised = lambda *keys: fed.initialised("all")
    return other


def first_of_all(right: Any, fed: Any, *given: Any) -> Any:
    return right.init_client(of_one_draw(fed), *given)


def one_generator(right: Any, fed: Any, message: Any, memory: Any, generator: Any) -> Any:
    return right.start(fed, message, memory, torch.Generator().manual_seed(0))


def other_samples(right: Any, fed: Any, *given: Any) -> Any:
    return right.server_step(replace(fed, public=fed.validation), *given)


def wide_layers(right: Any, fed: Any, params: Any) -> Any:
    server = right.init_server(fed, params)
    tgp = {name: 2 * value for name, value in server.extra["tgp"].items()}
    return replace(server, extra={**server.extra, "tgp": tgp})


def asked_twice(right: Any, fed: Any, server: Any) -> Any:
    message = right.broadcast(fed, server)
    asked = message["asked"].clone()
    asked[1] = asked[0]
    return {**message, "asked": asked}


def counted_once_more(right: Any, *given: Any) -> Any:
    message = right.broadcast(*given)
    return {**message, "floats": message["floats"] + 1}


def sent_once_more(right: Any, *given: Any) -> Any:
    upload, memory = right.upload(*given)
    return {**upload, "floats": upload["floats"] + 1}, memory


def low_labels(right: Any, *given: Any) -> Any:
    return right.noise(*given) ** 1.5


def counting_padding(right: Any, net: Any, local: Any, batch: Any, *rest: Any) -> Any:
    return right.local_loss(net, local, batch, *rest).mean()


# What is wrong -> the algorithm, words of the title of the check for it, and the wrong algorithm.
BY_ONE_CHECK: dict[str, tuple[str, str, Make]] = {
    "one network of all clients": (
        "fedproto",
        "weights of its own",
        twisted("fedproto", init_client=first_of_all),
    ),
    "one network of all local clients": (
        "local",
        "weights of its own",
        twisted("local", init_client=first_of_all),
    ),
    "weights of its own are w_0": (
        "fedproto",
        "weights of its own",
        changed("fedproto", lambda h: {"own_weights": False}),
    ),
    "one previous model of all clients": (
        "moon",
        "of each client its own",
        twisted("moon", init_client=first_of_all),
    ),
    "one generator of all clients": (
        "fedkf",
        "a generator of its own",
        twisted("fedkf", start=one_generator),
    ),
    "labels too often the first": (
        "fedgen",
        "200 generated labels, label_prior=uniform",
        twisted("fedgen", noise=low_labels),
    ),
    "distilled on other samples": (
        "feddf",
        "8 batches of 5",
        twisted("feddf", server_step=other_samples),
    ),
    "smaller batches": (
        "feddf",
        "8 batches of 5",
        changed("feddf", lambda h: {"server_batch_size": h["server_batch_size"] - 1}),
    ),
    "patient for a step longer": (
        "feddf",
        "the search ends",
        changed("feddf", lambda h: {"patience": h["patience"] + 1}),
    ),
    "impatient by a step": (
        "feddf",
        "the best checkpoint is kept",
        changed("feddf", lambda h: {"patience": h["patience"] - 1}),
    ),
    "validated in every step": (
        "feddf",
        "validated every 4th step",
        changed("feddf", lambda h: {"check_every": 1}),
    ),
    "layers drawn too wide": (
        "fedtgp",
        "prototypes, loss and gradient",
        twisted("fedtgp", init_server=wide_layers),
    ),
    "a sample asked for twice": (
        "fedmd",
        "two batches",
        twisted("fedmd", broadcast=asked_twice),
    ),
    "a float too many sent to all": (
        "fedkd",
        "all clients take part",
        twisted("fedkd", broadcast=counted_once_more),
    ),
    "a float too many uploaded": (
        "fedkd",
        "an upload and its floats",
        twisted("fedkd", upload=sent_once_more),
    ),
    "a class is missing": (
        "fedrs",
        "alpha=0.5",
        changed("fedrs", lambda h: {"missing_scale": 1.0}),
    ),
    "one answer drawn a round": (
        "feddkd",
        "7 of 10 answers are missing",
        twisted("feddkd", _answering=drawn_once),
    ),
    "too few answers are missing": (
        "feddkd",
        "7 of 10 answers are missing",
        changed("feddkd", lambda h: {"dkd_dropout": 0.6 * h["dkd_dropout"]}),
    ),
    "requests before the warm-up ends": (
        "feddkd",
        "rounds without requests",
        changed("feddkd", lambda h: {"warmup_rounds": 1}),
    ),
    "requests that are augmented": (
        "feddkd",
        "server step, J=2",
        changed("feddkd", lambda h: {"dkd_augmented": True}),
    ),
    "answers that are missing": (
        "feddkd",
        "server step, J=2",
        changed("feddkd", lambda h: {"dkd_dropout": 0.5}),
    ),
    "an adversarial generator": (
        "fedkf",
        "paper: generator's step",
        changed("fedkf", lambda h: {"adversarial": True}),
    ),
    "padding counts": (
        "fedavg",
        "loss and gradient, round 1",
        twisted("fedavg", local_loss=counting_padding),
    ),
    "one request more": (
        "feddkd",
        "J=0 is the mean",
        changed("feddkd", lambda h: {"steps": h["steps"] + 1}),
    ),
}


@pytest.mark.parametrize("case", BY_ONE_CHECK)
def test_a_fault_is_noticed_by_its_check(case: str) -> None:
    name, words, make = BY_ONE_CHECK[case]
    (check,) = [check for check in CHECKS[name] if words in check.title]
    assert noticed(check, make)


@pytest.mark.parametrize("axes", [2, 4], ids=["linear", "convolution"])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_generators_drawn_at_another_width_are_noticed(axes: int, factor: float) -> None:
    """Widths of the first weights: those of the linear layer, or of the convolutions."""

    def start(right: Any, *given: Any) -> Any:
        local = right.start(*given)
        drawn = local["theta"]
        other = {name: w * factor if w.dim() == axes else w for name, w in drawn.items()}
        return {**local, "theta": other}

    (check,) = [check for check in CHECKS["fedkf"] if "first weights" in check.title]
    assert noticed(check, twisted("fedkf", start=start))


def test_nothing_is_near_what_cannot_be_compared() -> None:
    one, nan = torch.ones(2), torch.tensor([1.0, math.nan])
    assert gap({"a": one}, {"a": one}) == 0
    assert gap([one], [one + 0.5]) == 0.5
    for got in (
        {"a": nan},
        {"a": torch.ones(3)},
        {"b": one},
        {},
        {"a": one, "b": one},
        one,
        {"a": 1.0},
    ):
        assert gap(got, {"a": one}) == math.inf


def softmax(z: np.ndarray, temperature: float) -> np.ndarray:
    e = np.exp(z / temperature - (z / temperature).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_formulas_have_the_derivatives_of_the_textbook(temperature: float) -> None:
    """By the logits: p - onehot(y) of the cross entropy, (p - p^T) / T of KL; values and grads in plain numpy."""
    draw = np.random.RandomState(7)
    z, teacher, y = draw.randn(5, 4), draw.randn(5, 4), draw.randint(0, 4, 5)
    leaf = torch.tensor(z, requires_grad=True)
    losses = (
        written_anew.cross_entropy(leaf, torch.tensor(y)),
        written_anew.kl(torch.tensor(teacher), leaf, temperature),
    )
    p, p_t, q = softmax(z, 1.0), softmax(z, temperature), softmax(teacher, temperature)
    values = (-np.log(p[np.arange(5), y]), (q * (np.log(q) - np.log(p_t))).sum(1))
    grads = (p - np.eye(4)[y], (p_t - q) / temperature)
    for loss, value, grad in zip(losses, values, grads, strict=True):
        np.testing.assert_allclose(loss.detach(), value, rtol=0, atol=TOLERANCE)
        found = torch.autograd.grad(loss.sum(), leaf)[0]
        np.testing.assert_allclose(found, grad, rtol=0, atol=TOLERANCE)


def test_the_engines_mean_is_weighted_by_examples() -> None:
    simulation = simulate("fedavg", participation=1.0)
    sizes, total = (21, 13, 9, 5), 48
    tree = {"a": torch.arange(8, dtype=torch.float64).view(4, 2)}
    cohort = simulation._cohort([SimpleNamespace(client=k, params={}) for k in range(4)], 0.1)
    expected = sum(size / total * np.array([2.0 * k, 2.0 * k + 1]) for k, size in enumerate(sizes))
    np.testing.assert_allclose(cohort.mean(tree)["a"], expected, atol=1e-12)
    among = torch.tensor([1.0, 0.0, 0.0, 1.0])
    expected = (21 * np.array([0.0, 1.0]) + 5 * np.array([6.0, 7.0])) / 26
    np.testing.assert_allclose(cohort.mean(tree, among)["a"], expected, atol=1e-12)


@pytest.mark.usefixtures("_published_widths")
@pytest.mark.parametrize(("shape", "quarter"), [((3, 32, 32), (8, 8)), ((1, 28, 30), (7, 8))])
def test_generated_images_are_those_of_the_layers_in_the_code(
    shape: tuple[int, int, int], quarter: tuple[int, ...]
) -> None:
    """Upsampling and convolutions of torch's modules, values and gradients."""
    draw = torch.Generator().manual_seed(0)
    theta = image_generator(draw, torch.zeros((), dtype=torch.float64), input_shape=shape, noise=5)
    theta = {
        name: value + 0.1 * torch.randn(value.shape, generator=draw)
        for name, value in theta.items()
    }
    up = nn.Upsample(scale_factor=2)
    layers = nn.Sequential(
        nn.Linear(5, 128 * quarter[0] * quarter[1]),
        nn.Unflatten(1, (128, *quarter)),
        *(nn.BatchNorm2d(128), up, nn.Conv2d(128, 128, 3, padding=1)),
        *(nn.BatchNorm2d(128, 0.8), nn.LeakyReLU(0.2), up, nn.Conv2d(128, 64, 3, padding=1)),
        *(
            nn.BatchNorm2d(64, 0.8),
            nn.LeakyReLU(0.2),
            nn.Conv2d(64, shape[0], 3, padding=1),
            nn.Sigmoid(),
        ),
    ).double()
    order = ["in", "norm0", "conv1", "norm1", "conv2", "norm2", "conv3"]
    names = [f"{layer}.{kind}" for layer in order for kind in ("weight", "bias")]
    with torch.no_grad():
        for parameter, name in zip(layers.parameters(), names, strict=True):
            parameter.copy_(theta[name])
    z, seen = (
        torch.randn(6, 5, generator=draw).double(),
        torch.randn(6, *shape, generator=draw).double(),
    )

    def value(theta: dict[str, Tensor]) -> Tensor:
        return (generated_images(theta, z, shape) * seen).sum()

    expected = layers(z)[..., : shape[1], : shape[2]]
    torch.testing.assert_close(generated_images(theta, z, shape), expected)
    grads = torch.autograd.grad((expected * seen).sum(), list(layers.parameters()))
    torch.testing.assert_close(torch.func.grad(value)(theta), dict(zip(names, grads, strict=True)))
