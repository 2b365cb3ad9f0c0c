"""What an engine refuses beyond the common tree in ``agentkv/errors.py``.

EngineError
└── NoGpu                    15   layers for a GPU, in a build of llama.cpp that uses none
"""

from __future__ import annotations

from agentkv.errors import EngineError


class NoGpu(EngineError):
    """Layers were to be put on a GPU, and the build of llama.cpp uses none: it would ignore that without a word.

    What it computed would then be stored under a setting that had no effect, apart from what the CPU stored before.
    """

    exit_code = 15

    def __init__(self, gpu_layers: int) -> None:
        super().__init__(
            f"gpu_layers = {gpu_layers:,}, but this build of llama.cpp uses no GPU and would ignore that. Leave it out "
            "(gpu_layers=0, --gpu-layers 0, unset AGENTKV_GPU_LAYERS, `agentkv settings --unset gpu-layers`), or "
            "install llama-cpp-python built for the GPU."
        )
        self.gpu_layers = gpu_layers
