"""Architectures of transformers at the shapes that people run, a few layers of each, with random weights."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from networks import Network

TOKENS, LAYERS, WIDTH, HEADS, WORDS = 128, 4, 256, 4, 4096
COMMON = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
    "vocab_size": WORDS,
}
ENCODERS: Mapping[str, Mapping[str, object]] = {
    "Bert": COMMON,
    "Roberta": COMMON,
    "Electra": COMMON | {"embedding_size": WIDTH},
    "Albert": COMMON | {"embedding_size": 128},
    "DebertaV2": COMMON
    | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 64},
    "MobileBert": COMMON | {"embedding_size": 128, "true_hidden_size": 128, "intra_bottleneck_size": 128},
    "DistilBert": {
        "dim": WIDTH,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "hidden_dim": 4 * WIDTH,
        "vocab_size": WORDS,
    },
    "XLMRoberta": COMMON,
    "MPNet": COMMON,
    "FNet": COMMON | {"use_tpu_fourier_optimizations": False},
}
GROUPED = COMMON | {"num_key_value_heads": 2, "head_dim": WIDTH // HEADS}
DECODERS: Mapping[str, Mapping[str, object]] = {
    "GPT2": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": WORDS},
    "OPT": COMMON | {"ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH},
    "GPTNeoX": COMMON,
    "Llama": GROUPED,
    "Mistral": GROUPED | {"sliding_window": 64},
    "Qwen2": GROUPED,
    "Qwen3": GROUPED,
    "Gemma": GROUPED,
    "Phi": COMMON,
    "Bloom": {"hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": WORDS},
    "Falcon": COMMON,
    "Mamba": {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "vocab_size": WORDS},
}


MASKED = ("Bert", "Roberta", "DistilBert", "MPNet", "DebertaV2", "GPT2", "OPT", "Llama", "Mistral", "Qwen2")


def text() -> dict[str, Callable[[], Network]]:
    """By name; each is made when it is asked for."""
    made: dict[str, Callable[[], Network]] = {}
    for name, sizes in (ENCODERS | DECODERS).items():
        made[f"hf-{name.lower()}"] = lambda name=name, sizes=sizes: _of_tokens(name, sizes)
    for name in MASKED:
        made[f"hf-{name.lower()}-masked"] = lambda name=name: _of_masked_tokens(name)
    return made | {
        "hf-t5-encoder": _t5_encoder,
        "hf-whisper-encoder": _whisper_encoder,
        "hf-wav2vec2": lambda: _of_sound("Wav2Vec2"),
        "hf-hubert": lambda: _of_sound("Hubert"),
        "hf-clip-vision": lambda: _of_image("CLIPVision", image_size=224, patch_size=32),
        "hf-segformer": lambda: _of_image("Segformer"),
        "hf-dinov2": lambda: _of_image("Dinov2", image_size=224),
    }


class _First(torch.nn.Module):
    """The first output alone; caches and attentions are not asked for."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(*inputs, return_dict=False)[0]
        return found


def _model(name: str, sizes: Mapping[str, object], **options: object) -> Any:
    config = getattr(transformers, f"{name}Config")(**sizes)
    if "use_cache" in config.to_dict():
        config.use_cache = False
    return getattr(transformers, f"{name}Model")(config, **options)


def _of_tokens(name: str, sizes: Mapping[str, object]) -> Network:
    tokens = torch.randint(5, WORDS, (1, TOKENS))
    return Network(_First(_model(name, sizes)), {"tokens": tokens})


class _Masked(torch.nn.Module):
    """The first output, of tokens and a mask that says which of them are padding."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(input_ids=tokens, attention_mask=mask, return_dict=False)[0]
        return found


def _of_masked_tokens(name: str) -> Network:
    model = _model(name, (ENCODERS | DECODERS)[name])
    mask = torch.ones(1, TOKENS, dtype=torch.int64)
    mask[:, TOKENS // 2 :] = 0
    return Network(_Masked(model), {"tokens": torch.randint(5, WORDS, (1, TOKENS)), "mask": mask})


def _t5_encoder() -> Network:
    sizes = {"d_model": WIDTH, "d_kv": 64, "d_ff": 1024, "num_layers": LAYERS, "num_heads": HEADS}
    encoder = transformers.T5EncoderModel(transformers.T5Config(vocab_size=WORDS, **sizes))
    return Network(_First(encoder), {"tokens": torch.randint(5, WORDS, (1, TOKENS))})


def _whisper_encoder() -> Network:
    sizes = {"d_model": 384, "encoder_layers": LAYERS, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    whole = transformers.WhisperModel(transformers.WhisperConfig(vocab_size=WORDS, pad_token_id=0, **sizes))
    return Network(_First(whole.encoder), {"mel": torch.randn(1, 80, 3000)})


def _of_sound(name: str) -> Network:
    return Network(_First(_model(name, COMMON)), {"sound": torch.randn(1, 16000)})


def _of_image(name: str, **sizes: object) -> Network:
    known = {} if name == "Segformer" else {key: COMMON[key] for key in COMMON if key != "vocab_size"}
    return Network(_First(_model(name, known | sizes)), {"image": torch.randn(1, 3, 224, 224)})
