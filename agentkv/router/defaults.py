"""The weights of a router that has learned nothing yet.

Fitted by ``weights.fit`` on the questions that :func:`agentkv.bench.route.fitted_on` names (and none that a benchmark
shows figures of) and on every second of the skills' own, then rounded; NONE's by ``weights.none_losing``, so that at
most 3 in 100 of either lose the right candidate. What that comes to, of questions that fit no candidate: with an
embedder and smollm2-135m 42 of 87 get none beside tools that have but a description, losing 4 of 144, and 43 of 53
beside skills with their texts, losing 1 of 148; with qwen2.5-coder-1.5b 37 of 44, losing 2 of 72, and 90 of 93, losing
3 of 148. Without an embedder and with smollm2-135m none is rarer: 21 of 87, losing 5 of 144, and 33 of 53, losing 2 of
148.

These figures are of version 4, which left out of a question what stands in no text, and nothing else. From the scores
of the committed ``answers`` (148 covered questions of the skills, no embedder), computed again: smollm2-135m 139 right
and 2 lost, as before; qwen2.5-coder-1.5b 138 and 4 lost (3 before), with its NONE at 1.0 instead of 1.5.

Neither of two signals more, how far the second is behind the first and how sure likeness is over the whole library,
would find more of the 87 for the same loss (logistic regression, five folds: 0.39 to 0.48 of them at 3 in 100 lost, the
score alone 0.47).

A model is known by the SHA-256 of its file, since how much its word is worth differs from one to the next: the word of
a model of 135M parameters whether a skill fits is worth nothing and is not asked for, that of 1.5B much. Other models
get the small one's weights.
"""

from __future__ import annotations

from agentkv.router.weights import Weights

_QWEN_CODER = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"

NARROWING = Weights(channel=0.0, card=6.0, text=20.0, asked=6.0, none=0.0)
NARROWING_BY_MEANING = Weights(channel=0.0, card=4.0, text=28.0, asked=2.0, meaning=24.0, none=0.0)
"""What words and meaning say alone, without and with an embedder, in nats. Fitted on the same questions, but words of
cards alone: fitted, they (20) put aside what they know nothing of, 62 of 144 right in place of 74."""

_DOUBT = 0.1
_DOUBT_OF_MODEL = {_QWEN_CODER: 0.02}

_PLAIN = Weights(channel=3.8, card=8.0, text=30.0, asked=4.0, none=0.25)
_WITH_MEANING = Weights(channel=2.6, card=0.0, text=36.0, asked=2.0, meaning=17.0, none=3.5)
_OF_MODEL = {
    (_QWEN_CODER, False): Weights(channel=4.0, fits=1.25, card=6.0, text=36.0, asked=4.0, none=1.0),
    (_QWEN_CODER, True): Weights(channel=3.5, fits=1.25, card=4.0, text=38.0, asked=2.0, meaning=10.0, none=3.25),
}


def default_doubt(model_sha256: str) -> float:
    """What a model reads: candidates that are, by words and meaning, at least so many times as likely as the likeliest.

    The word of a better model overrules more. Of five, smollm2-135m reads 3.3 on the questions above, with 89 of 144
    before NONE (88 if it reads all, 90 at 0.2); qwen2.5-coder-1.5b of four 3.5, with 63 of 72 (all: 63, at 0.1: 59).
    """
    return _DOUBT_OF_MODEL.get(model_sha256, _DOUBT)


def default_weights(model_sha256: str, with_meaning: bool) -> Weights:
    """For a model, by the SHA-256 of its file, and for a router with or without an embedder."""
    return _OF_MODEL.get((model_sha256, with_meaning)) or (_WITH_MEANING if with_meaning else _PLAIN)
