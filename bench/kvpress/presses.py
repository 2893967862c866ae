# SPDX-License-Identifier: MIT
"""kvpress's side: one forward pass, and in every layer what each press scores and keeps."""
import math
import torch
from kvpress import (AdaKVPress, ExpectedAttentionPress, KeyDiffPress, KnormPress, ObservedAttentionPress, PyramidKVPress,
                     SnapKVPress, StreamingLLMPress, TOVAPress)
from kvpress.utils import get_prerope_query_states
from transformers.models.llama.modeling_llama import rotate_half

WINDOW, KERNEL, ALPHA = 64, 5, 0.2  # kvpress's defaults

PRESSES = {
    "snapkv": lambda r: SnapKVPress(r, WINDOW, KERNEL),
    "pyramidkv": lambda r: PyramidKVPress(r, WINDOW, KERNEL),
    "adakv": lambda r: AdaKVPress(SnapKVPress(r, WINDOW, KERNEL), ALPHA),
    "tova": TOVAPress,
    "knorm": KnormPress,
    "keydiff": KeyDiffPress,
    "streaming": StreamingLLMPress,
    "observed": ObservedAttentionPress,
    "expected-attention": ExpectedAttentionPress,
}


def ratio(length, capacity):
    """The compression ratio by which kvpress keeps `capacity` of `length`: it rounds length * (1 - ratio) down."""
    r = 1 - capacity / length
    while int(length * (1 - r)) < capacity:
        r = math.nextafter(r, 0)
    assert int(length * (1 - r)) == capacity
    return r


def kept(press, module, scores, length):
    """The positions that the press's own compress() keeps of every KV head, as sorted arrays."""
    scorer = press.press if isinstance(press, AdaKVPress) else press
    places = torch.arange(length, dtype=torch.float32).expand(1, scores.shape[1], length)
    places = places[..., None].expand(-1, -1, -1, module.head_dim)  # in place of the keys: what comes out says what stayed
    scorer.score = lambda *a: scores.clone()
    left, _ = press.compress(module, None, places, places, None, {})
    scorer.__dict__.pop("score")
    if scorer is press:
        return [h.sort().values.long().numpy() for h in left[0, :, :, 0]]
    stays = torch.ones(scores.shape[1:], dtype=torch.bool)
    stays[module.masked_key_indices[1], module.masked_key_indices[2]] = False
    module.masked_key_indices = None
    return [h.nonzero()[:, 0].numpy() for h in stays]


def rotated_queries(module, hidden, cos, sin):
    q = get_prerope_query_states(module, hidden)
    return (q * cos[:, None] + rotate_half(q) * sin[:, None])[0]


def run(model, tokens, capacities):
    """A list of layers: {q, k, v, scores {press: [H][T]}, kept {press, capacity: H arrays}}."""
    layers = [None] * model.config.num_hidden_layers
    T = len(tokens)

    def hook(module, _, kwargs, output):
        hidden, cache = kwargs["hidden_states"], kwargs["past_key_values"].layers[module.layer_idx]
        k, v = cache.keys, cache.values
        at = layers[module.layer_idx] = {"k": k[0].numpy(), "v": v[0].numpy(), "scores": {}, "kept": {},
                                         "q": rotated_queries(module, hidden, *kwargs["position_embeddings"]).numpy()}
        module.config._attn_implementation = "sdpa"  # AdaKVPress refuses eager attention, which observed wants
        for name, make in PRESSES.items():
            attention = output[1] if name == "observed" else None
            for C in capacities:
                press = make(ratio(T, C))
                scorer = press.press if isinstance(press, AdaKVPress) else press
                if name not in at["scores"] or name == "streaming":
                    scores = scorer.score(module, hidden, k, v, attention, kwargs)
                    at["scores"][name] = scores[0].numpy().copy()
                at["kept"][name, C] = kept(press, module, scores, T)
        module.config._attn_implementation = "eager"

    hooks = []
    for layer in model.model.layers:
        layer.self_attn.rotary_emb = model.model.rotary_emb
        hooks.append(layer.self_attn.register_forward_hook(hook, with_kwargs=True))
    with torch.no_grad():
        model.model(torch.tensor([tokens]), use_cache=True)
    for h in hooks:
        h.remove()
    return layers
