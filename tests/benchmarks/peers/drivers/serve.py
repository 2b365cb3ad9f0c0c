"""A llama-server from the wheel ``xllamacpp``, until stdin ends. Run by path in an environment that has it.

``serve.py SETTINGS``: JSON with model, window, threads, folder, rope_freq_base, flash_attention. Writes its address.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> int:
    settings = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the server logs to stdout
    server = importlib.import_module("xllamacpp")
    params = server.CommonParams()
    params.model.path = settings["model"]
    params.n_ctx = settings["window"]
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = 512
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.rope_freq_base = settings["rope_freq_base"]
    kind = server.llama_flash_attn_type
    on, off = kind.LLAMA_FLASH_ATTN_TYPE_ENABLED, kind.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.flash_attn_type = on if settings["flash_attention"] else off
    params.slot_save_path = os.path.join(settings["folder"], "")  # noqa: PTH118 - it has to end with a separator
    params.endpoint_slots = True
    running = server.Server(params)
    out.write(running.listening_address + "\n")
    out.flush()
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
