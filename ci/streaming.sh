#!/usr/bin/env bash
# Prints a folder that holds MosaicML's Streaming and those of its needs that the test environment does
# not have (190 MB), without the clients of other clouds; see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" streaming \
    mosaicml-streaming==0.13.0 brotli==1.2.1 python-snappy==0.7.3 cramjam==2.14.0 zstd==1.5.7.2 \
    catalogue==2.0.10 torchvision==0.29.2 transformers==4.57.6 tokenizers==0.22.2 \
    huggingface_hub==0.36.2 hf_xet==1.8.0 regex==2026.11.19 safetensors==0.8.0 tqdm==4.70.1
