"""T1, FedKF's plug-in for any algorithm: evaluate the mean of all clients' latest models.

Zhou, Lei, Yang, Shi, Zhang, Shi 2022, section 4.1. https://arxiv.org/abs/2207.11447
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from algorithms.base import Cohort, Fed, Params, Plugin, Server, Upload, hyper
from algorithms.entry import About
from algorithms.fedavg import FedAvg
from algorithms.fedgkd import FedGKD
from algorithms.fedprox import FedProx
from algorithms.model_cache import first_models, with_models
from algorithms.variant import Variant


@dataclass(frozen=True)
class T1(Plugin):
    """The base's run, with one more model evaluated: w^T_t = sum_{k=1..K} n_k w_k / sum_k n_k.

    The sums are over all clients. w^T_t is the paper's OCA (overall clients' average), w_k client
    k's latest local model. Training and traffic are the base's. Server state: `t1_models`,
    `t1_counted` (the cache) and `t1_overall`, the mean.

    Args:
        base: any algorithm whose clients send their model.
        t1_unvisited: clients not yet drawn: `skip` leaves them out, `w0` counts them with the
            initial model.

    Differences from the paper:
        1. The text starts all models at w_0, which with few participants keeps the mean near w_0
           for long; the authors' code counts a client from its first model on, which is the
           default.
        2. The text can be read as sending the overall mean to clients; as in the authors' code it
           is only evaluated.

    Raises:
        ValueError: the base's clients send no model.
    """

    about = About(
        paper="fedkf",
        equations="Section 4.1",
        defaults_follow="the authors' code",
    )

    t1_unvisited: str = hyper("skip", choices=("skip", "w0"), packable=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.base.uploads_model:
            raise ValueError(
                f"T1 averages clients' models, and {type(self.base).__name__} sends none: "
                "take another base"
            )

    @property
    def rows(self) -> tuple[str, ...]:  # type: ignore[override]
        """The rows of the base, and that of the overall mean."""
        return (*self.base.rows, "_t1")

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the base's state, with a cache that holds its model for every client."""
        server = self.base.init_server(fed, params)
        cache = first_models("t1", server.params, fed.num_clients, self.t1_unvisited)
        return replace(server, extra={**server.extra, **cache})

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Take the base's step, and update the overall mean."""
        models = uploads["params"]
        if "params" in self.base.by_model:  # of the one model that all clients have here
            (models,) = models.values()
        cache = with_models("t1", server.extra, models, cohort)
        server = self.base.server_step(fed, server, uploads, cohort)
        return replace(server, extra={**server.extra, **cache})

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return the base's models, and the overall mean."""
        return self.base.evaluated(server) | {"_t1": server.extra["t1_overall"]}


fedavg_t1 = Variant(
    T1,
    FedAvg,
    name="fedavg_t1",
    summary="FedAvg, evaluated by the mean of all clients' latest models",
    rows={"": "fedavg", "_t1": "fedavg_t1"},
)
fedprox_t1 = Variant(
    T1,
    FedProx,
    name="fedprox_t1",
    summary="FedProx, evaluated by the mean of all clients' latest models",
    rows={"": "fedprox", "_t1": "fedprox_t1"},
)
fedgkd_t1 = Variant(
    T1,
    FedGKD,
    fixed={"distance": "kl"},
    name="fedgkd_t1",
    summary="FedGKD, evaluated by the mean of all clients' latest models",
    down=FedGKD.about.down,
    rows={"": "fedgkd", "_t1": "fedgkd_t1"},
)
