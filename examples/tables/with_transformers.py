"""A model of Hugging Face in a bucket: saved by `save_pretrained`, and loaded in two ways.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python examples/tables/with_transformers.py fb://bucket/model

transformers writes and reads folders of this machine; fsspec carries them. Loading needs none: the
tensors come straight from the bucket, by ranges, into the memory that the model then has.
"""

from __future__ import annotations

import json
import sys
import tempfile

import fsspec
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from forebay_torch import Checkpoint, TensorFile


def main(folder: str) -> None:
    torch.manual_seed(0)
    made = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=1000,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    ).eval()
    files, path = fsspec.core.url_to_fs(folder)
    with tempfile.TemporaryDirectory() as here:
        made.save_pretrained(here, max_shard_size="500KB")
        files.put(f"{here}/", f"{path}/", recursive=True)

    with tempfile.TemporaryDirectory() as here:
        files.get(f"{path}/", f"{here}/", recursive=True)
        copied = LlamaForCausalLM.from_pretrained(here).eval()

    config = LlamaConfig.from_dict(json.loads(files.cat_file(f"{path}/config.json")))
    parts = files.glob(f"{path}/*.safetensors")
    weights: dict[str, torch.Tensor] = {}
    for part in parts:
        weights |= TensorFile(Checkpoint(), f"fb://{part}").get_many()
    straight = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights).eval()

    words = torch.arange(16)[None]
    with torch.no_grad():
        wanted, *found = (model(words).logits for model in (made, copied, straight))
    same = sum(torch.equal(wanted, logits) for logits in found)

    index = json.loads(files.cat_file(f"{path}/model.safetensors.index.json"))
    name = "model.embed_tokens.weight"
    table = TensorFile(Checkpoint(), f"fb://{path}/{index['weight_map'][name]}").get_slice(name)
    print(
        f"{len(parts)} files of weights, {same} of 2 models that say the same, "
        f"{len(table[100:104])} rows of {len(table)}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
