"""Optimisers on the server: FedAvgM and FedAdam.

FedAvgM: Hsu, Qi, Brown 2019. https://arxiv.org/abs/1909.06335. FedAdam: Reddi, Charles, Zaheer,
Garrett, Rush, Konecny, Kumar, McMahan, ICLR 2021, Algorithm 2. https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from algorithms.base import Algorithm, Cohort, Fed, Params, Server, Upload, hyper
from algorithms.entry import About
from algorithms.params import zeros_like


@dataclass(frozen=True)
class FedAvgM(Algorithm):
    """Server momentum: v <- beta v + Delta, w_{t+1} = w_t - eta v.

    Delta = sum_k p_k (w_t - w_k), p_k by examples. Server state: `fedavgm_velocity`, v, zero at the
    start.

    Args:
        server_lr: eta, the server's learning rate.
        server_momentum: beta; 0 with server_lr = 1 is FedAvg.

    Differences from the paper:
        1. The rule is for parameters; buffers are averaged by examples.
    """

    about = About(
        name="fedavgm",
        paper="Hsu et al. 2019",
        equations="Momentum on the server",
        summary="FedAvg with momentum on the server",
    )

    server_lr: float = hyper(1.0, 0, open_low=True)
    server_momentum: float = hyper(0.9, 0, 1, open_high=True)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with velocity 0."""
        return Server(params, extra={"fedavgm_velocity": zeros_like(params, fed.net.trainable)})

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Take one step with momentum."""
        params = cohort.mean(uploads["params"])
        velocity = {}
        for name, old in server.extra["fedavgm_velocity"].items():
            velocity[name] = self.server_momentum * old + (server.params[name] - params[name])
            params[name] = server.params[name] - self.server_lr * velocity[name]
        return server.next(params, fedavgm_velocity=velocity)


@dataclass(frozen=True)
class FedAdam(Algorithm):
    """Server Adam: w_{t+1} = w_t + eta m / (sqrt(v) + tau).

    Here m <- b1 m + (1-b1) Delta and v <- b2 v + (1-b2) Delta^2. Delta = sum_k p_k (w_k - w_t), p_k
    by examples. Server state: `fedadam_mean`, m, zero at the start, and `fedadam_square`, v, tau^2
    at the start; there is no bias correction.

    Args:
        server_lr: eta, the server's learning rate.
        beta1: b1, decay of the mean update.
        beta2: b2, decay of the mean squared update.
        tau: adaptivity, added to the root; v starts at tau^2.

    Differences from the paper:
        1. The rule is for parameters; buffers are averaged by examples.
        2. Delta is weighted by examples, as in FedAvg; Algorithm 2 takes the plain mean of the
           clients.
    """

    about = About(
        name="fedadam",
        paper="Reddi et al. 2021",
        equations="Algorithm 2",
        summary="FedAvg with Adam on the server",
    )

    server_lr: float = hyper(0.01, 0, open_low=True)
    beta1: float = hyper(0.9, 0, 1, open_high=True)
    beta2: float = hyper(0.99, 0, 1, open_high=True)
    tau: float = hyper(1e-3, 0, open_low=True)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with mean 0 and mean square tau^2."""
        names = fed.net.trainable
        square = {name: torch.full_like(params[name], self.tau**2) for name in names}
        return Server(
            params, extra={"fedadam_mean": zeros_like(params, names), "fedadam_square": square}
        )

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Carry out the server's lines of Algorithm 2."""
        params: Params = cohort.mean(uploads["params"])
        mean = {}
        square = {}
        for name in fed.net.trainable:
            old = server.params[name]
            old_mean = server.extra["fedadam_mean"][name]
            old_square = server.extra["fedadam_square"][name]
            delta = params[name] - old
            mean[name] = self.beta1 * old_mean + (1 - self.beta1) * delta
            square[name] = self.beta2 * old_square + (1 - self.beta2) * delta.square()
            root = square[name].sqrt() + self.tau
            params[name] = old + self.server_lr * mean[name] / root
        return server.next(params, fedadam_mean=mean, fedadam_square=square)
