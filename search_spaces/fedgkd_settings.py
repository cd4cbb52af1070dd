"""The problems of FedGKD (Yao et al. 2021): Tables 3-9, section 5.1.

Printed: model, optimiser, lr, momentum, weight decay, rounds, epochs, batch size, clients, sizes of the training sets.
From the authors' code: gradients clipped to norm 10, no weight decay on the norm layers of blocks and stem, a constant
lr, flips and crops, the normalisation, Adam's eps, the last tenth of CIFAR's files as validation split and SST-5's own
development set. Settled here: which samples of Tiny-ImageNet and of AG News validate (drawn ones; of AG News as many as
a tenth of the training set, from the half that training leaves unused).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.setting import Setting

CIFAR10 = Setting(
    dataset="cifar10",
    model="resnet8",
    partition="fedgkd_groups",
    alpha=0.5,
    num_clients=20,
    participation=0.2,
    rounds=100,
    local_epochs=20,
    batch_size=64,
    optimizer="sgd",
    lr=0.05,
    momentum=0.9,
    weight_decay=1e-5,
    decay_exempt="norm_but_shortcut",
    clip_norm=10.0,
    augmentation="flip_crop",
    normalization="fedgkd",
    validation_fraction=0.1,
    validation_rule="last",
)
CIFAR100 = replace(CIFAR10, dataset="cifar100")
TINY_IMAGENET = replace(CIFAR10, dataset="tiny_imagenet", model="resnet50", rounds=30, validation_rule="random")

# 60,000 of the 120,000 samples are trained on, 3,000 a client; 4 of 20 clients a round.
AG_NEWS = Setting(
    dataset="ag_news",
    model="distilbert",
    partition="fedgkd_groups",
    alpha=0.1,
    num_clients=20,
    participation=0.2,
    rounds=10,
    local_epochs=1,
    batch_size=64,
    optimizer="adam",
    lr=1e-5,
    adam_eps=1e-3,
    clip_norm=10.0,
    normalization="none",
    fraction=0.55,
    validation_fraction=1 / 11,
)
# All 8,544 training sentences, 854 a client; the 1,101 of the development set follow them in the data set's training
# part. 4 of 10 clients a round.
SST5 = replace(
    AG_NEWS,
    dataset="sst5",
    num_clients=10,
    participation=0.4,
    local_epochs=3,
    fraction=1.0,
    validation_fraction=1101 / 9645,
    validation_rule="last",
)
