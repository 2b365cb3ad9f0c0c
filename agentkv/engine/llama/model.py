"""A model that llama.cpp has loaded: its weights, vocabulary and LoRA adapters, and what identifies its states.

The content half of a fingerprint must match or a block is refused; the numerics half must match for ``exact``. Threads,
window size and batch split are in neither: with flash attention off on a CPU the bits were measured not to depend on
them. With flash attention on they depend on threads (from the first single token on) and on the batch split, so both
are part of the numerics there, and on a GPU, where neither was measured.
"""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path
from typing import Any

import llama_cpp

from agentkv.engine.base import ModelInfo
from agentkv.engine.llama.native import clear_log, interrupts_kept, last_log, start_backend
from agentkv.engine.settings import EngineSettings, require_gpu
from agentkv.errors import ModelUnreadable, NativeRefusal
from agentkv.io.hashing import file_sha256
from agentkv.models import gguf_check
from agentkv.records import Fingerprint

STATE_FORMAT = 1
"""Revision of the state as agentkv stores it: shared cells, whole context, masked rows zeroed."""


class LlamaModel:
    """The GGUF at ``path``, already checked, with the adapters of ``settings``. Raises ModelUnreadable, NoGpu.

    ``native``: llama.cpp's model, None once closed; ``vocab``: its vocabulary. ``adapters``: native LoRA adapters with
    their scales. ``lora_ids``: ``"<sha256>*<scale>"`` each, in order.
    """

    def __init__(self, path: Path, settings: EngineSettings, name: str | None, sha256: str | None) -> None:
        start_backend()
        require_gpu(settings, bool(llama_cpp.llama_supports_gpu_offload()))
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = settings.gpu_layers
        clear_log()
        self.native: Any = None
        try:
            with interrupts_kept() as interrupts:
                go_on = llama_cpp.llama_progress_callback(lambda share, data: not interrupts)
                params.progress_callback = go_on
                self.native = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
            if not self.native:
                raise ModelUnreadable(path, last_log())
            if llama_cpp.llama_model_has_encoder(self.native) or llama_cpp.llama_model_is_diffusion(self.native):
                raise ModelUnreadable(path, "not a causal model: it has no KV cache to store")
            self.vocab: Any = llama_cpp.llama_model_get_vocab(self.native)
            self.info = self._described(path, name or path.stem, sha256 or file_sha256(path))
            self.adapters = [(self._adapter(file), scale) for file, scale in settings.lora]
            self.lora_ids = [f"{file_sha256(file)}*{float(scale)!r}" for file, scale in settings.lora]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the native memory; may be called twice."""
        if self.native:
            llama_cpp.llama_model_free(self.native)
        self.native = None

    @property
    def sliding_window(self) -> int:
        """Positions that a windowed layer attends to, 0 for none."""
        return int(llama_cpp.llama_model_n_swa(self.native))

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """See :meth:`agentkv.engine.base.Engine.tokenize`."""
        data = text.encode("utf-8", "replace")
        capacity = len(data) + 16
        buffer = (llama_cpp.llama_token * capacity)()
        n = llama_cpp.llama_tokenize(self.vocab, data, len(data), buffer, capacity, False, special)
        if n < 0:
            raise NativeRefusal("llama_tokenize", f"{-n} tokens for {len(data)} bytes")
        return list(buffer[:n])

    def is_end(self, token: int) -> bool:
        """Whether the model ends its turn with this token."""
        return bool(llama_cpp.llama_vocab_is_eog(self.vocab, token))

    def is_control(self, token: int) -> bool:
        """Whether this is a control token."""
        return bool(llama_cpp.llama_vocab_is_control(self.vocab, token))

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token, which must be one of the vocabulary; those of a control token only if ``special``."""
        buffer = ctypes.create_string_buffer(64)
        n = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[:n]

    def _adapter(self, file: Path) -> Any:
        gguf_check(file)
        with interrupts_kept():
            adapter = llama_cpp.llama_adapter_lora_init(self.native, str(file).encode())
        if not adapter:
            raise ModelUnreadable(file, f"not a LoRA adapter of this model ({last_log()})")
        return adapter

    def _described(self, path: Path, name: str, sha256: str) -> ModelInfo:
        model, vocab = self.native, self.vocab
        template = llama_cpp.llama_model_chat_template(model, None)
        bos, eos = llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab)
        return ModelInfo(
            name=name,
            architecture=self._metadata(b"general.architecture") or path.stem,
            sha256=sha256,
            train_window=llama_cpp.llama_model_n_ctx_train(model),
            n_vocab=llama_cpp.llama_vocab_n_tokens(vocab),
            chat_template=template.decode("utf-8", "replace") if template else None,
            bos=bos if bos >= 0 else None,
            bos_text=self._text(bos),
            eos_text=self._text(eos),
            add_bos=bool(llama_cpp.llama_vocab_get_add_bos(vocab)),
            n_params=llama_cpp.llama_model_n_params(model),
            spec=str(path),
        )

    def _text(self, token: int) -> str:
        return self.token_bytes(token, special=True).decode("utf-8", "replace") if token >= 0 else ""

    def _metadata(self, key: bytes) -> str | None:
        buffer = ctypes.create_string_buffer(256)
        length = llama_cpp.llama_model_meta_val_str(self.native, key, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if length >= 0 else None


def cpu_features() -> list[str]:
    """The instruction sets that this build of llama.cpp uses, as it reports them, sorted."""
    text = llama_cpp.llama_print_system_info().decode("utf-8", "replace")
    return sorted({name for name, on in re.findall(r"([A-Z0-9_]+) = (\d+)", text) if on != "0"})


def llama_fingerprint(model_sha256: str, settings: EngineSettings, lora: list[str], v_trans: bool) -> Fingerprint:
    """The fingerprint of one model under one set of settings. ``lora``: see :class:`LlamaModel`."""
    content: dict[str, Any] = {
        "engine": "llama.cpp",
        "model_sha256": model_sha256,
        "kv_type": settings.kv_type,
        "flash_attention": settings.flash_attention,
        "v_trans": v_trans,
        "swa_full": True,
        "rope_freq_base": settings.rope_freq_base,
        "rope_freq_scale": settings.rope_freq_scale,
        "lora": lora,
        "state_format": STATE_FORMAT,
    }
    pinned = settings.flash_attention or settings.gpu_layers
    numerics: dict[str, Any] = {
        "llama_cpp": llama_cpp.__version__,
        "machine": platform.machine(),
        "features": cpu_features(),
        "gpu_layers": settings.gpu_layers,
        "batch": settings.batch if pinned else None,
        "threads": settings.n_threads if pinned else None,
    }
    return Fingerprint(content=content, numerics=numerics)
