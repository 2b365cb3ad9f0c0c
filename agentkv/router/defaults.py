"""The weights of a router that has learned nothing yet.

Fitted by ``weights.fit`` on the questions that :func:`agentkv.bench.route.fitted_on` names (and none that a benchmark
shows figures of) and on half of the skills' own; NONE's weight is then set where few that fit are lost. A model is
known by the SHA-256 of its file, since how much its word is worth differs from one to the next: the word of a model of
135M parameters whether a skill fits is worth nothing, that of 1.5B much. Other models get the small one's weights.
"""

from __future__ import annotations

from agentkv.router.weights import Weights

_QWEN_CODER = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"

_PLAIN = Weights(channel=1.0, card=0.0, text=10.0, asked=4.0, none=1.2)
_WITH_MEANING = Weights(channel=2.9, card=0.0, text=0.0, asked=0.0, meaning=19.0, asked_meaning=7.0, none=4.8)
_OF_MODEL = {
    (_QWEN_CODER, False): Weights(channel=4.5, fits=1.35, card=0.0, text=3.3, asked=4.0, none=1.5),
    (_QWEN_CODER, True): Weights(
        channel=4.0, fits=1.3, card=0.0, text=1.3, asked=0.0, meaning=10.0, asked_meaning=7.0, none=3.2
    ),
}


def default_weights(model_sha256: str, with_meaning: bool) -> Weights:
    """For a model, by the SHA-256 of its file, and for a router with or without an embedder."""
    return _OF_MODEL.get((model_sha256, with_meaning)) or (_WITH_MEANING if with_meaning else _PLAIN)
