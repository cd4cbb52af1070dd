"""The figures that are curves, each with its axes and panels; `bench.figures.table` names them."""

from __future__ import annotations

from dataclasses import replace

from bench.charts.lines import Axis
from bench.figures.curves import COMMUNICATIONS, STEPS, Curves
from bench.figures.sketch import untracked
from leaderboards.metrics import METRICS

_ACCURACY = "Test accuracy of the global model"
_NO_CURVE = "no finished run here has a curve of test accuracy"
_LONG = {"local_epochs": 15}  # of FedDKD's second half of figures

by_round = Curves(_ACCURACY, _NO_CURVE, across=("alpha",), rows=True)

at_equal_communication = Curves(
    _ACCURACY,
    "no finished run here communicates, or none has a curve of it",
    COMMUNICATIONS,
    across=("participation",),
    equal=True,
)
at_equal_steps = Curves(
    _ACCURACY, "no finished run here has a curve of its local steps", STEPS, across=("participation",), equal=True
)
long_at_equal_communication = replace(
    at_equal_communication, where=_LONG, lacking="no finished run here has 15 local epochs"
)
long_at_equal_steps = replace(at_equal_steps, where=_LONG, lacking=long_at_equal_communication.lacking)
# In print the two numbers of epochs have weight decays of their own.
at_equal_steps_by_epochs = replace(
    at_equal_steps,
    lacking="no setting here has finished runs with several numbers of local epochs",
    across=("local_epochs", "weight_decay"),
    several=True,
)

training_loss = Curves(
    "Training loss, that of each algorithm's own local problem, mean over the round's clients",
    "no finished run here has a curve of training loss",
    ys=(Axis("train_loss", "training loss, nats"),),
)

global_and_local = Curves(
    "Accuracy on the test set of the global model, and of its round's clients' own models, mean over these",
    untracked("the accuracy of the clients' own models", "local"),
    ys=(Axis("accuracy", "global accuracy, %", 100), Axis("local_accuracy", "mean local accuracy, %", 100)),
    whole=True,
)

drift = Curves(
    "Of each round's clients, weighted by their training samples: how far local training takes their models from the "
    "one they received, and the mean squared norm of their losses' gradients there over that of the mean gradient",
    untracked("gradients and distances of clients", "drift"),
    ys=(
        Axis("drift/distance", "mean distance of local models"),
        Axis("drift/dissimilarity", "gradient dissimilarity B²"),
    ),
    across=("alpha",),
    whole=True,
)

fairness = Curves(
    "On the clients' own test samples: AMP, accuracy over all of them; FM, variance between clients; WLP, the worst "
    "client's accuracy",
    "no run here keeps samples of its clients to test on: local_test_fraction is 0 in all",
    ys=(Axis("amp", "AMP, %", 100), Axis("fm", "FM, × 0.001", METRICS["fm"].scale), Axis("wlp", "WLP, %", 100)),
    across=("alpha",),
    whole=True,
)
