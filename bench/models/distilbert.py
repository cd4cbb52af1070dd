"""DistilBERT as a body: token ids to 768 features.

Source: Sanh et al. 2019, https://arxiv.org/abs/1910.01108. Inputs are ids (B, L) int64 of the
lower-cased vocabulary, padded with 0. The hidden state of the first token, [CLS], goes through
Linear-ReLU-Dropout(0.2), as in transformers' own classifier and in FedGKD's code.
"""

from __future__ import annotations

import math
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.data.dataset import PAD
from bench.errors import EnvironmentProblem
from bench.models import weights
from bench.models.registry import TOKENS, WORDS

if TYPE_CHECKING:
    from transformers import DistilBertConfig

ATTENTION = "fedkd_bench"  # the name under which transformers finds `_attention`
COMMON = {
    "vocab_size": WORDS,
    "max_position_embeddings": TOKENS,
    "pad_token_id": PAD,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "seq_classif_dropout": 0.2,
    "attn_implementation": ATTENTION,
}
BASE = {"dim": 768, "hidden_dim": 3072, "n_layers": 6, "n_heads": 12}
TINY = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}


class DistilBert(nn.Module):
    """Embeddings and encoder of transformers' `DistilBertModel`, then a dense layer.

    Args:
        config: configuration of the encoder; all weights are drawn from torch's current generator.
    """

    def __init__(self, config: DistilBertConfig) -> None:
        from transformers import DistilBertModel

        super().__init__()
        self.encoder = DistilBertModel(config)
        # As a buffer the positions would stay on the CPU; without it they are made on the device of
        # the tokens.
        del self.encoder.embeddings.position_ids
        self.dense = nn.Linear(config.dim, config.dim)
        self.dropout = nn.Dropout(config.seq_classif_dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (B, L) int64 to features (B, D)."""
        # The two parts are called, because the whole encoder reads the mask's values, which vmap
        # does not allow.
        hidden = self.encoder.embeddings(ids)
        padding = (ids == PAD)[:, None, None].to(hidden.dtype)
        mask = padding * torch.finfo(hidden.dtype).min
        hidden = self.encoder.transformer(hidden, mask).last_hidden_state
        features: Tensor = self.dropout(torch.relu(self.dense(hidden[:, 0])))
        return features

    def add_factors(self, rank: int) -> None:
        """Freeze the encoder and add trainable factors of this rank (LoRA).

        They are added to each attention's query and value. The dense layer, which no pretrained
        weights cover, stays trainable, like the classifier.
        """
        self.encoder.requires_grad_(False)
        for layer in self.encoder.transformer.layer:
            attention: Any = layer.attention
            attention.q_lin = LowRank(attention.q_lin, rank)
            attention.v_lin = LowRank(attention.v_lin, rank)


class LowRank(nn.Module):
    """A frozen linear layer with trainable factors: x W' + b + x A' B'.

    Source: Hu et al. 2022, LoRA, Eq. 3. The factors are not scaled: the paper's alpha is the rank.
    As in its code, A is drawn as a linear layer's weights are and B is zero, so that the layer
    begins as the frozen one.

    Args:
        layer: the linear layer, whose weights and names are kept.
        rank: r; A is (r, inputs), B is (outputs, r).
    """

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias
        self.lora_a = nn.Parameter(torch.empty(rank, layer.in_features))
        self.lora_b = nn.Parameter(torch.zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., inputs) to (..., outputs)."""
        change = F.linear(F.linear(x, self.lora_a), self.lora_b)
        return F.linear(x, self.weight, self.bias) + change


def pretrained(tokens: int, batchnorm: bool) -> nn.Module:
    """Build DistilBERT with the weights of distilbert-base-uncased; only the dense layer is random.

    Raises:
        EnvironmentProblem: the weights are not here (`weights.fetch` fetches them), or are damaged.
    """
    from safetensors.torch import load_file

    body = _build(BASE)
    file = weights.here()
    try:
        prefix = "distilbert."  # the file has the head for masked words as well
        encoder = {
            name.removeprefix(prefix): value
            for name, value in load_file(file).items()
            if name.startswith(prefix)
        }
        body.encoder.load_state_dict(encoder)
    except Exception as error:
        why = shorten(str(error), 200)
        raise EnvironmentProblem(
            f"{file} does not hold the weights of {weights.TITLE}; delete it and run "
            f"`python -m bench.data prepare {weights.PRETRAINED}`, which fetches it anew ({why})"
        ) from error
    return body


def scratch(tokens: int, batchnorm: bool) -> nn.Module:
    """Build DistilBERT with random weights."""
    return _build(BASE)


def tiny(tokens: int, batchnorm: bool) -> nn.Module:
    """Build the same architecture with 2 layers of width 32 and random weights."""
    return _build(TINY)


def _build(sizes: dict[str, int]) -> DistilBert:
    from transformers import AttentionInterface, DistilBertConfig

    AttentionInterface.register(ATTENTION, _attention)
    config: dict[str, Any] = {**COMMON, **sizes}
    return DistilBert(DistilBertConfig(**config))


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Return softmax(scaling q k' + mask) v of (B, heads, L, .) tensors, and the weights.

    The weights are those after the module's dropout. Transformers' own functions draw dropout masks
    that can neither be vmapped nor repeated.
    """
    shares = (query @ key.transpose(2, 3) * scaling + attention_mask).softmax(-1)
    shares = module.dropout(shares)  # type: ignore[operator]
    return (shares @ value).transpose(1, 2), shares
