"""Settings, spaces and table of FedProto (Tan et al. 2022), MNIST alone: Table 1, Appendix A.

Printed: n, clients, participation, about 100 samples of a class, SGD's lr and momentum, epochs,
lambda, channels of unlike models. From the authors' code: the numbers of classes and samples and
how they are drawn, own weights of each client, batch size 4 (Appendix A prints 8), no short last
batch, normalisation, the network with its dropout, 100 rounds. Settled here: a client's own tests
are held out of its samples (`bench.data.dealing.fedproto`), 40 of 140 of all its classes together;
and FedProx's mu, which neither states: its term has no gradient in the code.

Not expressed by a `Setting`:
    - Clients 0 to 6 have 18 channels, 7 to 13 have 20, the others 22. Here client k has the model
      at place k modulo 3. As many clients have each, and classes are drawn for each client alike.
    - The table's numbers after +- are between clients: they are stored as `client_std`. FedProto's
      are ten times smaller than the others'. The code that is public counts right answers on
      through all clients, and through both predictions, so that a client's accuracy is a mean of
      all clients' before it: 0.5 to 1.2 between these, where clients differ by 2 (docs/papers.md).
    - FedAvg's and FedProx's rows are of 150 and 110 rounds; all run 100 here. Whose model they
      measure, and how long Local trains, is not stated; here it is the global model, and as long.
    - FeSEM and FedPer, which this suite does not have; FedRep. FEMNIST, and CIFAR-10 on a
      pretrained ResNet-18.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.bounds import Value
from search_spaces.setting import Paper, PaperTable, Setting, Space, crossed

PAPER = Paper(
    key="fedproto",
    title="FedProto: Federated Prototype Learning across Heterogeneous Clients",
    authors="Tan et al.",
    year=2022,
)

MNIST = Setting(
    dataset="mnist",
    model="cnn_fedproto",
    partition="fedproto",
    alpha=None,
    classes_per_client=3,
    num_clients=20,
    participation=1.0,
    rounds=100,
    local_epochs=1,
    step_rule="whole_epochs",
    batch_size=4,
    optimizer="sgd",
    lr=0.01,
    momentum=0.5,
    local_test_fraction=2 / 7,
    evaluate_personal="last",
)
SETTINGS = (MNIST,)

_OWN_WEIGHTS: dict[str, Value] = {"own_weights": True}

SPACES = (
    Space("local", MNIST, fixed=_OWN_WEIGHTS, source="code: own weights of each client"),
    Space("fedprox", MNIST, source="mu is not stated: the default"),
    Space("fedavg", MNIST, source="Table 1"),
    Space(
        "fedproto",
        MNIST,
        fixed={"proto_weight": 1.0, **_OWN_WEIGHTS},
        source="lambda: Appendix A; own weights of each client, forms of distance and mean: code",
    ),
)

_WAYS = crossed(MNIST, classes_per_client=(3, 4, 5))
_UNLIKE = "cnn_fedproto_18/cnn_fedproto/cnn_fedproto_22"
TABLES = (
    PaperTable(
        "1",
        (*_WAYS, *(replace(setting, client_models=_UNLIKE) for setting in _WAYS)),
        ("local", "fedprox", "fedavg", "fedproto"),
    ),
)
