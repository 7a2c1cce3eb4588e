#!/usr/bin/env bash
# Prints a folder that holds Hugging Face transformers and those of its needs that neither the test
# environment nor the folder of tables.sh has (140 MB), for examples/tables/with_transformers.py; see
# package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" transformers \
    transformers==5.23.0 tokenizers==0.23.3 regex==2026.11.15 safetensors==0.8.0
