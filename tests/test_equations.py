"""Each loss and its gradient against the printed formula, written anew in numpy (float64, 1e-10).

The network is one linear layer, z = W x + b, so that dL/dz from the formula gives dL/dW = (dL/dz)^T x exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from algorithms import ALGORITHMS, build
from algorithms.base import Algorithm, Batch, Data, Outputs, Plan, Server

B, C, D = 5, 4, 3
TOLERANCE = 1e-10


class Linear:
    """A stand-in for the network: logits W x + b, features x."""

    trainable = ("weight", "bias")
    names = trainable
    num_classes = C

    def __call__(self, params: dict[str, torch.Tensor], x: torch.Tensor) -> Outputs:
        """Logits and features (B, D)."""
        return Outputs(x @ params["weight"].T + params["bias"], x)

    eval = __call__  # no mode to tell apart


@dataclass
class Case:
    """One batch, three models, all drawn once."""

    def __post_init__(self) -> None:
        draw = np.random.RandomState(7)
        self.x, self.y = draw.randn(B, D), draw.randint(0, C, B)
        self.local, self.received, self.older = ((draw.randn(C, D), draw.randn(C)) for _ in range(3))
        self.auxiliary_x, self.auxiliary_y = draw.randn(3 * C, D), np.repeat(np.arange(C), 3)


@pytest.fixture
def case() -> Case:
    return Case()


def tensors(model: tuple[np.ndarray, np.ndarray], grad: bool = False) -> dict[str, torch.Tensor]:
    return {n: torch.tensor(v, requires_grad=grad) for n, v in zip(("weight", "bias"), model, strict=True)}


def evaluate(algorithm: Algorithm, case: Case, server: Server | None = None, round_: int = 2) -> tuple[float, dict]:
    """The library's loss, averaged as the engine does, and its gradient."""
    net = Linear()
    data = Data(torch.tensor(case.auxiliary_x), torch.tensor(case.auxiliary_y), torch.ones(len(case.auxiliary_y)))
    fed = SimpleNamespace(net=net, num_classes=C, auxiliary=data)
    server = server or Server(tensors(case.received), round_ - 1)
    message = algorithm.broadcast(fed, server)
    x, y = torch.tensor(case.x), torch.tensor(case.y)
    teachers = {name: net.eval(w, x) for name, w in algorithm.teachers(message, {}).items()}
    local = {"params": tensors(case.local, grad=True)}
    batch = Batch(x, y, torch.ones(B), {}, teachers)
    plan = Plan(round_, 0.1, 0.0, "sgd", torch.tensor(1.0))
    loss = algorithm.local_loss(net, local, batch, message, {}, plan).mean()
    grads = torch.autograd.grad(loss, list(local["params"].values()))
    return loss.item(), dict(zip(("weight", "bias"), (g.numpy() for g in grads), strict=True))


def softmax(z: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    e = np.exp(z / temperature - (z / temperature).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logits(model: tuple[np.ndarray, np.ndarray], x: np.ndarray) -> np.ndarray:
    return x @ model[0].T + model[1]


def check(got: tuple[float, dict], loss: float, slope: np.ndarray, case: Case, extra: dict | None = None) -> None:
    """`slope` is d(mean loss)/dz, (B, C)."""
    expected = {"weight": slope.T @ case.x, "bias": slope.sum(0)}
    for name, more in (extra or {}).items():
        expected[name] = expected[name] + more
    assert abs(got[0] - loss) < TOLERANCE
    for name, value in expected.items():
        np.testing.assert_allclose(got[1][name], value, rtol=0, atol=TOLERANCE)


def ce(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """-log p_y per sample (B,), and its derivative p - onehot(y) by the logits (B, C)."""
    p = softmax(logits(case.local, case.x))
    return -np.log(p[np.arange(B), case.y]), p - np.eye(C)[case.y]


def kd(case: Case, teacher: tuple, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """sum_c p^g_c (log p^g_c - log p_c) per sample (B,), and its derivative (p - p^g) / T (B, C)."""
    p = softmax(logits(case.local, case.x), temperature)
    q = softmax(logits(teacher, case.x), temperature)
    return (q * (np.log(q) - np.log(p))).sum(1), (p - q) / temperature


def test_fedavg(case: Case) -> None:
    loss, slope = ce(case)
    check(evaluate(build("fedavg"), case), loss.mean(), slope / B, case)


@pytest.mark.parametrize("mu", [0.01, 1.0])
def test_fedprox(case: Case, mu: float) -> None:
    loss, slope = ce(case)
    difference = [case.local[i] - case.received[i] for i in range(2)]
    proximal = mu / 2 * sum((d**2).sum() for d in difference)
    extra = {"weight": mu * difference[0], "bias": mu * difference[1]}
    check(evaluate(build("fedprox", mu=mu), case), loss.mean() + proximal, slope / B, case, extra)


def test_fedprox_with_each_tensors_mean(case: Case) -> None:
    loss, slope = ce(case)
    difference = [case.local[i] - case.received[i] for i in range(2)]
    proximal = 10.0 / 2 * sum((d**2).mean() for d in difference)
    extra = {name: 10.0 * d / d.size for name, d in zip(("weight", "bias"), difference, strict=True)}
    got = evaluate(build("fedprox", mu=10.0, prox_reduction="mean_per_tensor"), case)
    check(got, loss.mean() + proximal, slope / B, case, extra)


@pytest.mark.parametrize("gamma", [0.1, 0.2])
def test_fedgkd_distils_from_the_mean_of_its_buffer(case: Case, gamma: float) -> None:
    history = (tensors(case.older), tensors(case.received))
    server = Server(tensors(case.received), 2, {"fedgkd_history": history})
    teacher = tuple((case.older[i] + case.received[i]) / 2 for i in range(2))
    (loss, slope), (distance, pull) = ce(case), kd(case, teacher)
    got = evaluate(build("fedgkd", gamma=gamma, buffer=5), case, server, 3)
    check(got, (loss + gamma / 2 * distance).mean(), (slope + gamma / 2 * pull) / B, case)


def test_fedgkd_does_not_distil_in_round_1(case: Case) -> None:
    loss, slope = ce(case)
    server = Server(tensors(case.received), 0, {"fedgkd_history": ()})
    check(evaluate(build("fedgkd"), case, server, 1), loss.mean(), slope / B, case)


def test_fedgkd_has_no_pull_where_student_and_teacher_are_one(case: Case) -> None:
    case.local = case.received
    server = Server(tensors(case.received), 1, {"fedgkd_history": (tensors(case.received),)})
    loss, slope = ce(case)
    check(evaluate(build("fedgkd", gamma=5.0, buffer=1), case, server), loss.mean(), slope / B, case)


@pytest.mark.parametrize(("t_squared", "factor"), [(False, 1.0), (True, 4.0)])
def test_fedlsd(case: Case, t_squared: bool, factor: float) -> None:
    (loss, slope), (distance, pull) = ce(case), kd(case, case.received, 2.0)
    got = evaluate(build("fedlsd", distillation_weight=0.3, kd_t_squared=t_squared), case)
    check(got, (0.7 * loss + 0.3 * factor * distance).mean(), (0.7 * slope + 0.3 * factor * pull) / B, case)


def printed_class_weights(case: Case, beta: float, gamma: float, temperature: float) -> np.ndarray:
    """FedCAD's Eq. 6 as printed, with phi = p_y - sum_{k != y} p_k, averaged over each class's auxiliary samples."""
    p = softmax(logits(case.received, case.auxiliary_x), temperature)
    weights = np.empty(C)
    for label in range(C):
        members = p[case.auxiliary_y == label]
        phi = members[:, label] - np.delete(members, label, axis=1).sum(1)
        weights[label] = (gamma - beta) / 2 * phi.mean() + (gamma + beta) / 2
    return weights


@pytest.mark.parametrize(
    ("options", "phi_temperature"), [({}, 2.0), ({"phi_temperature": 1.0}, 1.0), ({"temperature": 3.0}, 3.0)]
)
@pytest.mark.parametrize(("beta", "gamma"), [(0.0, 0.3), (0.3, 0.7), (0.5, 0.5)])
def test_fedcad(case: Case, beta: float, gamma: float, options: dict, phi_temperature: float) -> None:
    temperature = options.get("temperature", 2.0)
    weight = printed_class_weights(case, beta, gamma, phi_temperature)[case.y]
    (loss, slope), (distance, pull) = ce(case), kd(case, case.received, temperature)
    got = evaluate(build("fedcad", beta=beta, gamma=gamma, **options), case)
    expected = ((1 - weight) * loss + weight * distance).mean()
    check(got, expected, ((1 - weight)[:, None] * slope + weight[:, None] * pull) / B, case)


def test_fedcad_class_weights_lie_between_their_bounds(case: Case) -> None:
    weights = printed_class_weights(case, 0.2, 0.6, 2.0)
    assert (weights > 0.2).all()
    assert (weights < 0.6).all()


def test_the_weighted_mean_of_models() -> None:
    from conftest import simulate

    simulation = simulate("fedavg", participation=1.0)
    sizes, total = (21, 13, 9, 5), 48
    tree = {"a": torch.arange(8, dtype=torch.float64).view(4, 2)}
    cohort = simulation._cohort([SimpleNamespace(client=k, params={}) for k in range(4)], 0.1)
    expected = sum(size / total * np.array([2.0 * k, 2.0 * k + 1]) for k, size in enumerate(sizes))
    np.testing.assert_allclose(cohort.mean(tree)["a"], expected, atol=1e-12)
    among = torch.tensor([1.0, 0.0, 0.0, 1.0])
    expected = (21 * np.array([0.0, 1.0]) + 5 * np.array([6.0, 7.0])) / 26
    np.testing.assert_allclose(cohort.mean(tree, among)["a"], expected, atol=1e-12)


def test_every_algorithm_has_an_equation_test() -> None:
    written = set(globals())
    missing = [name for name in ALGORITHMS if not any(test.startswith(f"test_{name}") for test in written)]
    assert not missing, f"write an equation test for {missing}"
