"""Export a decoder of Hugging Face transformers to ONNX; its caches are inputs and outputs.

python export.py decoder.onnx [--kind qwen2 | llama | gpt2] [--layers 2 ...] [--exporter script | dynamo]

Needs torch, transformers, onnx and onnxscript. Weights are random; use `from_pretrained` instead of a
configuration for real ones.
"""

import argparse
import warnings
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import DynamicCache

OPSET = {"script": 17, "dynamo": 20}
ROWS, PAST = 4, 6  # tokens and cache length of the traced example


class WithCaches(torch.nn.Module):
    """Wraps a decoder so that its caches are a flat list of tensors, in and out."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> tuple[Any, ...]:
        """Return the logits, and the caches with the new tokens appended."""
        cache = DynamicCache()
        for layer, pair in enumerate(zip(past[::2], past[1::2], strict=True)):
            cache.update(*pair, layer)
        result = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        )
        caches = [tensor for layer in result.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return result.logits, *caches


def export(config: Any, path: str, exporter: str) -> None:
    """Export a model of this configuration, with random weights, to `path`."""
    torch.manual_seed(0)
    model = WithCaches(AutoModelForCausalLM.from_config(config).eval())
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    caches = [f"{layer}.{kind}" for layer in range(config.num_hidden_layers) for kind in ("key", "value")]
    inputs = (
        torch.ones(1, ROWS, dtype=torch.int64),
        torch.ones(1, PAST + ROWS, dtype=torch.int64),
        torch.arange(PAST, PAST + ROWS)[None],
        *(torch.randn(1, heads, PAST, head_size) for _ in caches),
    )
    names = ["input_ids", "attention_mask", "position_ids", *(f"past.{name}" for name in caches)]
    options: dict[str, Any] = {
        "input_names": names,
        "output_names": ["logits", *(f"present.{name}" for name in caches)],
        "opset_version": OPSET[exporter],
        "dynamo": exporter == "dynamo",
    }
    if exporter == "dynamo":
        rows, past = torch.export.Dim("sequence", min=1, max=4096), torch.export.Dim("past", min=0, max=65536)
        mask = {1: torch.export.Dim.DYNAMIC}
        options["dynamic_shapes"] = ({1: rows}, mask, {1: rows}, tuple({2: past} for _ in caches))
    else:
        axes = {name: {1: "sequence"} for name in ("input_ids", "position_ids", "logits")}
        axes |= {"attention_mask": {1: "total"}} | {f"past.{name}": {2: "past"} for name in caches}
        options["dynamic_axes"] = axes | {f"present.{name}": {2: "total"} for name in caches}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, path, **options)


def main() -> None:
    """Build a configuration from the command line and export its model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", metavar="FILE.onnx")
    parser.add_argument("--kind", default="qwen2", help="a model type of transformers")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--inner", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument(
        "--groups", type=int, default=2, help="heads of the caches; of gpt2 as many as --heads"
    )
    parser.add_argument("--words", type=int, default=512)
    parser.add_argument("--exporter", choices=OPSET, default="script")
    args = parser.parse_args()
    sizes = {
        "num_hidden_layers": args.layers,
        "hidden_size": args.width,
        "intermediate_size": args.inner,
        "num_attention_heads": args.heads,
        "num_key_value_heads": args.groups,
        "vocab_size": args.words,
    }
    export(AutoConfig.for_model(args.kind, **sizes), args.path, args.exporter)


if __name__ == "__main__":
    main()
