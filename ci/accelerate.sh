#!/usr/bin/env bash
# Prints a folder that holds Hugging Face accelerate; see package_folder.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" accelerate \
    accelerate==1.15.0
