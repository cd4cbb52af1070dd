"""FedKF (Zhou et al. 2022) with Algorithm 1 as printed, beside `fedkf`, whose spaces follow the authors' later code.

A key of its own, because both are FedKF on the same data. Printed: a generator made anew in every client update and
trained before the student, all K slots from w_0 in the mean (OCA), E passes of each client over its own data. Printed
nowhere, hence the defaults: the length of the noise, and no adversarial term. The rest is `fedkf`'s.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.bounds import Value
from search_spaces.fedkf import PAPER as MAIN
from search_spaces.fedkf import SETTINGS as AS_CODED
from search_spaces.fedkf import tuned_weights

PAPER = replace(MAIN, key="fedkf_printed", title=f"{MAIN.title} (Algorithm 1 as printed)", part_of=MAIN.key)
SETTINGS = tuple(replace(setting, step_rule="epochs") for setting in AS_CODED)
_PRINTED: dict[str, Value] = {
    "lambda_2": 0.1,
    "variant": "paper",
    "generator_lr": 1e-3,
    "teacher": "oca",
    "t1_unvisited": "w0",
}
_SOURCE = "Algorithm 1; lambda_1, lambda_2, gamma, the generator's lr: Section 6.1"
SPACES = tuple(tuned_weights(setting, _PRINTED, _SOURCE) for setting in SETTINGS)
TABLES = ()
